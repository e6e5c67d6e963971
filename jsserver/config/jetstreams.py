"""Options of the `jetstream` block."""

from __future__ import annotations

from jsserver.config.block import Block, each
from jsserver.text.goformat import SECOND

AUTOMATIC = -1
"""A JetStream limit that the server derives from the machine it runs on."""
DEFAULT_REQUEST_QUEUE_LIMIT = 10_000
DEFAULT_OUTSTANDING_CATCHUP = 64 << 20


class JetStreamLimits(Block):
    """Limits for assets of one server; 0 is none."""

    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_request_batch: int = 0
    duplicate_window: int = 0
    max_batch_inflight_per_stream: int = 0
    """Open batches, atomic or fast, 50 or 1000 by default; of all streams 1000 or 50 000."""
    max_batch_inflight_total: int = 0
    max_batch_size: int = 0
    """Messages of an atomic batch, 1000 by default."""
    batch_timeout: int = 0
    """Nanoseconds without a message after which a batch ends, ten seconds by default."""


class ObjectRequests(Block):
    """Whether the server answers requests to buckets of objects, and takes uploads. `max_uploads`
    of an account at the same time; `upload_timeout` in ns: one that is silent for so long ends."""

    enabled: bool = False
    max_uploads: int = 64
    upload_timeout: int = 60 * SECOND


class JetStream(Block):
    """`sync_interval` None: an ack is sent when the message is synced to disk; a duration: acks at
    once and a sync that often. `cipher`: chacha or aes, where there is a `key`."""

    enabled: bool = False
    max_memory: int = AUTOMATIC
    max_store: int = AUTOMATIC
    domain: str = ""
    unique_tag: str = ""
    strict: bool = True
    sync_interval: int | None = None
    key: str = ""
    prev_key: str = ""
    cipher: str = "chacha"
    limits: JetStreamLimits = each(JetStreamLimits)
    request_queue_limit: int = DEFAULT_REQUEST_QUEUE_LIMIT
    info_queue_limit: int = 0
    max_outstanding_catchup: int = DEFAULT_OUTSTANDING_CATCHUP
    """Bytes on their way to members of a cluster that lack messages of streams."""
    object_requests: ObjectRequests = each(ObjectRequests)
