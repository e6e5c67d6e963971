"""In which order files of tests begin where several workers share them.

A file stays with one worker. Files that take long begin first: otherwise the other workers have
nothing left to do while the last one runs such a file.
"""

from collections import Counter
from pathlib import Path

import pytest

LONGEST = (
    "client/test_rescue.py",
    "client/test_storm.py",
    "client/test_replacement.py",
    "fault/test_rescue_cut.py",
    "client/test_cluster_usage_diff.py",
    "client/test_store_encrypted.py",
    "client/test_replicated_diff.py",
    "client/test_leaf_tls.py",
    "client/test_jetstream_diff.py",
    "client/test_replicas_agree.py",
    "client/test_leaf_websocket.py",
    "client/test_link_compression.py",
    "client/test_reload_diff.py",
    "client/test_tls.py",
    "client/test_ocsp_stapling.py",
    "client/test_ocsp_peer_diff.py",
    "client/test_replicated_origins_diff.py",
    "client/test_replicated_origins.py",
    "client/test_replicated.py",
    "client/test_regrouped.py",
    "client/test_meta_member.py",
    "client/test_meta_leader.py",
    "client/test_cut_links.py",
    "fault/test_disk_failure.py",
    "fault/test_held_disk.py",
    "fault/test_journal_served.py",
    "fault/test_powercut.py",
    "fault/test_delivery_histories.py",
    "fault/test_consumer_histories.py",
    "client/test_route_ways.py",
    "client/test_gateway_faults.py",
    "client/test_limit_edges_diff.py",
)
"""Below `tests/`, longest first. `make test` prints the slowest tests."""

ROOT = Path(__file__).parent
_RANKS = {ROOT / name: rank for rank, name in enumerate(LONGEST)}


def order(items: list[pytest.Item]) -> None:
    """Puts the tests of long files first, then those of files with many tests; the tests of a file
    stay as they are."""
    many = Counter(item.path for item in items)
    items.sort(key=lambda item: (_RANKS.get(item.path, len(LONGEST)), -many[item.path], item.path))
