"""Conversations with the JetStream API for comparison: requests, publishes, one after another.

A scenario is a list of steps: `(subject, body)` is a request on `$JS.API.<subject>`, `Pub` a
publish. Bodies are bytes as they are or a value that becomes JSON.
"""

from typing import Any, NamedTuple


class Pub(NamedTuple):
    """A message that a client publishes, and waits for its acknowledgement if there is one."""

    subject: str
    payload: bytes = b"x"
    headers: bytes = b""


class Ask(NamedTuple):
    """A request."""

    subject: str
    body: Any = b""
    headers: bytes = b""


Step = Pub | Ask
LEVEL = b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n"
SECOND = 1_000_000_000


def create(name: str = "S", /, **config: Any) -> Ask:
    return Ask(f"STREAM.CREATE.{name}", {"name": name, **config})


def update(name: str = "S", /, **config: Any) -> Ask:
    return Ask(f"STREAM.UPDATE.{name}", {"name": name, **config})


def delete(name: str = "S") -> Ask:
    return Ask(f"STREAM.DELETE.{name}")


def consumer(name: str = "c", stream: str = "S", /, action: str = "", **config: Any) -> Ask:
    body: dict[str, Any] = {"stream_name": stream, "config": config}
    if action:
        body["action"] = action
    return Ask(f"CONSUMER.CREATE.{stream}.{name}", body)


def raw_consumer(subject: str, **body: Any) -> Ask:
    return Ask(f"CONSUMER.{subject}", body)


def tried(*configs: dict[str, Any]) -> list[Step]:
    """Each configuration on a stream of its own kind, removed again."""
    steps: list[Step] = []
    for config in configs:
        steps += [create(**config), delete()]
    return steps


def updated(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> list[Step]:
    """Each first configuration updated to the second."""
    steps: list[Step] = []
    for old, new in pairs:
        steps += [create(**old), update(**new), Ask("STREAM.INFO.S"), delete()]
    return steps


def consumers_tried(*configs: dict[str, Any], stream: dict[str, Any] | None = None) -> list[Step]:
    """Each configuration on a consumer of one stream, removed again."""
    steps: list[Step] = [create(**(stream or {"subjects": ["s.>"]}))]
    for config in configs:
        steps += [consumer(**config), Ask("CONSUMER.DELETE.S.c")]
    return steps


def consumers_updated(
    *pairs: tuple[dict[str, Any], dict[str, Any]], stream: dict[str, Any] | None = None
) -> list[Step]:
    steps: list[Step] = [create(**(stream or {"subjects": ["s.>"]}))]
    for old, new in pairs:
        steps += [
            consumer(**old),
            consumer(action="create", **new),
            consumer(**new),
            Ask("CONSUMER.INFO.S.c"),
            Ask("CONSUMER.DELETE.S.c"),
        ]
    return steps


EXPLICIT: dict[str, Any] = {"ack_policy": "explicit"}
PUSH = {"deliver_subject": "push"}
FLOW = {"ack_policy": "flow_control", "deliver_subject": "push"}
BY_TIME = {"deliver_policy": "by_start_time"}
LASTING: dict[str, Any] = {"inactive_threshold": 600 * SECOND}
KEPT: dict[str, Any] = {**EXPLICIT, **LASTING}
LIMITS_GIVEN: tuple[dict[str, Any], ...] = (
    {},
    {"max_ack_pending": 3},
    {"max_ack_pending": -1},
    {"inactive_threshold": -1},
)
"""Of one consumer, under limits of its stream."""
RESET: dict[str, dict[str, Any]] = {
    "all": {},
    "last": {"deliver_policy": "last"},
    "new": {"deliver_policy": "new"},
    "seq": {"deliver_policy": "by_start_sequence", "opt_start_seq": 4},
    "old": {**BY_TIME, "opt_start_time": "2021-01-01T00:00:00Z"},
    "yet": {**BY_TIME, "opt_start_time": "2121-01-01T00:00:00Z"},
    "per": {"deliver_policy": "last_per_subject", "filter_subject": "s.*"},
    "one": {"filter_subject": "s.1"},
    "two": {"filter_subjects": ["s.1", "s.2"]},
    "push": PUSH,
    "flow": {**FLOW, "deliver_subject": "flow"},
}
"""Consumers that are reset, by name."""
STARTS: tuple[dict[str, Any], ...] = (
    {},
    {"opt_start_seq": 5},
    {"opt_start_time": "2021-01-01T00:00:00.1200+02:00"},
    {"opt_start_seq": 5, "opt_start_time": "2021-01-01T00:00:00Z"},
    {"filter_subject": "s.1"},
)
"""Beside each deliver policy."""
CHANGES: list[dict[str, Any]] = [
    {"description": "d"},
    {"deliver_policy": "last"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
    {"deliver_policy": "by_start_time", "opt_start_time": "2021-01-01T00:00:00Z"},
    {"deliver_policy": "last_per_subject", "filter_subject": "s.>"},
    {"opt_start_seq": 3},
    {"opt_start_time": "2021-01-01T00:00:00Z"},
    {"ack_policy": "none"},
    {"ack_policy": "all"},
    {"ack_wait": 7 * SECOND},
    {"max_deliver": 4},
    {"backoff": [SECOND, 2 * SECOND]},
    {"backoff": [SECOND, 2 * SECOND], "max_deliver": 1},
    {"filter_subject": "s.a"},
    {"filter_subjects": ["s.a", "s.b"]},
    {"replay_policy": "original"},
    {"rate_limit_bps": 8000},
    {"sample_freq": "50%"},
    {"max_waiting": 7},
    {"max_ack_pending": 7},
    {"max_ack_pending": -1},
    {"flow_control": True, "idle_heartbeat": SECOND},
    {"idle_heartbeat": SECOND},
    {"headers_only": True},
    {"max_batch": 7},
    {"max_expires": SECOND},
    {"max_bytes": 700},
    {"deliver_subject": "elsewhere"},
    {"deliver_group": "g"},
    {"inactive_threshold": 70 * SECOND},
    {"num_replicas": 1},
    {"num_replicas": 3},
    {"mem_storage": True},
    {"metadata": {"a": "b"}},
    {"pause_until": "2101-01-01T00:00:00Z"},
    {"priority_groups": ["a"], "priority_policy": "overflow"},
    {"priority_groups": ["a"], "priority_policy": "pinned_client"},
    {"priority_groups": ["a"], "priority_policy": "pinned_client", "priority_timeout": SECOND},
    {"priority_groups": ["a"], "priority_policy": "prioritized"},
]
"""What an update may try to change, each in itself valid of some consumer."""
FILLED: list[Step] = [
    create(subjects=["s.>"]),
    *(Pub(f"s.{n % 3}", b"%d" % n) for n in range(10)),
    Pub("s.h", b"with", b"NATS/1.0\r\nA: b\r\n\r\n"),
]
FILLED_MEMORY: list[Step] = [create(subjects=["s.>"], storage="memory"), *FILLED[1:]]

READS: list[Step] = [
    *(
        Ask("STREAM.MSG.GET.S", body)
        for body in (
            {"seq": 1},
            {"seq": 11},
            {"seq": 11, "no_hdr": True},
            {"seq": 12},
            {"seq": 0},
            {"last_by_subj": "s.1"},
            {"last_by_subj": "s.*"},
            {"last_by_subj": "zz"},
            {"next_by_subj": "s.1"},
            {"next_by_subj": "s.1", "seq": 4},
            {"next_by_subj": "s.>", "seq": 11},
            {"next_by_subj": "s.1", "seq": 11},
            {"next_by_subj": "zz"},
            {"start_time": "2001-01-01T00:00:00Z"},
            {"start_time": "2101-01-01T00:00:00Z"},
            {"start_time": "2001-01-01T00:00:00Z", "next_by_subj": "s.2"},
            {"start_time": "x"},
            {"batch": 1, "seq": 1},
            {"max_bytes": 1, "seq": 1},
            {"batch": -1, "max_bytes": -1, "seq": 1},
            {"seq": 1, "last_by_subj": "s.1"},
            {"seq": 1, "start_time": "2001-01-01T00:00:00Z"},
            {"last_by_subj": "s.1", "next_by_subj": "s.1"},
            {"last_by_subj": "s.1", "start_time": "2001-01-01T00:00:00Z"},
            {"no_hdr": True},
            {"multi_last": ["s.1"]},
            {"seq": 1, "up_to_seq": 3},
            {"bogus": 1},
        )
    ),
]
DELETES: list[Step] = [
    Ask("STREAM.MSG.DELETE.S", {"seq": 3}),
    Ask("STREAM.MSG.DELETE.S", {"seq": 3}),
    Ask("STREAM.MSG.DELETE.S", {"seq": 5, "no_erase": True}),
    Ask("STREAM.MSG.DELETE.S", {"seq": 1}),
    Ask("STREAM.MSG.DELETE.S", {"seq": 1}),
    Ask("STREAM.MSG.DELETE.S", {"seq": 100}),
    Ask("STREAM.MSG.DELETE.S", {"no_erase": True}),
    Ask("STREAM.INFO.S"),
    Ask("STREAM.INFO.S", {"deleted_details": True}),
    Ask("STREAM.MSG.GET.S", {"seq": 3}),
    Ask("STREAM.MSG.DELETE.S", {"seq": 11}),
    Ask("STREAM.INFO.S", {"deleted_details": True}),
]

REPEATED_KEYS: list[Step] = []
"""Bodies that name a key twice; what is created is removed, also where a name is a mistake."""
for body in (
    b'{"name":"S","max_msgs":5,"max_msgs":6}',
    b'{"name":"S","max_msgs":5,"max_msgs":null}',
    b'{"name":"S","max_msgs":null,"max_msgs":5}',
    b'{"name":"S","max_msgs":"x","max_msgs":5}',
    b'{"name":"S","max_msgs":5,"max_msgs":"x"}',
    b'{"name":"A","name":"S","subjects":["a","b"],"subjects":["c"]}',
    b'{"name":"S","subjects":["a","b"],"subjects":null}',
    b'{"name":"S","subjects":["a"],"subjects":[]}',
    b'{"name":"S","metadata":{"a":"1"},"metadata":{"b":"2"}}',
    b'{"name":"S","metadata":{"a":"1","a":"2"},"metadata":null}',
    b'{"name":"S","metadata":{"a":"1"},"metadata":{"a":null,"b":"3"}}',
    b'{"name":"S","metadata":{"x:y":"1:2","x\\u003ay":"3"}}',
    b'{"name":"S","consumer_limits":{"max_ack_pending":5},"consumer_limits":{"inactive_threshold":9000000000}}',
    b'{"name":"S","consumer_limits":{"max_ack_pending":5},"consumer_limits":null}',
    b'{"name":"S","placement":{"cluster":"a"},"placement":{"tags":["b"]},"placement":null}',
    b'{"name":"S","storage":"memory","storage":"file"}',
    b'{"name":"S","storage":"memory","storage":"tape"}',
    b'{"name":"S","storage":"tape","storage":"memory"}',
    b'{"name":"S","sealed":1,"sealed":false}',
    b'{"name":"S","bogus":1,"bogus":2}',
):
    REPEATED_KEYS += [Ask("STREAM.CREATE.S", body), delete()]
REPEATED_KEYS += [
    create(subjects=["s.>"]),
    Ask(
        "CONSUMER.CREATE.S.c",
        b'{"stream_name":"S","config":{"name":"c","ack_policy":"none"},"config":{"ack_policy":"all"}}',
    ),
    Ask(
        "CONSUMER.CREATE.S.d",
        b'{"stream_name":"S","config":{"durable_name":"x"},"config":{"durable_name":"d","max_deliver":3}}',
    ),
    Pub("s.a"),
    Ask("STREAM.MSG.GET.S", b'{"seq":7,"seq":1}'),
    Ask("STREAM.PURGE.S", b'{"filter":"s.b","filter":"s.a"}'),
]

SCENARIOS: dict[str, list[Step]] = {
    "repeated keys": REPEATED_KEYS,
    "silence": [
        Ask("FOO"),
        Ask("STREAM.INFO"),
        Ask("STREAM.INFO.A.B"),
        Ask("STREAM.TEMPLATES"),
        Ask("STREAM.TEMPLATE.CREATE.X"),
        Ask("CONSUMER.INFO.S"),
        Ask("CONSUMER.INFO.S.a.b"),
        Ask("CONSUMER.DURABLE.CREATE.S"),
        Ask("CONSUMER.DURABLE.CREATE.S.d.x"),
        Ask("STREAM.NAMES.x"),
        Ask("META.LEADER.STEPDOWN"),
    ],
    "decoding of creations": [
        Ask("STREAM.CREATE.S", body)
        for body in (
            b"",
            b"  ",
            b"null",
            b"{}",
            b"[]",
            b"5",
            b'"a"',
            b"{",
            b'{"a"',
            b"x",
            b'{"name":"S"} x',
            b'{"name":"S",}',
            b'{"bogus":1}',
            b'{"name":"S","template_owner":""}',
            b'{"NAME":"S","Max_Msgs":5}',
            b'{"name":"S","max_msgs":5,"MAX_MSGS":6}',
            b'{"NAME":"S","nAme":"T"}',
            b'{"name":5}',
            b'{"name":"S","max_msgs":"x"}',
            b'{"name":"S","max_msgs":1.5}',
            b'{"name":"S","max_msgs":9999999999999999999}',
            b'{"name":"S","max_msg_size":3000000000}',
            b'{"name":"S","first_seq":-1}',
            b'{"name":"S","subjects":"a"}',
            b'{"name":"S","subjects":[1]}',
            b'{"name":"S","retention":"foo"}',
            b'{"name":"S","retention":"LIMITS"}',
            b'{"name":"S","retention":5}',
            b'{"name":"S","storage":"x"}',
            b'{"name":"S","discard":""}',
            b'{"name":"S","compression":"zip"}',
            b'{"name":"S","persist_mode":"x"}',
            b'{"name":"S","placement":[]}',
            b'{"name":"S","placement":{"x":1}}',
            b'{"name":"S","consumer_limits":{"x":1}}',
            b'{"name":"S","metadata":{"a":1}}',
            b'{"name":"S","no_ack":1}',
            b'{"name":"S","max_age":"24h"}',
            b'{"name":"S","mirror":{"name":"X","opt_start_time":"x"}}',
        )
    ],
    "decoding of optional bodies": [
        create(),
        *(
            Ask(subject, body)
            for subject in ("STREAM.NAMES", "STREAM.LIST", "CONSUMER.NAMES.S", "CONSUMER.LIST.S")
            for body in (
                b"x",
                b"null",
                b"[1]",
                b"[",
                b"{}",
                b' {"offset":0} ',
                {"offset": "a"},
                {"offset": -5},
                {"offset": 7},
                {"limit": 1},
                {"offset": None},
            )
        ),
        *(Ask("STREAM.INFO.S", body) for body in (b"x", b"null", b"[]", {"bogus": 1}, b"{")),
        *(Ask("STREAM.PURGE.S", body) for body in (b"x", b"null", b"[]", {"bogus": 1}, b"{")),
        *(Ask("CONSUMER.PAUSE.S.c", body) for body in (b"[]", {"pause_until": "x"}, b"{")),
        *(Ask("CONSUMER.PAUSE.S.c", body) for body in ({"pause_until": 5}, {"bogus": 1})),
    ],
    "decoding of required and forbidden bodies": [
        create(),
        *(
            Ask(subject, body)
            for subject in (
                "STREAM.DELETE.X",
                "STREAM.MSG.GET.S",
                "STREAM.MSG.DELETE.S",
                "CONSUMER.INFO.S.c",
                "CONSUMER.DELETE.S.c",
            )
            for body in (b"", b"x", b"null", b"{}", b"{ }", b" ", b"[]", {"a": 1}, {"seq": "a"})
        ),
    ],
    "decoding of consumers": [
        create(),
        *(
            Ask("CONSUMER.CREATE.S.q", body)
            for body in (
                b"",
                b"x",
                b"null",
                b"{}",
                b'{"config":null}',
                b'{"stream_name":"S","config":{"ack_policy":"bogus"}}',
                b'{"stream_name":"S","config":{"ack_policy":""}}',
                b'{"stream_name":"S","config":{"deliver_policy":""}}',
                b'{"stream_name":"S","config":{"opt_start_time":"x"}}',
                b'{"stream_name":"S","config":{"foo":"x"}}',
                b'{"stream_name":"S","config":{},"action":"x"}',
                b'{"stream_name":"S","config":{},"action":5}',
                b'{"stream_name":"S","config":{"priority_policy":"x"}}',
                b'{"stream_name":"S","config":{"ack_policy":5}}',
                b'{"stream_name":"S","config":{"ack_wait":"5s"}}',
                b'{"stream_name":"S","config":{"backoff":["5s"]}}',
                b'{"STREAM_NAME":"S","CONFIG":{"Ack_Policy":"explicit"}}',
                b'{"stream_name":"S","config":{"pause_until":"0001-01-01T00:00:00Z"}}',
            )
        ),
    ],
    "stream names": [
        create("A"),
        Ask("STREAM.CREATE.A", {"name": "B"}),
        Ask("STREAM.CREATE.A"),
        create("a/b"),
        create("a\\b"),
        create("A*"),
        create("A>"),
        create("Ab$%"),
        create("x" * 255),
        create("x" * 256),
        Ask("STREAM.CREATE.A", {"name": "A B"}),
        Ask("STREAM.NAMES"),
    ],
    "stream options": tried(
        {},
        {"description": "d" * 4096},
        {"description": "d" * 4097},
        {"metadata": {"a": "x" * (131072 - 1)}},
        {"metadata": {"a": "x" * 131072}},
        {"metadata": {"z": "1", "a": "<&>", "_nats.ver": "x", "_nats.req.level": "7"}},
        {"num_replicas": 6},
        {"num_replicas": -1},
        {"num_replicas": 3},
        {"max_msgs": -5, "max_bytes": -5, "max_consumers": -5, "max_msgs_per_subject": -5},
        {"max_msg_size": -5, "max_msgs": 0},
        *({field: -5, "pedantic": True} for field in ("max_msgs", "max_bytes", "max_msg_size")),
        *({field: -5, "pedantic": True} for field in ("max_consumers", "max_msgs_per_subject")),
        {"max_msgs": 0, "pedantic": True},
        {"max_age": 5},
        {"max_age": -5},
        {"max_age": SECOND},
        {"max_age": SECOND, "pedantic": True},
        {"max_age": SECOND, "duplicate_window": SECOND, "pedantic": True},
        {"duplicate_window": -5},
        {"duplicate_window": 5},
        {"duplicate_window": SECOND, "max_age": SECOND // 2},
        {"duplicate_window": 3600 * SECOND},
        {"sealed": True},
        {"mirror_direct": True},
        {"deny_purge": True, "allow_rollup_hdrs": True},
        {"deny_delete": True, "deny_purge": True},
        {"discard_new_per_subject": True},
        {"discard_new_per_subject": True, "discard": "new"},
        {"discard_new_per_subject": True, "discard": "new", "max_msgs_per_subject": 1},
        {"discard": "NEW"},
        {"placement": {"cluster": ""}},
        {"placement": {"cluster": "x", "tags": ["a"]}},
        {"placement": {"preferred": "x"}},
        {"first_seq": 1},
        {"first_seq": 100},
        {"retention": "workqueue", "storage": "memory"},
        {"retention": "interest", "no_ack": True, "allow_direct": True},
        {"consumer_limits": {"inactive_threshold": 5, "max_ack_pending": 7}},
        {"consumer_limits": {"inactive_threshold": -5, "max_ack_pending": -7}},
        {"consumer_limits": None, "subjects": None, "placement": None},
        {"persist_mode": "default"},
        {"persist_mode": ""},
    ),
    "order of checks": tried(
        {"description": "d" * 4097, "num_replicas": 6},
        {"num_replicas": 6, "max_age": 5},
        {"num_replicas": 3, "subjects": ["a..b"]},
        {"max_age": 5, "duplicate_window": -5},
        {"duplicate_window": 5, "deny_purge": True, "allow_rollup_hdrs": True},
        {"subjects": ["a..b"], "placement": {"preferred": "x"}},
        {"discard_new_per_subject": True, "subjects": ["a..b"]},
        {"deny_purge": True, "allow_rollup_hdrs": True, "discard_new_per_subject": True},
        {"sealed": True, "description": "d" * 4097},
    ),
    "refused options that are invalid anyway": tried(
        {"allow_msg_counter": True, "discard": "new"},
        {"allow_msg_counter": True, "allow_msg_ttl": True},
        {"allow_msg_counter": True, "allow_msg_schedules": True},
        {"allow_msg_counter": True, "retention": "workqueue"},
        {"subject_delete_marker_ttl": 5},
        {"subject_delete_marker_ttl": -5},
        {"subject_delete_marker_ttl": SECOND, "pedantic": True},
        {"subject_delete_marker_ttl": SECOND, "pedantic": True, "allow_msg_ttl": True},
        {"allow_msg_schedules": True, "discard": "new"},
        {"allow_msg_schedules": True, "pedantic": True},
        {"persist_mode": "async", "storage": "memory"},
        {"persist_mode": "async", "num_replicas": 3},
        {"persist_mode": "async", "allow_atomic": True},
        {"mirror": {"name": "X"}, "first_seq": 5},
        {"mirror": {"name": "X"}, "subjects": ["a"]},
        {"mirror": {"name": "X"}, "sources": [{"name": "Y"}]},
        {"mirror": {"name": "X"}, "allow_msg_counter": True},
        {"mirror": {"name": "X"}, "allow_atomic": True},
        {"mirror": {"name": "X"}, "allow_batched": True},
        {"mirror": {"name": "X"}, "allow_msg_schedules": True},
        {"mirror": {"name": "X."}},
        {
            "mirror": {
                "name": "X",
                "filter_subject": "a",
                "subject_transforms": [{"src": "a", "dest": "b"}],
            }
        },
        {"mirror": {"name": "X"}, "subject_delete_marker_ttl": SECOND},
        {"sources": [{"name": "X"}], "allow_msg_schedules": True},
        {"sources": [{"name": "X."}]},
    ),
    "subjects": tried(
        *(
            {"subjects": list(given)}
            for given in (
                ("a.>", "a.b"),
                ("a.b", "a.>"),
                ("a.b", "a.b"),
                ("a.*", "*.b"),
                ("x", "a.b", "y", "a.*"),
                ("a..b",),
                ("",),
                (),
                (">",),
                ("*",),
                ("*.>",),
                ("a b",),
                (".a",),
                (">.a",),
                ("$JS.API.x",),
                ("$JS.>",),
                ("$JS.EVENT.QUIET.>",),
                ("$JSC.x",),
                ("$NRG.x",),
                ("$SYS.>",),
                ("$SYS.ACCOUNT.x",),
                ("$SYS.x",),
                ("$KV.a.>", "$O.b.>"),
                ("*.JS",),
            )
        ),
        {"subjects": ["$JS.API.x", ">"]},
        {"subjects": ["$JS.API.x", "a..b"]},
        {"subjects": ["a", "b", "a", "c..d"]},
        {"subjects": ["a", "$JS.API.x"], "no_ack": True},
    ),
    "overlap between streams": [
        create("A", subjects=["a.*", "b"]),
        create("B", subjects=["a.b"]),
        create("B", subjects=["*.b"]),
        create("B", subjects=["a.b.c", "c"]),
        update("B", subjects=[">"], no_ack=True),
        update("B", subjects=["a.>"]),
        update("B", subjects=["c", "d"]),
        create("C", subjects=["d"]),
        update("B", subjects=["c"]),
        create("C", subjects=["d"]),
        delete("A"),
        create("D", subjects=["a.b"]),
        Ask("STREAM.NAMES", {"subject": "a.b"}),
        Ask("STREAM.NAMES", {"subject": "*"}),
        Ask("STREAM.LIST", {"subject": "a.>"}),
        Ask("STREAM.NAMES", {"subject": "B"}),
        Ask("STREAM.NAMES", {"subject": "a..b"}),
    ],
    "creating again": [
        create("A"),
        create("A"),
        create("A", subjects=["A"]),
        create("A", max_msgs=-1, num_replicas=1, duplicate_window=120 * SECOND),
        create("A", metadata={"_nats.ver": "2.0"}),
        create("A", metadata={"a": "b"}),
        create("A", metadata={"_nats.x": "b"}),
        create("A", description="x"),
        create("A", num_replicas=3),
        Pub("A"),
        create("A"),
    ],
    "updates": updated(
        ({}, {}),
        ({}, {"storage": "memory"}),
        ({}, {"retention": "workqueue"}),
        ({"retention": "workqueue"}, {"retention": "interest"}),
        ({}, {"retention": "interest"}),
        ({}, {"sealed": True, "max_age": SECOND, "allow_rollup_hdrs": True}),
        ({"deny_delete": True}, {}),
        ({"deny_purge": True}, {}),
        ({}, {"num_replicas": 3}),
        ({}, {"num_replicas": 7}),
        ({"description": "x", "max_msgs": 7}, {"subjects": ["a", "b"]}),
        ({}, {"mirror_direct": True}),
        ({"first_seq": 5}, {"first_seq": 7}),
        ({}, {"persist_mode": "async"}),
        ({}, {"allow_msg_counter": True}),
        ({}, {"mirror": {"name": "X"}}),
        ({}, {"metadata": {"a": "b"}}),
        ({}, {"max_age": 5}),
        ({}, {"max_msgs": -5, "pedantic": True}),
    ),
    "a transform of nothing": [
        create("A", subject_transform={"src": "", "dest": ""}),
        Ask("STREAM.INFO.A"),
        create("B"),
        update("B", subject_transform={"src": "", "dest": ""}),
        update("B", subject_transform={"src": "", "dest": ""}, description="x"),
        Ask("STREAM.INFO.B"),
        update("B"),
        Ask("STREAM.INFO.B"),
    ],
    "first sequences": [
        *(create(name, subjects=[name]) for name in "ABC"),
        create("D", storage="memory"),
        create("E", first_seq=1),
        *(Ask(f"STREAM.PURGE.{name}") for name in "AD"),
        Ask("STREAM.PURGE.B", {"filter": "B"}),
        Ask("STREAM.PURGE.C", {"seq": 1}),
        *(Ask(f"STREAM.INFO.{name}") for name in "ABCDE"),
        Pub("A"),
        Ask("STREAM.INFO.A"),
    ],
    "updates of nothing": [
        update("S"),
        Ask("STREAM.UPDATE.S"),
        Ask("STREAM.UPDATE.S", {"name": "T"}),
        Ask("STREAM.UPDATE.S", {"name": "T", "max_age": 5}),
    ],
    "unsealing": [
        create(),
        Pub("S"),
        update(sealed=True),
        Pub("S"),
        update(sealed=False),
        Ask("STREAM.PURGE.S"),
        Ask("STREAM.MSG.DELETE.S", {"seq": 1}),
        Ask("STREAM.MSG.GET.S", {"seq": 1}),
        consumer(),
        Ask("CONSUMER.DELETE.S.c"),
        delete(),
    ],
    "trimming by update": [*FILLED, update(subjects=["s.>"], max_msgs=3), Ask("STREAM.INFO.S")],
    "missing stream": [
        Ask(f"{name}.X{rest}", body)
        for name, rest, body in (
            ("STREAM.INFO", "", b""),
            ("STREAM.DELETE", "", b""),
            ("STREAM.PURGE", "", b""),
            ("STREAM.MSG.GET", "", {"seq": 1}),
            ("STREAM.MSG.DELETE", "", {"seq": 1}),
            ("CONSUMER.CREATE", "", {"stream_name": "X"}),
            ("CONSUMER.CREATE", ".c", {"stream_name": "X"}),
            ("CONSUMER.INFO", ".c", b""),
            ("CONSUMER.DELETE", ".c", b""),
            ("CONSUMER.NAMES", "", b""),
            ("CONSUMER.LIST", "", b""),
            ("CONSUMER.PAUSE", ".c", b""),
            ("STREAM.LEADER.STEPDOWN", "", b""),
            ("STREAM.PEER.REMOVE", "", {"peer": "x"}),
            ("CONSUMER.LEADER.STEPDOWN", ".c", b""),
        )
    ],
    "messages of no stream": READS,
    "a purge of all subjects of an empty stream": [
        create(),
        Ask("STREAM.PURGE.S", {"filter": "S"}),
        Ask("STREAM.INFO.S"),
        Ask("STREAM.PURGE.S", {"filter": ">"}),
        Ask("STREAM.INFO.S"),
    ],
    "ages too small, pedantically": [
        create(max_age=age, pedantic=True) for age in (1, SECOND // 10 - 1, SECOND // 10)
    ],
    "limits of consumers below zero": [
        step
        for limit in (-1, -7)
        for limits in ({"max_ack_pending": limit}, {"inactive_threshold": limit})
        for given in LIMITS_GIVEN
        for name in ("name", "durable_name")
        for step in (
            create(consumer_limits=limits),
            consumer(**{name: "c"}, **EXPLICIT, **given),
            Ask("CONSUMER.INFO.S.c"),
            delete(),
        )
    ],
    "halves of surrogate pairs": [
        Ask("STREAM.CREATE.S", b'{"name":"S","description":"%s"}' % text)
        for text in (rb"\ud83d", rb"\uDE00x", rb"\ud83d\ude00", rb"\\ud83d", rb"\ud83d\ud83d\ude00")
    ],
    "messages in a file": [*FILLED, *READS, *DELETES],
    "messages in memory": [*FILLED_MEMORY, *READS, *DELETES],
    "deletes that are denied": [
        create(deny_delete=True, deny_purge=True),
        Pub("S"),
        Ask("STREAM.MSG.DELETE.S", {"seq": 1}),
        Ask("STREAM.MSG.DELETE.S", {"seq": 5}),
        Ask("STREAM.PURGE.S"),
        Ask("STREAM.PURGE.S", {"seq": 1, "keep": 1}),
        Ask("STREAM.PURGE.X", {"seq": 1, "keep": 1}),
    ],
    "subject details": [
        *FILLED,
        *(
            Ask("STREAM.INFO.S", body)
            for body in (
                {"subjects_filter": ">"},
                {"subjects_filter": "s.*"},
                {"subjects_filter": "s.1"},
                {"subjects_filter": "zz"},
                {"subjects_filter": ">", "offset": 2},
                {"subjects_filter": ">", "offset": 20},
                {"subjects_filter": ">", "offset": -2},
                {"offset": 3},
            )
        ),
    ],
    **{
        f"purge {n}": [*FILLED, Ask("STREAM.PURGE.S", body), Ask("STREAM.INFO.S")]
        for n, body in enumerate(
            (
                b"",
                b"hello",
                {"filter": "s.1"},
                {"filter": "s.*", "keep": 2},
                {"filter": "s.1", "seq": 5},
                {"filter": "zz"},
                {"filter": "a..b"},
                {"keep": 4},
                {"keep": 100},
                {"seq": 5},
                {"seq": 1},
                {"seq": 5, "keep": 1},
                {"seq": 5, "keep": 1, "filter": "s.1"},
            )
        )
    },
    "purge beyond the end": [
        create(),
        Pub("S"),
        Ask("STREAM.PURGE.S", {"seq": 100}),
        Ask("STREAM.INFO.S"),
    ],
    "level header": [
        Ask("INFO", headers=LEVEL % b"4"),
        Ask("INFO", headers=LEVEL % b"5"),
        Ask("INFO", headers=LEVEL % b"x"),
        Ask("STREAM.CREATE.S", {"name": "S"}, LEVEL % b"5"),
        Ask("STREAM.NAMES", b"", LEVEL % b"-1"),
        Ask("STREAM.LIST", b"", LEVEL % b"5"),
        Ask("CONSUMER.NAMES.S", b"", LEVEL % b"5"),
        Ask("CONSUMER.PAUSE.S.c", b"", LEVEL % b"5"),
        Ask("STREAM.PURGE.S", b"", LEVEL % b"5"),
        Ask("STREAM.INFO.S", b"", LEVEL % b""),
    ],
    "reservations": [
        create("A", max_bytes=1000),
        create("B", max_bytes=500, storage="memory"),
        update("A", max_bytes=2000),
        Ask("INFO"),
        delete("A"),
        Ask("INFO"),
    ],
    "consumer subjects": [
        create(),
        raw_consumer("CREATE.S", stream_name="S", config={"durable_name": "d"}),
        raw_consumer("CREATE.S", stream_name="S", config={"name": "n", **LASTING}),
        raw_consumer("CREATE.S", stream_name="S", config={"name": "a/b"}),
        raw_consumer("CREATE.S", stream_name="T", config={}),
        raw_consumer("CREATE.S.n2", stream_name="S", config={"name": "other", **LASTING}),
        raw_consumer("CREATE.S.n3", stream_name="S", config={"durable_name": "other"}),
        raw_consumer("CREATE.S.a/b", stream_name="S", config={}),
        raw_consumer("CREATE.S.a\\b", stream_name="S", config={}),
        raw_consumer(
            "CREATE.S.n4.a.b", stream_name="S", config={"filter_subject": "a.b", **LASTING}
        ),
        raw_consumer("CREATE.S.n5.a.b", stream_name="S", config={"filter_subject": "a.c"}),
        raw_consumer("CREATE.S.n5.a.b", stream_name="S", config={}),
        raw_consumer("CREATE.S.n5.a.b", stream_name="S", config={"filter_subjects": ["a.b"]}),
        raw_consumer("DURABLE.CREATE.S.d", stream_name="S", config={"durable_name": "d"}),
        raw_consumer("DURABLE.CREATE.S.d", stream_name="S", config={"durable_name": "e"}),
        raw_consumer("DURABLE.CREATE.S.e", stream_name="S", config={}),
        raw_consumer("DURABLE.CREATE.S.e", stream_name="T", config={"durable_name": "e"}),
        raw_consumer(
            "DURABLE.CREATE.S.e", stream_name="S", config={"durable_name": "e", "name": "f"}
        ),
        consumer("c", **LASTING),
        consumer("n6*"),
        consumer("x" * 255, **LASTING),
        consumer("x" * 256),
        consumer("x" * 256, durable_name="x" * 256),
        Ask("CONSUMER.NAMES.S"),
        Ask("CONSUMER.LIST.S"),
        Ask("STREAM.INFO.S"),
    ],
    "pull consumers": consumers_tried(
        {},
        EXPLICIT,
        {"ack_policy": "all", "max_deliver": 5, "backoff": [SECOND, 2 * SECOND]},
        {**EXPLICIT, "max_deliver": 0},
        {**EXPLICIT, "max_deliver": -5},
        {**EXPLICIT, "ack_wait": -5},
        {**EXPLICIT, "backoff": [-5]},
        {**EXPLICIT, "max_deliver": 1, "backoff": [SECOND, SECOND]},
        {**EXPLICIT, "max_deliver": 2, "backoff": [SECOND, SECOND]},
        {**EXPLICIT, "backoff": [SECOND], "ack_wait": 5 * SECOND},
        {"ack_wait": 5},
        {"max_waiting": -5, "max_batch": -5, "max_expires": -5, "max_bytes": -5},
        {"idle_heartbeat": -5, "inactive_threshold": -5, "max_ack_pending": -5},
        {"max_ack_pending": 5},
        {"num_replicas": 3},
        {"num_replicas": 2},
        {"num_replicas": -1},
        {"num_replicas": 1, "mem_storage": True},
        {"description": "d" * 4096},
        {"description": "d" * 4097},
        {"rate_limit_bps": 5},
        {"idle_heartbeat": SECOND},
        {"flow_control": True},
        {"max_expires": 5},
        {"max_expires": 2_000_000, "max_batch": 7, "max_bytes": 9},
        {"deliver_group": "g"},
        {"inactive_threshold": 60 * SECOND},
        {"durable_name": "c", "inactive_threshold": 60 * SECOND},
        {"durable_name": "c"},
        {"metadata": {"a": "x" * 131072}},
        {"metadata": {"a": "b", "_nats.ver": "x"}},
        {"sample_freq": "30%"},
        {"sample_freq": "300"},
        {"sample_freq": "abc"},
        {"sample_freq": "-1"},
        {"sample_freq": "%"},
        {"headers_only": True, "replay_policy": "original"},
        {"direct": True},
        {"pause_until": "2101-01-01T00:00:00Z"},
        {"pause_until": "2001-01-01T00:00:00.500+01:00"},
        {"pause_until": "0001-01-01T00:00:00Z"},
    ),
    "push consumers": consumers_tried(
        PUSH,
        {**PUSH, **EXPLICIT},
        {"deliver_subject": "a.*"},
        {"deliver_subject": "a b"},
        {"deliver_subject": "a..b"},
        {"deliver_subject": "s.x"},
        {"deliver_subject": "s"},
        {**PUSH, "max_waiting": 5},
        {**PUSH, "max_ack_pending": 5},
        {**PUSH, "idle_heartbeat": 5},
        {**PUSH, "idle_heartbeat": SECOND, "flow_control": True},
        {**PUSH, "flow_control": True},
        {**PUSH, "rate_limit_bps": 1000, "deliver_group": "g", "max_batch": 5},
        {**PUSH, "direct": True, "durable_name": "c"},
        {**PUSH, "priority_groups": ["a"], "priority_policy": "overflow"},
    ),
    "priority groups": consumers_tried(
        *(
            {"priority_policy": policy, "priority_groups": groups, **more}
            for policy in ("", "none", "overflow", "pinned_client", "prioritized")
            for groups in ([], ["a"], ["a", "b"], ["a", ""], ["x" * 16], ["x" * 17], ["a b"], ["é"])
            for more in ({}, EXPLICIT)
        ),
        *(
            {"priority_policy": policy, "priority_groups": ["A/_=-9"], "priority_timeout": timeout}
            for policy in ("", "overflow", "pinned_client", "prioritized")
            for timeout in (-5, 0, 5, SECOND)
        ),
        {"priority_timeout": SECOND},
        {"priority_groups": ["a"], "priority_timeout": SECOND},
        {**PUSH, "priority_groups": ["a"]},
        {**PUSH, "priority_policy": "pinned_client"},
        {"priority_policy": "pinned_client", "priority_groups": ["a", "a"], "ack_policy": "all"},
    ),
    "updates of republishing and of counters": [
        create(),
        *(
            update(republish=to)
            for to in (
                *({"src": "other", "dest": ""}, {"src": "s.*"}, {"src": "s.*", "dest": "x"}),
                *({"src": "s.*", "dest": "x.$1"}, None),
            )
        ),
        create("C", allow_msg_counter=True, subjects=["c"]),
        *(
            update("C", allow_msg_counter=True, subjects=["c"], **more)
            for more in (
                {"subject_delete_marker_ttl": SECOND},
                {"subject_delete_marker_ttl": SECOND, "allow_msg_ttl": True},
                {"allow_rollup_hdrs": True},
            )
        ),
    ],
    "unpinning": [
        create(),
        consumer("p", priority_policy="pinned_client", priority_groups=["A", "B"], **LASTING),
        consumer("o", priority_policy="overflow", priority_groups=["A"], **LASTING),
        consumer("n", **LASTING),
        *(
            Ask(f"CONSUMER.UNPIN.{target}", body)
            for target in ("S.p", "S.o", "S.n", "S.x", "X.p")
            for body in (
                *(b"", b"{", b"{}", b"null", b"[]", b"5", {"group": 5}, {"group": ""}),
                *({"group": name} for name in ("A", "B", "C", "a b", "x" * 16, "x" * 17)),
                {"group": "A", "unknown": True},
                {"GROUP": "A"},
            )
        ),
        Ask("CONSUMER.UNPIN.S"),
        Ask("CONSUMER.UNPIN.S.p.x", {"group": "A"}),
        Ask("CONSUMER.UNPIN.S.p", {"group": "A"}, LEVEL % b"5"),
        Ask("CONSUMER.INFO.S.p"),
        Ask("CONSUMER.LIST.S"),
    ],
    "acks by flow control": [
        step
        for stream in ({"subjects": ["s.>"]}, {"subjects": ["s.>"], "retention": "workqueue"})
        for step in (
            *consumers_tried(
                FLOW,
                {"ack_policy": "flow_control"},
                {**FLOW, "durable_name": "c"},
                *(
                    {**FLOW, **more}
                    for more in (
                        {"flow_control": True, "idle_heartbeat": 2 * SECOND},
                        {"max_ack_pending": 0},
                        {"max_ack_pending": -1},
                        {"max_ack_pending": 7},
                        {"ack_wait": SECOND},
                        {"ack_wait": -5},
                        {"backoff": [SECOND]},
                        {"backoff": [0]},
                        {"max_deliver": 5},
                        {"max_deliver": -1},
                        {"max_deliver": 1, "backoff": [SECOND]},
                        {"deliver_policy": "new"},
                        {"deliver_group": "g", "rate_limit_bps": 8000, "headers_only": True},
                    )
                ),
                stream=stream,
            ),
            delete(),
        )
    ],
    "acks by flow control, pedantically": [
        create(subjects=["s.>"]),
        *(
            step
            for more in (
                {},
                {"flow_control": True},
                {"idle_heartbeat": SECOND},
                {"flow_control": True, "idle_heartbeat": SECOND},
                {"flow_control": True, "idle_heartbeat": 5 * SECOND},
                {"flow_control": True, "idle_heartbeat": SECOND, "max_ack_pending": 5},
                {"flow_control": True, "idle_heartbeat": SECOND, "ack_wait": 5},
            )
            for step in (
                raw_consumer("CREATE.S.c", stream_name="S", pedantic=True, config={**FLOW, **more}),
                Ask("CONSUMER.DELETE.S.c"),
            )
        ),
    ],
    "updates of consumers with acks by flow control": consumers_updated(
        *(
            ({"durable_name": "c", **FLOW, **old}, {"durable_name": "c", **FLOW, **new})
            for values in (
                {"ack_policy": "explicit", "idle_heartbeat": SECOND, "flow_control": True},
                {"ack_policy": "all", "idle_heartbeat": SECOND, "flow_control": True},
                {"max_ack_pending": 7},
                {"deliver_subject": "elsewhere"},
                {"ack_wait": SECOND},
                {"headers_only": True},
            )
            for old, new in (({}, values), (values, {}))
        ),
    ),
    "resets": [
        *FILLED,
        *(
            step
            for name, config in RESET.items()
            for step in (
                consumer(name, durable_name=name, **{**EXPLICIT, **config}),
                *(
                    Ask(f"CONSUMER.RESET.S.{name}", body)
                    for body in (
                        *(b"", b"{}", b"null", b"x", b"[]", {"seq": -1}, {"seq": "5"}),
                        *({"seq": seq} for seq in (0, 1, 3, 4, 5, 11, 12, 13, 1000)),
                        {"seq": 2, "unknown": 1},
                    )
                ),
                Ask(f"CONSUMER.INFO.S.{name}"),
            )
        ),
        Ask("CONSUMER.RESET.S"),
        Ask("CONSUMER.RESET.S.all.x"),
        Ask("CONSUMER.RESET.S.all", b"", LEVEL % b"5"),
        Ask("CONSUMER.LIST.S"),
    ],
    "filters": consumers_tried(
        {"filter_subject": "zzz"},
        {"filter_subject": ">"},
        {"filter_subject": "a..b"},
        {"filter_subjects": ["s.1"]},
        {"filter_subjects": []},
        {"filter_subjects": ["s.1", "s.2"]},
        {"filter_subjects": ["s.1", ""]},
        {"filter_subjects": [""]},
        {"filter_subjects": ["s.1", "s.*"]},
        {"filter_subjects": ["s.1", "s.1"]},
        {"filter_subjects": ["s.*.b", "s.a.*"]},
        {"filter_subjects": ["s.1", "a b"]},
        {"filter_subject": "s.1", "filter_subjects": ["s.2"]},
    ),
    "start options": [
        *FILLED,
        *(
            step
            for policy in ("all", "last", "new", "by_start_sequence", "by_start_time")
            for extra in STARTS
            for step in (
                consumer(deliver_policy=policy, **extra),
                Ask("CONSUMER.DELETE.S.c"),
            )
        ),
        consumer(deliver_policy="last_per_subject"),
        consumer("d", deliver_policy="last_per_subject", filter_subject="s.>"),
        consumer("e", deliver_policy="last_per_subject", filter_subject="s.>", opt_start_seq=1),
        consumer("f", deliver_policy="by_start_sequence", opt_start_seq=100),
        consumer("g", deliver_policy="by_start_time", opt_start_time="2101-01-01T00:00:00Z"),
    ],
    "pedantic consumers": [
        create(consumer_limits={"max_ack_pending": 10, "inactive_threshold": 60 * SECOND}),
        *(
            raw_consumer("CREATE.S.c", stream_name="S", pedantic=True, config=config)
            for config in (
                {"max_deliver": -5},
                {"max_waiting": -5},
                {"max_ack_pending": -5},
                {"max_ack_pending": 1, "max_batch": -5},
                {"max_ack_pending": 1, "max_expires": -5},
                {"max_ack_pending": 1, "max_bytes": -5},
                {"max_ack_pending": 1, "idle_heartbeat": -5},
                {"max_ack_pending": 1, "inactive_threshold": -5},
                {"max_ack_pending": 1, "inactive_threshold": 1, "priority_timeout": -5},
                {"ack_wait": 5, "backoff": [6]},
                {"inactive_threshold": 5},
                {"max_ack_pending": 5},
                {"max_ack_pending": 5, "inactive_threshold": 5},
            )
        ),
    ],
    "limits of a stream for its consumers": consumers_tried(
        EXPLICIT,
        {},
        PUSH,
        {**EXPLICIT, "max_ack_pending": 11},
        {**EXPLICIT, "max_ack_pending": -1},
        {**EXPLICIT, "inactive_threshold": 120 * SECOND},
        {**EXPLICIT, "durable_name": "c"},
        stream={"consumer_limits": {"max_ack_pending": 10, "inactive_threshold": 60 * SECOND}},
    ),
    "violated limits": [
        create(),
        consumer("x", durable_name="x", **EXPLICIT),
        consumer("a", durable_name="a", inactive_threshold=100 * SECOND, **EXPLICIT),
        update(consumer_limits={"inactive_threshold": 60 * SECOND}),
        Ask("CONSUMER.DELETE.S.a"),
        update(consumer_limits={"max_ack_pending": 5}),
        consumer("a", durable_name="a", inactive_threshold=100 * SECOND, **EXPLICIT),
        update(consumer_limits={"inactive_threshold": 100 * SECOND}),
        update(max_consumers=1),
        consumer("y"),
        update(max_consumers=3),
        consumer("y"),
        consumer("z"),
    ],
    "actions": [
        create(),
        consumer(action="update"),
        consumer(action="create", **EXPLICIT),
        consumer(action="create", **EXPLICIT),
        consumer(action="update", **EXPLICIT),
        consumer(action="create", **EXPLICIT, description="x"),
        consumer(action="update", **EXPLICIT, description="x"),
        consumer(**EXPLICIT),
        consumer("d", action="create", durable_name="d", **EXPLICIT),
        consumer("d", action="create", durable_name="d", **EXPLICIT),
        consumer("d", action="create", durable_name="d", max_deliver=7, **EXPLICIT),
        consumer("e", action="create", inactive_threshold=60 * SECOND),
        consumer("e", action="create", inactive_threshold=60 * SECOND),
        consumer("e", action="create", inactive_threshold=60 * SECOND, metadata={"_nats.x": "1"}),
        consumer("e", action="create", inactive_threshold=60 * SECOND, metadata={"x": "1"}),
    ],
    "consumer updates": consumers_updated(
        *(
            ({"durable_name": "c", **old}, {"durable_name": "c", **new})
            for old, new in (
                ({}, {"deliver_policy": "new"}),
                ({}, {"mem_storage": True}),
                (
                    {"deliver_policy": "by_start_sequence", "opt_start_seq": 5},
                    {"deliver_policy": "by_start_sequence", "opt_start_seq": 6},
                ),
                (
                    {
                        "deliver_policy": "by_start_time",
                        "opt_start_time": "2021-01-01T00:00:00Z",
                    },
                    {
                        "deliver_policy": "by_start_time",
                        "opt_start_time": "2021-01-01T02:00:00+02:00",
                    },
                ),
                (
                    {
                        "deliver_policy": "by_start_time",
                        "opt_start_time": "2021-01-01T00:00:00Z",
                    },
                    {
                        "deliver_policy": "by_start_time",
                        "opt_start_time": "2021-01-01T02:00:00Z",
                    },
                ),
                ({}, EXPLICIT),
                ({}, {"replay_policy": "original"}),
                (PUSH, {**PUSH, "idle_heartbeat": SECOND}),
                (
                    {**PUSH, "idle_heartbeat": SECOND},
                    {**PUSH, "idle_heartbeat": SECOND, "flow_control": True},
                ),
                ({}, PUSH),
                (PUSH, {}),
                (PUSH, {"deliver_subject": "push2"}),
                (PUSH, {**PUSH, "deliver_group": "g"}),
                ({}, {"max_waiting": 5}),
                ({"description": "x"}, {}),
                ({}, {"filter_subject": "s.1", "metadata": {"a": "b"}}),
                (EXPLICIT, {**EXPLICIT, "ack_wait": SECOND, "max_deliver": 3}),
                (EXPLICIT, {**EXPLICIT, "backoff": [SECOND, SECOND], "max_deliver": 1}),
                (EXPLICIT, {**EXPLICIT, "max_ack_pending": 3, "sample_freq": "5"}),
                ({}, {"headers_only": True, "max_batch": 3, "max_expires": SECOND}),
                ({}, {"inactive_threshold": 60 * SECOND, "num_replicas": 1}),
                ({"pause_until": "2101-01-01T00:00:00Z"}, {"description": "x"}),
                ({}, {"pause_until": "2101-01-01T00:00:00Z"}),
            )
        ),
        ({}, {"description": "x"}),
        ({"durable_name": "c"}, {}),
        ({}, {"durable_name": "c"}),
        ({"inactive_threshold": 60 * SECOND}, {"inactive_threshold": 50 * SECOND}),
    ),
    "updates of each field of pull consumers": consumers_updated(
        *(
            ({"durable_name": "c", **EXPLICIT, **old}, {"durable_name": "c", **EXPLICIT, **new})
            for values in CHANGES
            for old, new in (({}, values), (values, {}))
        ),
    ),
    "updates of each field of push consumers": consumers_updated(
        *(
            (
                {"durable_name": "c", **EXPLICIT, **PUSH, **old},
                {"durable_name": "c", **EXPLICIT, **PUSH, **new},
            )
            for values in CHANGES
            for old, new in (({}, values), (values, {}))
        ),
    ),
    "updates of each field of ephemeral consumers": consumers_updated(
        *(({}, values) for values in CHANGES)
    ),
    "updates of each field, pedantically": [
        create(subjects=["s.>"]),
        *(
            step
            for values in CHANGES
            for step in (
                consumer(durable_name="c", **EXPLICIT),
                raw_consumer(
                    "CREATE.S.c",
                    stream_name="S",
                    pedantic=True,
                    config={"durable_name": "c", **EXPLICIT, **values},
                ),
                Ask("CONSUMER.INFO.S.c"),
                Ask("CONSUMER.DELETE.S.c"),
            )
        ),
    ],
    "updates between priority policies": consumers_updated(
        *(
            (
                {"durable_name": "c", "priority_policy": old, "priority_groups": groups},
                {"durable_name": "c", "priority_policy": new, "priority_groups": ["a"]},
            )
            for old in ("overflow", "pinned_client", "prioritized")
            for new in ("none", "overflow", "pinned_client", "prioritized")
            for groups in (["a"], ["b"], ["a", "b"])
        ),
    ),
    "priority timeouts below zero": [
        *consumers_tried({"priority_timeout": -1}),
        raw_consumer("CREATE.S.c", stream_name="S", pedantic=True, config={"priority_timeout": -1}),
        *consumers_updated(
            ({"durable_name": "c", "priority_timeout": -1}, {"durable_name": "c"}),
            ({"durable_name": "c"}, {"durable_name": "c", "priority_timeout": -1}),
            (
                {"durable_name": "c", "priority_timeout": -1},
                {"durable_name": "c", "priority_timeout": -2, "description": "d"},
            ),
            (
                {"durable_name": "c", "pause_until": "2101-01-01T00:00:00Z"},
                {"durable_name": "c", "priority_timeout": -1},
            ),
            (
                {"durable_name": "c"},
                {"durable_name": "c", "pause_until": "2101-01-01T00:00:00Z"},
            ),
        )[1:],
        consumer("c", priority_timeout=-1, **LASTING),
        *(
            Ask("CONSUMER.PAUSE.S.c", {"pause_until": time})
            for time in ("2101-01-01T00:00:00Z", "0001-01-01T00:00:00Z")
        ),
        Ask("CONSUMER.INFO.S.c"),
    ],
    "workqueue": [
        create(retention="workqueue", subjects=["s.>"]),
        consumer("n"),
        consumer("a", ack_policy="all"),
        consumer("p", deliver_subject="push"),
        consumer("x", deliver_policy="new", **KEPT),
        consumer("f1", filter_subject="s.1", **KEPT),
        consumer("f1b", filter_subject="s.1", **KEPT),
        consumer("f2", filter_subjects=["s.2", "s.*.3"], **KEPT),
        consumer("f3", filter_subject="s.3.3", **KEPT),
        consumer("all", **KEPT),
        consumer("f1", filter_subject="s.2", **KEPT),
        consumer("f1", filter_subject="s.4", **KEPT),
        consumer("f4", filter_subject="s.1", **KEPT),
        Ask("CONSUMER.DELETE.S.f4"),
        consumer("f5", filter_subject="s.1", **KEPT),
        consumer("r", num_replicas=1, filter_subject="s.9", **KEPT),
        Ask("CONSUMER.NAMES.S"),
    ],
    "workqueue of one": [
        create(retention="workqueue"),
        consumer("a", **EXPLICIT),
        consumer("b", **EXPLICIT),
        consumer("c", filter_subject="S", **EXPLICIT),
        consumer("a", description="d", **EXPLICIT),
    ],
    "pause": [
        create(),
        consumer(durable_name="c"),
        *(
            step
            for body in (
                {"pause_until": "2001-01-01T00:00:00Z"},
                b"",
                b"{}",
                b"x",
                {"pause_until": None},
                {"pause_until": "0001-01-01T00:00:00Z"},
            )
            for step in (Ask("CONSUMER.PAUSE.S.c", body), Ask("CONSUMER.INFO.S.c"))
        ),
        *(
            step
            for date in (
                "0001-01-02T00:00:00Z",
                "0000-01-01T00:00:00Z",
                "1600-01-01T00:00:00+02:00",
                "2262-04-11T23:47:17Z",
                "2300-01-01T00:00:00+02:00",
                "9999-12-31T23:59:59Z",
                "10000-01-01T00:00:00Z",
                "2020-01-01T00:00:00,5Z",
                "2020-02-30T00:00:00Z",
            )
            for step in (
                Ask("CONSUMER.PAUSE.S.c", {"pause_until": date}),
                Ask("CONSUMER.INFO.S.c"),
                consumer("d", pause_until=date),
                Ask("CONSUMER.DELETE.S.d"),
            )
        ),
        Ask("CONSUMER.PAUSE.S.zz"),
        Ask("CONSUMER.PAUSE.S.zz", {"pause_until": "x"}),
    ],
    "lists": [
        *(create(f"S{n}", subjects=[f"l.{n}"]) for n in range(5)),
        create("s_lower"),
        create("Z"),
        *(consumer(f"c{n}", "S0", durable_name=f"c{n}") for n in range(4)),
        *(
            Ask(subject, {"offset": offset})
            for subject in ("STREAM.NAMES", "STREAM.LIST", "CONSUMER.NAMES.S0", "CONSUMER.LIST.S0")
            for offset in (0, 2, 4, 100)
        ),
        Ask("STREAM.NAMES", {"subject": "l.*", "offset": 3}),
        Ask("STREAM.LIST", {"subject": "l.1"}),
    ],
    "tools": [
        create(  # nats bench js pub --create
            "benchstream",
            subjects=["js.bench"],
            retention="limits",
            max_consumers=-1,
            max_msgs=-1,
            max_bytes=1_073_741_824,
            max_age=0,
            max_msgs_per_subject=-1,
            max_msg_size=-1,
            discard="new",
            storage="file",
            num_replicas=1,
            duplicate_window=120 * SECOND,
            allow_direct=True,
            mirror_direct=False,
            consumer_limits={},
            sealed=False,
        ),
        create(  # a key-value bucket
            "KV_b",
            subjects=["$KV.b.>"],
            retention="limits",
            max_consumers=-1,
            max_msgs=-1,
            max_bytes=-1,
            discard="new",
            max_age=0,
            max_msgs_per_subject=5,
            max_msg_size=-1,
            storage="file",
            num_replicas=1,
            duplicate_window=120 * SECOND,
            placement={"cluster": ""},
            deny_delete=True,
            allow_rollup_hdrs=True,
            allow_direct=True,
            metadata=None,
        ),
        create(  # an object store
            "OBJ_b",
            subjects=["$O.b.C.>", "$O.b.M.>"],
            retention="limits",
            max_consumers=0,
            max_msgs=0,
            max_bytes=-1,
            discard="new",
            max_age=0,
            storage="memory",
            num_replicas=1,
            placement={"cluster": ""},
            allow_rollup_hdrs=True,
            allow_direct=True,
        ),
        update("OBJ_b", subjects=["$O.b.C.>", "$O.b.M.>"], storage="memory", sealed=True),
        consumer(  # nats consumer add
            "pull",
            "benchstream",
            name="pull",
            durable_name="pull",
            deliver_policy="all",
            ack_policy="explicit",
            ack_wait=0,
            replay_policy="instant",
            max_waiting=0,
            num_replicas=0,
            pause_until="0001-01-01T00:00:00Z",
            priority_timeout=0,
        ),
        consumer(  # a watcher
            "w",
            "KV_b",
            deliver_policy="last_per_subject",
            ack_policy="none",
            max_deliver=1,
            ack_wait=79200 * SECOND,
            filter_subject="$KV.b.>",
            replay_policy="instant",
            flow_control=True,
            idle_heartbeat=5 * SECOND,
            deliver_subject="_INBOX.x",
            num_replicas=1,
            mem_storage=True,
        ),
    ],
}

ACCOUNT_LIMITS: dict[str, Any] = {
    "max_memory": 500,
    "max_storage": 5000,
    "max_streams": 2,
    "max_consumers": 2,
    "max_ack_pending": 50,
    "storage_max_stream_bytes": 4000,
    "max_bytes_required": True,
}
LIMITED: list[Step] = [
    Ask("INFO"),
    create("A"),
    create("A", max_bytes=4500),
    create("A", max_bytes=6000),
    create("A", max_bytes=3000, max_consumers=10),
    create("A", max_bytes=3000, max_consumers=10, max_age=5),
    create("A", max_bytes=3000),
    create("B", max_bytes=3000),
    create("B", max_bytes=3000, max_age=5),
    create("B", max_bytes=2001),
    update("A", max_bytes=3500),
    update("A", max_bytes=7000),
    update("A", max_bytes=3500, max_consumers=10),
    update("A", max_bytes=3500, max_consumers=10, max_age=5),
    update("A", max_bytes=3500, max_consumers=10, storage="memory"),
    update("A", max_bytes=3500, max_consumers=10, subjects=["B"]),
    update("A", max_bytes=4001, max_consumers=10),
    create("M", max_bytes=600, storage="memory"),
    create("M", max_bytes=500, storage="memory"),
    create("C", max_bytes=10),
    create("C", max_bytes=10, max_age=5),
    create("C", max_bytes=10, subjects=["A"]),
    create("A", max_bytes=3500),
    create("A", max_bytes=10),
    create("A", max_bytes=3500, max_consumers=10),
    *(consumer(f"c{n}", "A", **EXPLICIT) for n in range(3)),
    consumer("c1", "A", max_ack_pending=51, **EXPLICIT),
    Ask("INFO"),
]

COUNTED: list[Step] = [
    Ask("INFO"),
    create(),
    create(description="x"),
    Pub("S"),
    Ask("STREAM.MSG.GET.S", {"seq": 1}),
    Ask("STREAM.MSG.GET.S", {"seq": 2}),
    Ask("STREAM.NAMES"),
    consumer(),
    Ask("INFO"),
    delete(),
    Ask("INFO"),
]
