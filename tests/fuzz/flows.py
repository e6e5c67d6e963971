"""Random sequences of operations on push consumers with flow control and heartbeats: large
messages, confirmations in time, late and wrong, one more listener.

Nobody stops to listen: nats-server goes on to count what the last listener did not confirm.
"""

from typing import Any

from tests.fuzz.sequences import HOUR, Maker, Step

TARGET = "push.1"
KIB = 1024


class FlowMaker(Maker):
    """Makes the steps of one sequence: a stream with one or two such consumers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.filtered = self.pick("a.x", "a.*")

    def consumer_config(self, stream: str, name: str) -> dict[str, Any]:
        settings = {
            "max_ack_pending": lambda: self.pick(-1, 1, 3, 20),
            "headers_only": lambda: True,
            "description": lambda: self.pick("", "text"),
        }
        config = {
            "durable_name": name,
            "deliver_subject": "push.2" if name == "d" else TARGET,
            "flow_control": True,
            "idle_heartbeat": HOUR,
            "ack_wait": HOUR,
            "ack_policy": "none" if name == "d" else "explicit",
        }
        if name == "c":  # It keeps it: what an idle one has passed over differs.
            config["filter_subject"] = self.filtered
        return config | self.some(settings, 0.15)

    def steps(self, count: int) -> list[Step]:
        steps: list[Step] = [
            ("api", "STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "storage": "file"}),
            self.listen(),
            self.listen(),
            self.make_consumer(),
        ]
        makers = (
            *(self.big,) * 20,
            *(self.confirm,) * 8,
            *(self.ack,) * 5,
            *(self.make_consumer, self.make_consumer, self.change, self.change, self.listen),
        )
        while len(steps) < count:
            steps.append(self.random.choice(makers)())
        return steps

    def listen(self) -> Step:
        return ("sub", self.pick(TARGET, "push.2"), "")

    def big(self) -> Step:
        size = self.pick(1, 100, 300, 300, 400, 700, 900) * KIB + self.random.randrange(KIB)
        return ("big", f"a.{self.pick('x', 'y')}", size)

    def confirm(self) -> Step:
        which, more = self.pick(0, 0, 0, 0, 0, 1, 2), self.pick("", "", "", "", "", "x", ".y")
        return ("confirm", self.pick("c", "d"), which, more)

    def make_consumer(self) -> Step:
        name = self.pick("c", "d")
        body = {"stream_name": "A", "config": self.consumer_config("A", name)}
        return ("api", f"CONSUMER.CREATE.A.{name}", body)

    def change(self) -> Step:
        name = self.pick("c", "d")
        subject, body = self.pick(
            (f"CONSUMER.DELETE.A.{name}", ""),
            (f"CONSUMER.PAUSE.A.{name}", {"pause_until": "2200-01-01T00:00:00Z"}),
            (f"CONSUMER.PAUSE.A.{name}", ""),
            (f"CONSUMER.PAUSE.A.{name}", ""),
            ("STREAM.MSG.DELETE.A", {"seq": self.pick(1, 2, 5, 9)}),
            ("STREAM.PURGE.A", ""),
        )
        return ("api", subject, body)
