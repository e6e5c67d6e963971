"""How a member begins that is new to its group, and how many members an asset that moves keeps."""

from pathlib import Path
from typing import Any

import pytest

from jsserver.cext import replicas as CODES
from jsserver.cluster.meta import Change
from jsserver.cluster.regroup import replicas_of
from jsserver.services import standing
from jsserver.services.regrouping import Regrouping
from jsserver.services.replicas import Replicas
from jsserver.services.standing import Standing


@pytest.mark.parametrize("begins", list(Standing))
def test_a_start_goes_on_as_the_member_began_until_it_has_joined(
    tmp_path: Path, begins: Standing
) -> None:
    standing.begin(tmp_path, begins)
    assert standing.found(tmp_path) is begins
    standing.joined(tmp_path)
    standing.joined(tmp_path)
    assert standing.found(tmp_path) is Standing.MEMBER


def test_a_file_that_was_cut_off_makes_no_leader(tmp_path: Path) -> None:
    (tmp_path / standing.FILE).write_bytes(b"ba\xff")
    assert standing.found(tmp_path) is Standing.LOG


def test_the_data_plane_knows_each_standing() -> None:
    found = {one.code for one in Standing}
    assert found == {CODES.MEMBER, CODES.BASE, CODES.JOINS_LOG, CODES.AWAITS_STATE}


def said(name: str, *peers: str, created: str = "1") -> dict[str, Any]:
    return {"created": created, "group": {"name": name, "peers": list(peers)}}


@pytest.mark.parametrize(
    ("before", "begins"),
    [
        (None, Standing.MEMBER),
        (said("G", "A", "B", created="0"), Standing.MEMBER),
        (said("G", "A", "ME"), Standing.MEMBER),
        (said("G", "A", "B"), Standing.LOG),
        (said("H", "A", "B"), Standing.STATE),
        (said("G", "A"), Standing.STATE),
    ],
)
def test_who_is_new_joins_what_others_have(before: Any, begins: Standing) -> None:
    now = said("G", "A", "B", "ME")
    regrouping = Regrouping(Replicas("ME", lambda: "C"), "ME")
    change = Change("ONE", "S", said=now, before=before)
    assert regrouping.begins(change, now) is begins
    assert regrouping.begins(None, now) is Standing.MEMBER


@pytest.mark.parametrize(
    ("stream", "consumer", "count"),
    [
        ({"num_replicas": 3}, {"durable_name": "D"}, 3),
        ({"num_replicas": 3}, {"durable_name": "D", "num_replicas": 1}, 1),
        ({"num_replicas": 3}, {"name": "E"}, 1),
        ({"num_replicas": 3, "retention": "interest"}, {"name": "E"}, 3),
        ({}, {"durable_name": "D"}, 1),
    ],
)
def test_as_many_members_stay_as_the_configuration_says(
    stream: dict[str, Any], consumer: dict[str, Any], count: int
) -> None:
    of = {"stream": stream}
    assert replicas_of(of, {"consumer": consumer}) == count
    assert replicas_of(of, of) == stream.get("num_replicas", 1)
