"""What becomes of assignments when only some of a cluster's members are left."""

from jsserver.rescue.plans import reduced


def test_a_reduced_group_wishes_for_no_other_members() -> None:
    said = {
        "created": "2026-11-30T06:00:00Z",
        "stream": {"name": "S", "num_replicas": 3},
        "group": {
            "name": "S-R3F-abcdefgh",
            "peers": ["a", "b", "c"],
            "store": "file",
            "preferred": "b",
            "scale_up": True,
            "desired": {"peers": ["b", "c", "d"]},
        },
    }
    assert reduced(said, "stream", ["a"]) == {
        "created": "2026-11-30T06:00:00Z",
        "stream": {"name": "S", "num_replicas": 1},
        "group": {"name": "S-R3F-abcdefgh", "peers": ["a"], "store": "file"},
    }
