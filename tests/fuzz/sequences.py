"""Random sequences of JetStream operations, the same for the same seed.

A step is a tuple of texts, numbers and decoded JSON, so that a failing sequence can be printed and
played again. Nothing in it depends on how fast it is played: times are long or zero.
"""

import random
from collections.abc import Callable
from typing import Any, TypeVar

Step = tuple[Any, ...]

SECOND = 10**9
HOUR = 3600 * SECOND
STREAMS = ("A", "B")
CONSUMERS = ("c", "d", "e")
TOKENS = ("x", "y", "z")
PUSHES = {"push.1": "", "push.2": "", "push.g": "g"}
"""Where consumers push to, and the queue that listens there."""
ACKS = (
    *(b"", b"+ACK", b"-NAK", b"+WPI", b"+TERM", b"+TERM because", b"+NXT", b"+NXT 2"),
    *(b'+NXT {"batch":2,"no_wait":true}', b'-NAK {"delay":0}', b'-NAK {"delay":3600000000000}'),
    *(b"-NAK x", b"+ack", b"junk", b"+ACKx", b"-NAK {", b"+OK", b"-ACK", b"+TERMed", b"-NAK 1h"),
    *(b"+TERM\t because ", b"-NAK{}", b'+NXT{"batch":2,"no_wait":true}', b"+NXT x"),
)


T = TypeVar("T")


class Maker:
    """Makes the steps of one sequence."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # nats-server takes the removal of a message for an ack of all before it, jsserver does not:
        # so nothing is removed where consumers ack so.
        self.acks_all = self.chance(0.25)

    def pick(self, *choices: T) -> T:
        return self.random.choice(choices)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # names

    def stream(self) -> str:
        return self.pick(*STREAMS)

    def consumer(self) -> str:
        return self.pick(*CONSUMERS)

    def subject(self, stream: str) -> str:
        tokens = [stream.lower(), self.pick(*TOKENS)]
        if self.chance(0.2):
            tokens.append(self.pick(*TOKENS))
        return ".".join(tokens)

    def filter(self, stream: str) -> str:
        first = stream.lower()
        return str(
            self.pick(
                *(f"{first}.x", f"{first}.y", f"{first}.*", f"{first}.>", f"{first}.x.*", ">"),
                *(f"*.{self.pick(*TOKENS)}", f"{first}.z.>", "b.x", "q.>", f"{first}.*.y"),
            )
        )

    def filters(self, stream: str) -> list[str]:
        """One to three; nats-server counts twice what two of them match that overlap in part."""
        found = [self.filter(stream) for _ in range(self.pick(1, 2, 3))]
        return [f for f in found if not f.startswith("*")] or found[:1]

    def some(self, settings: dict[str, Callable[[], Any]], probability: float) -> dict[str, Any]:
        """A few of these settings."""
        return {name: make() for name, make in settings.items() if self.chance(probability)}

    # configurations

    def stream_config(self, name: str) -> dict[str, Any]:
        low = name.lower()
        subjects = self.pick(
            *([f"{low}.>"],) * 5,
            *([f"{low}.*"], [f"{low}.x", f"{low}.y"], [f"{low}.x", f"{low}.*.*"], ["a.z", "b.>"]),
            *([f"{low}.>", "b.x"], [f"{low}..x"], [f"{low}.x", f"{low}.x"], ["$JS.>"], [""]),
        )
        settings = {
            "retention": lambda: self.pick("limits", "interest", "interest", "workqueue"),
            "max_consumers": lambda: self.pick(-1, 0, 1, 2, -2),
            "max_msgs": lambda: self.pick(-1, 0, 1, 3, 5, 10),
            "max_bytes": lambda: self.pick(-1, 0, 60, 200, 1000, 10**9),
            "max_age": lambda: self.pick(0, HOUR, 1, -1),
            "max_msgs_per_subject": lambda: self.pick(-1, 0, 1, 2, 3),
            "max_msg_size": lambda: self.pick(-1, 0, 10, 60),
            "discard": lambda: self.pick("old", "new"),
            "discard_new_per_subject": lambda: self.pick(True, False),
            "num_replicas": lambda: self.pick(0, 1, 1, 3, -1),
            "no_ack": lambda: self.pick(False, False, True),
            "duplicate_window": lambda: self.pick(0, HOUR, SECOND, -1, 10**8),
            "first_seq": lambda: self.pick(0, 1, 2, 100, 1 << 40),
            "allow_direct": lambda: self.pick(True, True, False),
            "mirror_direct": lambda: self.pick(True, False),
            "sealed": lambda: self.pick(False, False, True),
            "deny_delete": lambda: self.pick(False, False, True),
            "deny_purge": lambda: self.pick(False, False, True),
            "allow_rollup_hdrs": lambda: self.pick(True, True, False),
            "consumer_limits": lambda: self.some(
                {
                    "inactive_threshold": lambda: self.pick(HOUR, 2 * HOUR, 0, -1),
                    "max_ack_pending": lambda: self.pick(1, 5, 1000, -1, 0),
                },
                0.6,
            ),
            "description": lambda: self.pick("", "text", "<&>\u2028é"),
            "metadata": lambda: self.pick({}, {"a": "b"}, {"_nats.x": "y"}, None),
            "persist_mode": lambda: self.pick("default", ""),
            "pedantic": lambda: True,
        }
        storage = self.pick("file", "file", "memory")
        config = {"name": name, "subjects": subjects, "storage": storage, "allow_direct": True}
        if self.acks_all:
            for name in ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_age", "retention"):
                del settings[name]
        if subjects == ["$JS.>"]:  # Without acks it would hold what the comparison asks for.
            del settings["no_ack"]
        return config | self.some(settings, 0.12)

    def consumer_config(self, stream: str, name: str) -> dict[str, Any]:
        settings = {
            "description": lambda: self.pick("", "text", "é"),
            "deliver_policy": lambda: self.pick(
                *("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject")
            ),
            "opt_start_seq": lambda: self.pick(0, 1, 3, 1000),
            "opt_start_time": lambda: self.pick("2001-01-01T00:00:00Z", "2200-01-01T00:00:00Z"),
            "ack_wait": lambda: self.pick(0, HOUR, -1),
            "max_deliver": lambda: self.pick(-1, 0, 1, 2, 3, -2),
            "backoff": lambda: self.pick([HOUR], [HOUR, HOUR], [], [-1]),
            "filter_subject": lambda: self.filter(stream),
            "filter_subjects": lambda: self.filters(stream),
            "replay_policy": lambda: self.pick("instant", "original"),
            "rate_limit_bps": lambda: self.pick(0, 10**9),
            "sample_freq": lambda: self.pick("", "100", "100%", "0", "x", "-1"),
            "max_waiting": lambda: self.pick(0, 1, 2, 512, -1),
            "max_ack_pending": lambda: self.pick(-1, 0, 1, 2, 3),
            "headers_only": lambda: self.pick(True, False),
            "max_batch": lambda: self.pick(0, 1, 2, -1),
            "max_expires": lambda: self.pick(0, HOUR, 1),
            "max_bytes": lambda: self.pick(0, 100, 1000),
            "inactive_threshold": lambda: self.pick(0, HOUR, -1),
            "num_replicas": lambda: self.pick(0, 1, 2, -1),
            "mem_storage": lambda: self.pick(True, False),
            "metadata": lambda: self.pick({}, {"a": "b"}),
            "pause_until": lambda: self.pick("2200-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
            "priority_policy": lambda: self.pick("overflow", "prioritized", "none"),
            "priority_groups": lambda: self.pick(["g"], ["g"], ["g", "h"], [], [""]),
            "flow_control": lambda: self.pick(False, True),
            "idle_heartbeat": lambda: self.pick(0, HOUR, 1),
        }
        config: dict[str, Any] = {"ack_policy": self.pick("explicit", "explicit", "none")}
        if self.acks_all:
            config["ack_policy"] = "all"
        config[self.pick("durable_name", "durable_name", "name")] = name
        if "name" in config:
            config["inactive_threshold"] = HOUR
        if self.chance(0.25):
            config["deliver_subject"] = self.pick("push.1", "push.1", "push.2", "b.x", "a.*")
            if (
                name == "d"
            ):  # A consumer keeps its group: nats-server does not look who listens then.
                config |= {"deliver_group": "g", "deliver_subject": "push.g"}
        grouped = {
            "priority_policy": self.pick("overflow", "prioritized"),
            "priority_groups": ["g"],
        }
        if "deliver_subject" not in config and self.chance(0.2):
            config |= grouped
        # Only one has no filter, and it never had: nats-server loses sight of one whose filters go.
        if name == "e":
            del settings["filter_subject"], settings["filter_subjects"]
        config |= self.some(settings, 0.1)
        if name != "e" and not {"filter_subject", "filter_subjects"} & config.keys():
            config["filter_subject"] = f"{stream.lower()}.>"
        return config

    # steps

    def steps(self, count: int) -> list[Step]:
        steps: list[Step] = [self.create_stream("A")]
        for subject, queue in PUSHES.items():
            if self.chance(0.8):
                steps.append(("sub", subject, queue))
        makers = (
            *(self.publish,) * 14,
            *(self.make_consumer,) * 5,
            *(self.pull,) * 8,
            *(self.ack,) * 12,
            *(self.manage,) * 8,
            *(self.direct,) * 2,
            *(self.forge,) * 2,
        )
        while len(steps) < count:
            steps.append(self.random.choice(makers)())
        return steps

    def create_stream(self, name: str) -> Step:
        return ("api", f"STREAM.CREATE.{name}", self.stream_config(name))

    def publish(self) -> Step:
        stream = self.pick("A", "A", "A", "B")
        lines = []
        headers = {
            "Nats-Msg-Id": lambda: self.pick("1", "2", "3", ""),
            "Nats-Expected-Stream": lambda: self.pick(*STREAMS),
            "Nats-Expected-Last-Sequence": lambda: self.pick("0", "1", "5", "x"),
            "Nats-Expected-Last-Subject-Sequence": lambda: self.pick("0", "1", "4", "-1"),
            "Nats-Expected-Last-Subject-Sequence-Subject": lambda: self.filter(stream),
            "Nats-Expected-Last-Msg-Id": lambda: self.pick("1", "2", ""),
            "Nats-Rollup": lambda: "x" if self.acks_all else self.pick("sub", "all"),
            "KV-Operation": lambda: self.pick("DEL", "PURGE"),
        }
        lines = [f"{key}: {value}" for key, value in self.some(headers, 0.05).items()]
        size = self.pick(0, 1, 5, 30, 100)
        return ("pub", self.subject(stream), "p" * size, lines)

    def make_consumer(self) -> Step:
        stream, name = self.pick("A", "A", "B"), self.consumer()
        body: dict[str, Any] = {
            "stream_name": stream,
            "config": self.consumer_config(stream, name),
            "action": self.pick("", "", "create", "update"),
        }
        if self.chance(0.08):
            body["pedantic"] = True
        if "durable_name" in body["config"] and self.chance(0.3):
            return ("api", f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
        subject = f"CONSUMER.CREATE.{stream}.{name}"
        if self.chance(0.2):
            subject += "." + body["config"].get("filter_subject", self.filter(stream))
        return ("api", subject, body)

    def pull(self) -> Step:
        body = self.pick(
            *(1, 2, "", 0, -1, 5, "x", {}),
            *({"batch": 2, "no_wait": True},) * 6,
            *({"batch": 20, "no_wait": True},) * 6,
            *({"batch": 2, "expires": HOUR},) * 3,
            {"batch": 3, "expires": HOUR, "no_wait": True},
            {"batch": 3, "max_bytes": 150, "no_wait": True},
            {"batch": 3, "max_bytes": 60, "expires": HOUR},
            {"batch": 3, "expires": HOUR, "idle_heartbeat": HOUR},
            {"batch": 3, "idle_heartbeat": HOUR},
            {"batch": 3, "min_pending": 2, "expires": HOUR},
            {"batch": 3, "group": "g", "no_wait": True},
            {"batch": 2, "group": "g", "min_pending": self.pick(1, 3), "expires": HOUR},
            {"batch": 2, "group": "g", "min_ack_pending": self.pick(1, 2), "expires": HOUR},
            {"batch": 2, "group": "g", "priority": self.pick(0, 3, 9, 10), "expires": HOUR},
            {"batch": 2, "group": "h", "id": "x", "expires": HOUR},
            {"batch": 3, "expires": -1},
        )
        return ("pull", self.pick("A", "A", "A", "B"), self.consumer(), body)

    def ack(self) -> Step:
        many = *ACKS[:2], *ACKS[:2], *ACKS[:2], *ACKS
        return ("ack", self.random.randrange(1 << 16), self.random.choice(many).decode())

    def forge(self) -> Step:
        """An ack of what was perhaps never delivered."""
        numbers = (1, 2, 3, 0, 5, 100, -1, 1 << 63, (1 << 64) - 1, "x", "")
        # nats-server believes any last one where all up to a message is acked.
        last = numbers[:6] if self.acks_all else numbers
        tokens = [self.pick(*numbers[:3]), self.pick(*numbers), self.pick(*last)]
        where = f"{self.stream()}.{self.consumer()}"
        rest = self.pick("1.0", "1.0", "1.0", "1", "", "x.x", "1.0.0", "1.0.0.0")
        subject = f"$JS.ACK.{where}.{tokens[0]}.{tokens[1]}.{tokens[2]}.{rest}"
        # nats-server tells of a +TERM also where nothing was delivered.
        said = [ack for ack in ACKS if not ack.startswith(b"+TERM")]
        return ("send", subject, self.random.choice(said).decode())

    def direct(self) -> Step:
        stream = self.stream()
        body = self.pick(
            {"seq": self.pick(1, 2, 3, 50)},
            {"last_by_subj": self.filter(stream)},
            {"next_by_subj": self.filter(stream), "seq": self.pick(0, 1, 3)},
            {"seq": 1, "batch": 3},
            {"batch": 5, "next_by_subj": self.filter(stream)},
            {"batch": 5, "max_bytes": 100, "seq": 1},
            {"multi_last": [self.filter(stream), self.filter(stream)]},
            {"multi_last": [self.filter(stream)], "batch": 2},
            {"start_time": "2001-01-01T00:00:00Z", "batch": 2},
            {"start_time": "2001-01-01T00:00:00Z", "next_by_subj": self.filter(stream)},
            {"seq": 1, "no_hdr": True},
            {},
        )
        return ("direct", stream, body)

    def manage(self) -> Step:
        stream, name = self.pick("A", "A", "A", "B"), self.consumer()
        config = self.stream_config(stream)
        change = dict(config)
        if change.get("num_replicas") == 3:  # Taken, by which new consumers look different.
            del change["num_replicas"]
        subject, body = self.random.choice(
            (
                (f"STREAM.CREATE.{stream}", config),
                (f"STREAM.CREATE.{stream}", config),
                (f"STREAM.UPDATE.{stream}", change),
                (f"STREAM.UPDATE.{stream}", change),
                (f"STREAM.UPDATE.{stream}", change),
                (f"STREAM.DELETE.{stream}", ""),
                (f"STREAM.PURGE.{stream}", ""),
                (f"STREAM.PURGE.{stream}", {"keep": self.pick(0, 1, 2)}),
                (f"STREAM.PURGE.{stream}", {"seq": self.pick(0, 1, 3, 1000)}),
                (f"STREAM.PURGE.{stream}", {"seq": 2, "keep": 1}),
                (f"STREAM.PURGE.{stream}", {"filter": self.filter(stream)}),
                (f"STREAM.PURGE.{stream}", {"filter": self.filter(stream), "keep": 1}),
                (f"STREAM.PURGE.{stream}", {"filter": self.filter(stream), "seq": 4}),
                (f"STREAM.MSG.DELETE.{stream}", {"seq": self.pick(1, 2, 3, 4, 5, 6, 0)}),
                (f"STREAM.MSG.DELETE.{stream}", {"seq": self.pick(1, 2, 3), "no_erase": True}),
                (f"STREAM.MSG.GET.{stream}", {"seq": self.pick(1, 2, 3, 0, 1000)}),
                (f"STREAM.MSG.GET.{stream}", {"last_by_subj": self.filter(stream)}),
                (f"STREAM.MSG.GET.{stream}", {"next_by_subj": self.filter(stream), "seq": 2}),
                (f"STREAM.INFO.{stream}", {"subjects_filter": self.filter(stream)}),
                ("STREAM.NAMES", {"subject": self.filter(stream)}),
                ("STREAM.LIST", {"offset": self.pick(0, 1, 5)}),
                (f"CONSUMER.NAMES.{stream}", {"offset": self.pick(0, 1, 5)}),
                (f"CONSUMER.INFO.{stream}.{name}", ""),
                (f"CONSUMER.DELETE.{stream}.{name}", ""),
                (f"CONSUMER.PAUSE.{stream}.{name}", {"pause_until": "2200-01-01T00:00:00Z"}),
                (f"CONSUMER.PAUSE.{stream}.{name}", ""),
                (f"CONSUMER.PAUSE.{stream}.{name}", {"pause_until": "2001-01-01T00:00:00Z"}),
            )
        )
        if self.acks_all and subject.startswith(("STREAM.PURGE", "STREAM.MSG.DELETE")):
            return self.manage()
        return ("api", subject, body)
