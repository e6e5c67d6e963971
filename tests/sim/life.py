"""A stream with a consumer on a simulated disk, over power cuts and kills."""

from typing import Any

from tests.cext.stream import TestEnv, open_test_stream
from tests.sim.disk import SimDisk
from tests.unit.stream_world import FILE, SECOND, consumer_params, stream_params

DISKS = range(40)
TRUNCATE = 6
STORE_ERROR = 3


alive: list["Life"] = []
"""With threads, which wait for their turns as long as it is not stopped."""


class Life:
    """A stream with a consumer, over power cuts."""

    def __init__(
        self,
        seed: int,
        sync_interval: int = 0,
        consumer: bool = True,
        threads: bool = False,
        together: bool = False,
        journal: int = 0,
        **params: Any,
    ) -> None:
        """`together`: a start syncs all that it finds at one go, and all that it changed before the
        stream is served. `journal`: bytes of a segment of the journal; 0: there is none."""
        self.journal = journal
        self.disk = SimDisk(seed, bool(seed % 2))
        self.sync_interval = sync_interval
        self.threads = threads
        self.together = together
        self.with_consumer = consumer
        self.params = params
        self.secret = b""
        """Of the next start; without one it does not encrypt."""
        self.now = 1_700_000_000 * SECOND
        for path in (b"/S", b"/S/obs", b"/S/obs/C"):
            self.disk.mkdir(path)
        self.start()

    def start(self) -> None:
        self.open(self.together)
        if self.together:
            self.disk.sync()
        self.stream.activate()

    def open(self, together: bool) -> None:
        self.env = TestEnv(now=self.now)
        self.env.listen(b"inbox")
        self.disk.attach(
            self.env, self.sync_interval, self.threads, self.secret, journal=self.journal
        )
        params = stream_params(storage=FILE, allow_rollup_hdrs=True, **self.params)
        if together:
            self.disk.sync()
        self.stream = open_test_stream(self.env, params, b"/S", synced=together)
        if self.secret and b"meta.key" not in self.disk.names(b"/S"):
            self.disk.write(b"/S/meta.key", b"a key")
        if self.with_consumer:
            self.consumer = self.stream.open_consumer(consumer_params(), b"/S/obs/C")
        if self.threads:
            alive.append(self)

    def stop(self) -> None:
        self.stream.close(False)
        self.now = self.env.now
        self.disk.detach(self.env)
        if self.threads:
            alive.remove(self)

    def cut(self, calls: int = 0) -> None:
        """After so many calls of what is staged."""
        self.lose_power(calls)
        self.start()

    def cut_twice(self, calls: int = 0) -> None:
        """And again before the start in between has synced what it changed."""
        self.lose_power(calls)
        self.open(together=True)
        self.lose_power(0)
        self.start()

    def lose_power(self, calls: int) -> None:
        self.disk.cut_after(calls)
        self.commit()
        self.stop()
        self.disk.cut()

    def kill(self, calls: int = 0) -> None:
        """A SIGKILL after so many calls of what is staged."""
        self.disk.cut_after(calls)
        self.commit()
        self.disk.stop()
        self.stop()
        self.disk.kill()
        self.start()

    def commit(self) -> None:
        self.disk.commit(self.env)

    def truncate(self, seq: int) -> None:
        change = (TRUNCATE, seq, self.env.now, 0, 0, False, b"", b"", b"", b"")
        assert self.env.apply(self.stream, change) == 0

    def publish(self, data: bytes = b"x", subject: bytes = b"s.a", header: bytes = b"") -> None:
        self.env.inject(subject, data, b"", header)

    def update(self, **params: Any) -> None:
        self.params.update(params)
        self.stream.update(stream_params(storage=FILE, allow_rollup_hdrs=True, **self.params))

    def pull(self, batch: int = 100) -> list[int]:
        self.env.take()
        body = b'{"batch":%d,"no_wait":true}' % batch
        self.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.C", body, b"inbox")
        replies = [m[2] for m in self.env.take() if m[2].startswith(b"$JS.ACK.")]
        self.replies = {int(r.split(b".")[5]): r for r in replies}
        return list(self.replies)

    def ack(self, seq: int) -> None:
        self.env.inject(self.replies[seq], b"")
