"""What the API knows but this server does not do yet. An entry is removed when the thing is built.

Options listed here are validated as documented and then refused; no option is accepted and ignored.
"""

from . import errcodes
from .errors import ApiError
from .types import ConsumerConfig, StreamConfig

# allow_msg_ttl, allow_atomic and allow_batched are not here: clients ask for them on streams that may never see
# such a message (nats-py's key-value buckets, `nats bench`). A publish that uses them is refused instead.
STREAM_OPTIONS = (
    "mirror",
    "sources",
    "subject_transform",
    "republish",
    "compression",
    "subject_delete_marker_ttl",
    "allow_msg_counter",
    "allow_msg_schedules",
    "persist_mode",
)
CONSUMER_OPTIONS = ("direct", "sourcing", "priority_groups", "priority_policy", "priority_timeout")
ACK_POLICIES = ("flow_control",)

ENDPOINTS = {
    "STREAM.SNAPSHOT": "stream_snapshot_response",
    "STREAM.RESTORE": "stream_restore_response",
    "CONSUMER.UNPIN": "consumer_unpin_response",
    "CONSUMER.RESET": "consumer_reset_response",
}
"""Endpoints, and the type of their answers."""


def _refusal(what: str) -> ApiError:
    return errcodes.STREAM_INVALID_CONFIG(err=f"{what} is not supported by this server yet")


def check_stream(config: StreamConfig) -> None:
    """Raises if a valid configuration asks for something that is not built."""
    for option in STREAM_OPTIONS:
        if getattr(config, option) not in (None, False, 0, "", "none", []):
            raise _refusal(f"stream option {option}")


def check_consumer(config: ConsumerConfig) -> None:
    """Raises if a valid configuration asks for something that is not built."""
    for option in CONSUMER_OPTIONS:
        if getattr(config, option):
            raise _refusal(f"consumer option {option}")
    if config.ack_policy in ACK_POLICIES:
        raise _refusal(f"consumer ack policy {config.ack_policy}")


def endpoint(name: str) -> ApiError:
    """The error of an endpoint of ENDPOINTS."""
    return errcodes.STREAM_GENERAL(err=f"{name} is not supported by this server yet")
