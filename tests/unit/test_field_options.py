"""What fields of configurations declare beside their types: the order of rules is one order."""

import msgspec
import pytest

from jsserver.wire.errors import ApiError
from jsserver.wire.options import check_rules, least_of, level_of, options_of
from jsserver.wire.types import ConsumerConfig, StreamConfig, StreamSource

KINDS = (StreamConfig, ConsumerConfig)


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_counted_from_one(kind: type[msgspec.Struct]) -> None:
    rules = [rule.place for option in options_of(kind).values() for rule in option.rules]
    assert sorted(rules) == list(range(1, len(rules) + 1))
    least = [least.place for _, least in least_of(kind)]
    assert least == list(range(1, len(least) + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_may_stay_as_it_is_and_needs_no_level(kind: type[msgspec.Struct]) -> None:
    check_rules(kind(), kind(), kind)
    assert level_of(kind(), kind) == 0


@pytest.mark.parametrize(
    ("config", "level"),
    [
        (StreamConfig(allow_msg_ttl=True), 1),
        (StreamConfig(subject_delete_marker_ttl=10**9), 1),
        (StreamConfig(subject_delete_marker_ttl=-1), 0),
        (StreamConfig(persist_mode="async"), 2),
        (StreamConfig(persist_mode="default"), 0),
        (StreamConfig(allow_batched=True, allow_msg_ttl=True), 4),
        (ConsumerConfig(ack_policy="explicit"), 0),
        (ConsumerConfig(ack_policy="flow_control"), 4),
        (ConsumerConfig(pause_until="0001-01-01T00:00:00Z"), 0),
        (ConsumerConfig(pause_until="2030-01-01T00:00:00Z"), 1),
        (ConsumerConfig(priority_timeout=-1), 1),
    ],
)
def test_levels(config: msgspec.Struct, level: int) -> None:
    assert level_of(config, type(config)) == level


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (StreamConfig(), StreamConfig(sealed=True), ""),
        (StreamConfig(sealed=True), StreamConfig(storage="memory"), "change storage type"),
        (StreamConfig(), StreamConfig(retention="interest"), ""),
        (StreamConfig(), StreamConfig(retention="workqueue"), "policy to/from workqueue"),
        (StreamConfig(mirror=StreamSource(name="A")), StreamConfig(), ""),
        (StreamConfig(), StreamConfig(mirror=StreamSource(name="A")), "mirror"),
        (ConsumerConfig(), ConsumerConfig(deliver_subject="d"), "pull consumer to push"),
        (ConsumerConfig(deliver_subject="d"), ConsumerConfig(deliver_subject="e"), ""),
        (
            ConsumerConfig(opt_start_time="2030-01-01T00:00:00Z"),
            ConsumerConfig(opt_start_time="2030-01-01T01:00:00+01:00"),
            "",
        ),
    ],
)
def test_the_first_rule_that_an_update_breaks(
    old: msgspec.Struct, new: msgspec.Struct, error: str
) -> None:
    if not error:
        check_rules(old, new, type(old))
        return
    with pytest.raises(ApiError, match=error):
        check_rules(old, new, type(old))
