"""A log that is appended to, rewritten and cut at both ends, against a list; kills, stops."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.cext.store import PyLog, PyStore

HEAD = 12


def starts(entries: list[bytes], first: int = 0) -> list[int]:
    """Where each entry starts, and the end."""
    found = [first]
    for entry in entries:
        found.append(found[-1] + HEAD + len(entry))
    return found


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "o.log"
        self.written: list[bytes] = []
        self.number = 0
        self.open()

    def open(self) -> None:
        self.store = PyStore(self.folder.name, "S", commit="manual", now=10**18)
        self.log = PyLog(self.store, self.path)
        self.entries = list(self.log.replayed)
        self.first = 0
        assert self.entries == self.written
        assert self.log.damage() == 0
        self.check()

    def check(self) -> None:
        assert self.log.end() == starts(self.entries, self.first)[-1]
        assert self.log.size() == self.log.end() - self.first

    @rule(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=5))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            self.number += 1
            entry = (b"%d." % self.number).ljust(size, b"x")
            self.log.append(entry)
            self.entries.append(entry)
        self.check()

    @rule()
    def rewrite(self) -> None:
        self.first = self.log.end()
        self.number += 1
        self.entries = [b"all %d" % self.number]
        self.log.rewrite(self.entries[0])
        self.check()

    @rule(data=st.data())
    def cut_tail(self, data: st.DataObject) -> None:
        left = data.draw(st.integers(0, len(self.entries)))
        self.log.cut_tail(starts(self.entries, self.first)[left])
        del self.entries[left:]
        self.check()

    @rule(data=st.data())
    def cut_head(self, data: st.DataObject) -> None:
        gone = data.draw(st.integers(0, len(self.entries)))
        at = starts(self.entries, self.first)[gone]
        self.log.cut_head(at)
        del self.entries[:gone]
        self.first = at
        self.check()

    @rule()
    def cuts_outside_change_nothing(self) -> None:
        self.log.cut_tail(self.log.end() + 1000)
        self.log.cut_head(0)
        self.check()

    @rule()
    def commit(self) -> None:
        self.store.commit()
        self.written = list(self.entries)
        assert self.path.stat().st_size == self.log.size()

    @rule()
    def kill(self) -> None:
        self.store.abandon()
        self.open()

    @rule()
    def stop(self) -> None:
        self.store.close()
        self.written = list(self.entries)
        self.open()

    def teardown(self) -> None:
        self.store.abandon()
        self.folder.cleanup()


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
