"""Mirrors and sources: what is refused, stored, shown and promoted is the same on two servers."""

import json
from typing import Any

from tests.client.jetstream_cases import Case
from tests.client.publish_cases import look, wait_for
from tests.client.recorder import Recorder, plain

CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def make(r: Recorder, letter: str, **config: object) -> str:
    """A stream beside the case's; `O` stands for the name of that."""
    name = r.stream + letter
    r.api(f"STREAM.CREATE.{name}", {"name": name, **named(r, config)})
    return name


def named(r: Recorder, value: Any) -> Any:
    """A configuration in which names that begin with `O` are those of the case."""
    if isinstance(value, dict):
        return {key: named(r, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [named(r, inner) for inner in value]
    if isinstance(value, str) and value[:1] == "O":
        return r.stream + value[1:]
    return value


def holds(r: Recorder, name: str, last: int) -> None:
    """Waits until a stream has come so far, and notes all that it has."""
    origin, r.stream = r.stream, name
    wait_for(r, last)
    look(r)
    r.stream = origin


# ---- what is refused

EXTERNAL = {"api": "$JS.X.API", "deliver": "x"}
WRONG_ORIGINS: tuple[dict[str, Any], ...] = (
    *({"filter_subject": "a..b"}, {"filter_subject": "a", "subject_transforms": [{}]}),
    *({"name": ""}, {"name": "a.b"}, {"name": "a b"}, {"opt_start_seq": 1 << 63}),
    {"opt_start_time": "yesterday"},
    {"subject_transforms": [{"src": "a..b"}]},
    {"subject_transforms": [{"src": "a.*", "dest": "$2"}]},
    {"subject_transforms": [{"src": "a.*"}, {"src": "a.b"}]},
    {"subject_transforms": [{"src": "a.*", "dest": "{{left(1,1)}}"}]},
    {"consumer": {}},
    {"consumer": {"name": "C", "deliver_subject": "a.*"}},
    {"consumer": {"name": "C", "deliver_subject": "a"}, "opt_start_seq": 5},
    {"consumer": {"name": "C", "deliver_subject": "a"}, "filter_subject": "a"},
    *({"external": {"api": "a.*"}}, {"external": {"api": "$JS.API"}}),
    *({"external": {"api": "x", "deliver": "a.*"}}, {"external": {"deliver": "a..b"}}),
    {"name": "a.b", "external": {"api": "$JS.API"}},
)
WRONG_MIRRORS: tuple[dict[str, Any], ...] = (
    *({"subjects": ["x"]}, {"first_seq": 5}, {"sources": [{"name": "O"}]}),
    *({"allow_msg_counter": True}, {"allow_atomic": True}, {"allow_batched": True}),
    *({"allow_msg_schedules": True}, {"subject_delete_marker_ttl": 1000000000}),
    *({"max_msg_size": 10}, {"max_msg_size": 100}, {"duplicate_window": 1000000000}),
    *({"mirror": {"name": "O", **more}} for more in WRONG_ORIGINS),
)


@case
def refused_mirrors(r: Recorder) -> None:
    r.create(max_msg_size=50)
    for config in WRONG_MIRRORS:
        make(r, "M", **{"mirror": {"name": "O"}, **config})
        r.api(f"STREAM.DELETE.{r.stream}M")
    make(r, "M", mirror_direct=True)
    make(r, "M", mirror={"name": "OM"})


@case
def refused_sources(r: Recorder) -> None:
    r.create(max_msg_size=50, allow_direct=True)
    configs: tuple[dict[str, Any], ...] = (
        {"max_msg_size": 10},
        {"allow_msg_schedules": True},
        {"sources": [{"name": "O"}, {"name": "O"}]},
        {"sources": [{"name": "O"}, {"name": "O", "filter_subject": ">"}]},
        {"sources": [{"name": "O"}, {"name": "O", "subject_transforms": [{"dest": ">"}]}]},
        {"sources": [{"name": "O", "external": EXTERNAL}, {"name": "O", "external": EXTERNAL}]},
        {"sources": [{"name": "", "external": EXTERNAL}]},
        *({"sources": [source["mirror"]]} for source in WRONG_MIRRORS if "mirror" in source),
        {
            "sources": [
                {"name": name, "consumer": {"name": "C", "deliver_subject": subject}}
                for name, subject in (("O", "a"), ("O", "b"))
            ]
        },
    )
    for config in configs:
        make(r, "M", **{"sources": [{"name": "O"}], **config})
        r.api(f"STREAM.DELETE.{r.stream}M")


@case
def refused_cycles(r: Recorder) -> None:
    r.create()
    make(r, "A", subjects=["Oa"], sources=[{"name": "O"}])
    make(r, "B", mirror={"name": "OA"})
    for name, sources in (
        ("", [{"name": "OA"}]),
        ("", [{"name": "OB"}]),
        ("", [{"name": "OA", "filter_subject": "other"}]),
        ("", [{"name": "O"}]),
        ("", [{"name": "O", "filter_subject": "other"}]),
        ("A", [{"name": "OB"}]),
    ):
        config = {"name": f"O{name}", "subjects": ["O.>" if not name else "Oa"], "sources": sources}
        r.api(f"STREAM.UPDATE.{r.stream}{name}", named(r, config))
    make(r, "C", mirror={"name": "OC"})
    make(r, "C", sources=[{"name": "OC"}])


@case
def refused_prefixes(r: Recorder) -> None:
    r.create()
    for external in (
        *({"api": "x", "deliver": "O"}, {"api": "x", "deliver": ""}, {"deliver": "x"}),
        *({}, {"api": ""}, {"api": "x.>"}, {"api": "x", "deliver": ">"}),
    ):
        make(r, "A", sources=[{"name": "O"}, {"name": "P", "external": external}])
        make(r, "B", mirror={"name": "P", "external": external})
        r.api(f"STREAM.DELETE.{r.stream}A")
        r.api(f"STREAM.DELETE.{r.stream}B")


# ---- mirrors


@case
def mirrored(r: Recorder) -> None:
    r.create(allow_direct=True)
    r.fill(3)
    r.store("b", b"4", "A: b", "Nats-Msg-Id: x")
    r.store("b", b"5", "Nats-Expected-Last-Sequence: 4", "C: d")
    r.store("b", b"6", "Nats-Expected-Last-Sequence: 5")
    r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": 2})
    mirror = make(r, "M", mirror={"name": "O"})
    holds(r, mirror, 6)
    r.store("c", b"7")
    r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": 3})
    holds(r, mirror, 7)
    r.api(f"STREAM.INFO.{r.stream}")
    r.api(f"CONSUMER.NAMES.{r.stream}")
    r.api(f"CONSUMER.LIST.{r.stream}")
    r.ask(mirror, b"nobody listens")
    r.api("STREAM.LIST", {"subject": mirror})
    r.api(f"STREAM.PURGE.{r.stream}")
    r.fill(2)
    holds(r, mirror, 9)
    r.api(f"STREAM.MSG.DELETE.{mirror}", {"seq": 4})
    r.api(f"STREAM.PURGE.{mirror}", {"keep": 1})
    r.fill(1)
    holds(r, mirror, 10)
    r.api(f"STREAM.PURGE.{mirror}")
    r.fill(1)
    holds(r, mirror, 11)


@case
def mirrored_in_memory(r: Recorder) -> None:
    r.create(storage="memory")
    r.fill(3)
    mirror = make(r, "M", storage="memory", max_msgs=2, mirror={"name": "O"})
    holds(r, mirror, 3)
    r.fill(2)
    holds(r, mirror, 5)


@case
def mirror_of_high_sequences(r: Recorder) -> None:
    r.create(first_seq=1000)
    first = make(r, "A", mirror={"name": "O"})
    r.fill(2)
    holds(r, first, 1001)
    r.api(f"STREAM.PURGE.{r.stream}", {"seq": 1001})
    holds(r, make(r, "B", mirror={"name": "O"}), 1001)
    r.api(f"STREAM.PURGE.{r.stream}")
    third = make(r, "C", mirror={"name": "O"})
    r.fill(1)
    holds(r, third, 1002)
    holds(r, first, 1002)


@case
def mirror_starts_somewhere(r: Recorder) -> None:
    r.create()
    r.fill(5)
    time = r.api(f"STREAM.MSG.GET.{r.stream}", {"seq": 3})["message"]["time"]
    for letter, start in (
        ("A", {"opt_start_seq": 4}),
        ("B", {"opt_start_time": time}),
        ("C", {"opt_start_seq": 4, "opt_start_time": time}),
        ("D", {"filter_subject": "O.a"}),
        ("E", {"subject_transforms": [{"src": "O.>", "dest": "t.>"}]}),
        ("F", {"subject_transforms": [{"src": "O.b", "dest": "u"}, {"src": "O.a", "dest": ""}]}),
    ):
        mirror = make(r, letter, mirror={"name": "O", **start})
        holds(r, mirror, 5)
        r.api(f"STREAM.DELETE.{mirror}")
    mirror = make(r, "G", mirror={"name": "O", "opt_start_seq": 9})
    r.fill(2)
    holds(r, mirror, 7)


@case
def mirror_with_a_filter(r: Recorder) -> None:
    r.create()
    for subject in "abcabc":
        r.fill(1, subject)
    mirror = make(r, "M", mirror={"name": "O", "filter_subject": "O.b"})
    holds(r, mirror, 5)
    r.fill(1, "b")
    holds(r, mirror, 7)


@case
def mirror_that_is_promoted(r: Recorder) -> None:
    r.create()
    r.fill(3)
    mirror = make(r, "M", mirror={"name": "O"})
    holds(r, mirror, 3)
    config = {"name": mirror, "mirror": {"name": r.stream, "opt_start_seq": 3}}
    r.api(f"STREAM.UPDATE.{mirror}", config)
    r.api(f"STREAM.UPDATE.{mirror}", {"name": mirror, "mirror": {"name": "other"}})
    r.api(f"STREAM.UPDATE.{mirror}", {"name": mirror, "mirror": {"name": r.stream}, "max_msgs": 2})
    r.api(f"STREAM.UPDATE.{r.stream}", {"name": r.stream, "mirror": {"name": mirror}})
    r.api(f"STREAM.UPDATE.{mirror}", {"name": mirror, "subjects": [f"{mirror}.>"]})
    r.ask(f"{mirror}.x", b"new")
    r.fill(1)
    holds(r, mirror, 4)


@case
def mirror_without_origin(r: Recorder) -> None:
    mirror = make(r, "M", mirror={"name": "O"})
    r._poll(f"STREAM.INFO.{mirror}", lambda info: "error" in info["mirror"])
    r.api(f"STREAM.INFO.{mirror}")
    other = make(r, "N", sources=[{"name": "O"}])
    r._poll(f"STREAM.INFO.{other}", lambda info: "error" in info["sources"][0])
    r.api(f"STREAM.INFO.{other}")


@case
def mirror_serves_direct_gets(r: Recorder) -> None:
    r.create(allow_direct=True, max_msgs_per_subject=1)
    r.fill(3, "a")
    r.fill(3, "b")
    mirror = make(r, "M", mirror={"name": "O"})
    holds(r, mirror, 6)
    r.api(f"STREAM.DELETE.{r.stream}")
    r.direct({"seq": 6})
    r.direct(b"", subject=f".{r.stream}.a")
    r.direct({"last_by_subj": f"{r.stream}.b"})
    r.api(f"STREAM.UPDATE.{mirror}", {"name": mirror, "mirror": {"name": r.stream}})
    r.direct({"seq": 6})


@case
def consumers_of_a_mirror(r: Recorder) -> None:
    r.create()
    r.fill(3)
    mirror = make(r, "M", mirror={"name": "O"})
    holds(r, mirror, 3)
    origin, r.stream = r.stream, mirror
    r.consumer("C")
    r.fetch({"batch": 3}, 3)
    r.info("C")
    r.stream = origin
    r.fill(1)
    r.stream = mirror
    r.fetch({"batch": 1}, 1)
    r.stream = origin


# ---- sources


@case
def sourced(r: Recorder) -> None:
    r.create()
    r.fill(2)
    r.store("b", b"3", "A: b", "Nats-Msg-Id: x")
    r.store("b", b"4", "Nats-Expected-Last-Sequence: 3", "C: d", "nats-expected-x: e")
    target = make(r, "S", sources=[{"name": "O"}])
    holds(r, target, 4)
    r.fill(2)
    holds(r, target, 6)
    again = make(r, "T", subjects=["Ot"], sources=[{"name": "OS"}])
    holds(r, again, 6)
    r.ask(f"{r.stream}t", b"its own")
    r.fill(1)
    holds(r, again, 8)
    r.api(f"STREAM.PURGE.{r.stream}")
    r.fill(1)
    holds(r, target, 8)


@case
def sources_with_filters(r: Recorder) -> None:
    r.create()
    for subject in "abcabd":
        r.fill(1, subject)
    time = r.api(f"STREAM.MSG.GET.{r.stream}", {"seq": 3})["message"]["time"]
    for letter, source in (
        ("A", {"filter_subject": "O.a"}),
        ("B", {"opt_start_seq": 3}),
        ("C", {"opt_start_time": time}),
        ("D", {"opt_start_seq": 3, "filter_subject": "O.>"}),
        ("E", {"subject_transforms": [{"src": "O.*", "dest": "t.$1"}]}),
        (
            "F",
            {"subject_transforms": [{"src": "O.a", "dest": "u"}, {"src": "O.b", "dest": ""}]},
        ),
        ("H", {"subject_transforms": [{"src": "O.*", "dest": "p.{{partition(3,1)}}"}]}),
    ):
        count = {"A": 2, "B": 4, "C": 4, "D": 4, "F": 4}.get(letter, 6)
        holds(r, make(r, letter, sources=[{"name": "O", **source}]), count)


@case
def sources_with_duplicates(r: Recorder) -> None:
    r.create(duplicate_window=1000000000)
    target = make(r, "S", subjects=["Os"], duplicate_window=100000000000, sources=[{"name": "O"}])
    header = b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"
    r.ask(f"{r.stream}s", b"here", header=header)
    r.store("a", b"1", "Nats-Msg-Id: x")
    r.store("a", b"2", "Nats-Msg-Id: y")
    r.store("a", b"3")
    holds(r, target, 3)
    r.ask(f"{r.stream}s", b"here", header=b"NATS/1.0\r\nNats-Msg-Id: y\r\n\r\n")


@case
def sources_that_change(r: Recorder) -> None:
    r.create()
    r.fill(2, "a")
    r.fill(2, "b")
    other = make(r, "P", subjects=["Op"])
    r.ask(f"{r.stream}p", b"other")
    target = make(r, "S", sources=[{"name": "O", "filter_subject": "O.a"}])
    holds(r, target, 2)

    def update(*sources: dict[str, object]) -> None:
        config = {"name": target, "sources": list(sources)}
        r.api(f"STREAM.UPDATE.{target}", named(r, config))

    update({"name": "O", "filter_subject": "O.a"}, {"name": "OP"})
    holds(r, target, 3)
    update({"name": "OP"})
    r.fill(1, "a")
    r.ask(other[:-1] + "p", b"other")
    holds(r, target, 4)
    update({"name": "OP"}, {"name": "O", "filter_subject": "O.a"})
    holds(r, target, 5)
    update({"name": "OP"}, {"name": "O", "filter_subject": "O.a", "opt_start_seq": 1})
    r.api(f"STREAM.UPDATE.{target}", {"name": target, "subjects": [f"{target}.x"]})
    r.fill(1, "a")
    r.ask(f"{target}.x", b"its own")
    holds(r, target, 6)


@case
def sources_of_streams_that_keep_what_is_wanted(r: Recorder) -> None:
    r.create(retention="workqueue")
    r.fill(3)
    target = make(r, "S", sources=[{"name": "O"}])
    holds(r, target, 3)
    r.stored(0)
    r.api(f"CONSUMER.LIST.{r.stream}")
    r.fill(1)
    holds(r, target, 4)
    r.stored(0)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def mirror_of_a_stream_of_interest(r: Recorder) -> None:
    r.create(retention="interest")
    mirror = make(r, "M", mirror={"name": "O"})
    r._poll(f"STREAM.INFO.{mirror}", lambda info: info["mirror"]["active"] != -1)
    r.fill(3)
    holds(r, mirror, 3)
    r.stored(0)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def consumers_for_sourcing(r: Recorder) -> None:
    r.create()
    r.fill(2)

    def ask(**config: object) -> None:
        body = {"stream_name": r.stream, "config": {"deliver_subject": "d", **config}}
        answer = r.client_request(f"$JS.API.CONSUMER.CREATE.{r.stream}", json.dumps(body).encode())
        said = json.loads(answer.payload)
        named = said.pop("name", "")
        said.get("config", {}).pop("name", "")
        r.note(len(named), plain(said))

    ask(direct=True)
    ask(direct=True, sourcing=True)
    ask(direct=True, sourcing=True, name="X")
    ask(direct=True, sourcing=True, name="X", ack_policy="explicit")
    ask(direct=True, deliver_subject="")
    ask(sourcing=True)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def consumers_made_beforehand(r: Recorder) -> None:
    r.create()
    r.fill(3)
    flow = {"ack_policy": "flow_control", "max_ack_pending": 100}
    r.consumer("P", deliver_subject=f"{r.stream}p", **flow)
    r.consumer("Q", deliver_subject=f"{r.stream}q", **flow)
    r.consumer("E", deliver_subject=f"{r.stream}e")

    def made(name: str) -> dict[str, object]:
        deliver = f"{r.stream}{name.lower()}"
        return {"name": "O", "consumer": {"name": name, "deliver_subject": deliver}}

    mirror = make(r, "M", mirror=made("P"))
    source = make(r, "S", sources=[made("Q")])
    holds(r, mirror, 3)
    holds(r, source, 3)
    r.fill(2)
    holds(r, mirror, 5)
    holds(r, source, 5)
    r.settled("num_ack_pending", 0, "P")
    r.settled("num_ack_pending", 0, "Q")
    r.info("P")
    r.info("Q")
    for letter, what in (("N", {"mirror": made("E")}), ("T", {"sources": [made("E")]})):
        wrong = make(r, letter, **what)
        r._poll(f"STREAM.INFO.{wrong}", lambda info: '"err_code"' in json.dumps(info))
        r.api(f"STREAM.INFO.{wrong}")
    r.api(f"STREAM.DELETE.{mirror}")
    r.api(f"STREAM.DELETE.{source}")
    r.api(f"CONSUMER.NAMES.{r.stream}")


# ---- counters


def count(r: Recorder, subject: str, *by: str) -> None:
    for one in by:
        r.ask(f"{r.stream}{subject}", b"", header=f"NATS/1.0\r\nNats-Incr: {one}\r\n\r\n".encode())


@case
def counters_with_sources(r: Recorder) -> None:
    r.create(allow_msg_counter=True)
    make(r, "P", subjects=["Op"], allow_msg_counter=True)
    count(r, ".a", "1", "+10", "-3")
    count(r, ".b", "5", "99999999999999999999999999")
    count(r, "p", "-7")
    target = make(
        r,
        "S",
        subjects=["Os"],
        allow_msg_counter=True,
        sources=[
            {"name": "O", "subject_transforms": [{"src": "O.*", "dest": "Os"}]},
        ],
    )
    holds(r, target, 5)
    count(r, "s", "2")
    count(r, ".a", "1")
    holds(r, target, 7)
    again = make(r, "T", allow_msg_counter=True, sources=[{"name": "OS"}])
    holds(r, again, 7)
    config = {
        "name": "OS",
        "subjects": ["Os"],
        "allow_msg_counter": True,
        "sources": [
            {"name": "O", "subject_transforms": [{"src": "O.*", "dest": "Os"}]},
            {"name": "OP", "subject_transforms": [{"src": "Op", "dest": "Os"}]},
        ],
    }
    r.api(f"STREAM.UPDATE.{target}", named(r, config))
    holds(r, target, 8)
    count(r, "p", "-1")
    holds(r, target, 9)
    holds(r, again, 9)


@case
def what_is_no_counter_is_stored_as_it_is(r: Recorder) -> None:
    r.create(allow_msg_counter=True)
    count(r, ".a", "1", "2")
    holds(r, make(r, "S", sources=[{"name": "O"}]), 2)
    holds(r, make(r, "M", mirror={"name": "O"}), 2)
