"""OCSP responses that are kept: what is found, what counts as a hit, and which goes first."""

import time
from pathlib import Path
from typing import cast

from jsserver.access.ocsp import GOOD, REVOKED, UNKNOWN, Answer
from jsserver.access.responses import KEPT_MAX, Cache, Figures
from jsserver.config.options import OcspCache
from jsserver.process.logs import Logger
from tests.unit.power_cut import PowerCut, power_cut

__all__ = ["power_cut"]


class Silent:
    def debug(self, text: str, *args: object) -> None:
        """Says nothing."""

    warn = error = debug


def cache(**settings: object) -> Cache:
    return Cache(OcspCache(**settings), cast(Logger, Silent()))


def answer(status: int) -> Answer:
    return Answer(b"raw %d" % status, status, 0, time.time_ns() + 10**12)


def test_a_response_that_was_of_no_use_is_a_miss() -> None:
    kept = cache()
    kept.put("a", answer(GOOD), "CN=a")
    assert kept.get("a") == b"raw %d" % GOOD
    assert kept.get("b") is None
    assert kept.figures() == Figures(1, 1, 1, 0, 1, 0)
    kept.drop("a")
    assert kept.get("a") is None
    assert kept.figures() == Figures(0, 3, 0, 0, 0, 0)
    kept.drop("a")  # it is gone
    assert kept.figures() == Figures(0, 3, 0, 0, 0, 0)


def test_a_response_that_says_revoked_may_be_kept_beyond_its_use() -> None:
    kept = cache(preserve_revoked=True)
    for key, status in (("a", REVOKED), ("b", UNKNOWN)):
        kept.put(key, answer(status), f"CN={key}")
        kept.get(key)
        kept.drop(key)
    assert kept.get("a") is not None and kept.get("b") is None


def test_the_one_that_came_first_makes_room() -> None:
    kept = cache()
    for number in range(KEPT_MAX + 1):
        kept.put(str(number), answer(GOOD), "")
    assert kept.get("0") is None and kept.get("1") is not None
    assert kept.figures().responses == KEPT_MAX


def test_nothing_is_kept_where_nothing_is_to_be() -> None:
    kept = cache(kind="none")
    kept.put("a", answer(GOOD), "CN=a")
    assert kept.get("a") is None
    assert kept.figures() == Figures(0, 0, 0, 0, 0, 0)


def test_the_file_is_whole_after_a_power_cut(tmp_path: Path, power_cut: PowerCut) -> None:
    kept = cache(local_store=str(tmp_path))
    kept.put("ab", answer(GOOD), "CN=a")
    changed = kept.to_save()
    assert changed is not None
    kept.save(changed)
    (file,) = tmp_path.iterdir()
    assert b"CN=a" in (power_cut.whole(file) or b"")
    again = cache(local_store=str(tmp_path))
    again.load()
    assert again.get("ab") == b"raw %d" % GOOD
