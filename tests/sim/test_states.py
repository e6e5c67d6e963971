"""The consumers' states for nats-server, where a stop fails to bring them to disk."""

from typing import ClassVar

import pytest

from tests.cext.stream import TestEnv, open_test_stream
from tests.sim.life import Life
from tests.unit.stream_world import FILE, consumer_params, stream_params


class Crowd(Life):
    """A stream with more consumers than have their states synced one by one."""

    NAMES: ClassVar = [b"C%d" % i for i in range(40)]

    def start(self) -> None:
        for name in self.NAMES:
            self.disk.mkdir(b"/S/obs/" + name)
        self.env = TestEnv(now=self.now)
        self.env.listen(b"inbox")
        self.disk.attach(self.env, self.sync_interval)
        params = stream_params(storage=FILE, **self.params)
        self.stream = open_test_stream(self.env, params, b"/S")
        self.consumers = [
            self.stream.open_consumer(consumer_params(name=name), b"/S/obs/" + name)
            for name in self.NAMES
        ]
        self.stream.activate()

    def ack_next(self) -> list[int]:
        """Each consumer acks its next message, and has the answer; the floors."""
        for name in self.NAMES:
            self.env.take()
            body = b'{"batch":1,"no_wait":true}'
            self.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S." + name, body, b"inbox")
            (reply,) = [m[2] for m in self.env.take() if m[2].startswith(b"$JS.ACK.")]
            self.env.inject(reply, b"", b"done")
        self.commit()
        return self.floors()

    def floors(self) -> list[int]:
        return [consumer.state().floor_stream for consumer in self.consumers]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("times", [0, 1, 2, 1000])
def test_a_stop_whose_syncs_fail_leaves_states_that_are_right_or_says_so(
    seed: int, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """After a power cut: with what the log says, and to nats-server, which knows no log."""
    for after in range(6):
        life = Crowd(seed, consumer=False)
        for _ in range(4):
            life.publish()
        life.commit()
        life.ack_next()
        life.stop()
        life.start()
        floors = life.ack_next()
        caplog.clear()
        life.disk.fail("sync", 5, after, times)
        life.stop()
        said = caplog.text.count("not written")
        life.disk.mend()
        life.disk.cut()
        life.start()
        assert life.floors() == floors
        life.disk.stop()
        life.stop()
        life.disk.kill()
        life.disk.remove(b"/S/consumers.log")
        life.start()
        assert said or life.floors() == floors
        assert times > 1 or not said
        life.stop()
