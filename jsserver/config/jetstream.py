"""Reads the `jetstream` block."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Value
from jsserver.config.jetstreams import (
    DEFAULT_OUTSTANDING_CATCHUP,
    DEFAULT_REQUEST_QUEUE_LIMIT,
    JetStreamLimits,
    ObjectRequests,
)
from jsserver.config.jetstreams import JetStream as JetStreamOptions
from jsserver.config.options import Options
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    as_duration,
    as_int,
    as_size,
    as_text,
    flag,
    ignored,
    integer,
    read_block,
    shown,
    size,
    text,
    type_name,
    unavailable,
)
from jsserver.text.goformat import SECOND, parse_duration, quote

if TYPE_CHECKING:
    from typing import Any

MOST_UPLOADS = 10_000


class _Block:
    """The block's target: JetStream's own options, and the store directory beside them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.js = options.jetstream


def read_store_dir(options: Options, value: Value, problems: Problems) -> None:
    """`store_dir`, at the top level or in the block, but not in both."""
    path = as_text(value)
    if options.store_dir:
        raise OptionError(value, "Duplicate 'store_dir' configuration")
    options.store_dir = path


def _read_block_store_dir(block: _Block, value: Value, problems: Problems) -> None:
    read_store_dir(block.options, value, problems)


def _js(reader: Reader) -> Reader:
    """A reader of JetStream's own options, in the block."""

    def read(block: _Block, value: Value, problems: Problems) -> None:
        reader(block.js, value, problems)

    return read


def _read_strict(js: JetStreamOptions, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, bool):
        raise OptionError(value, f"Expected 'true' or 'false' for bool value, got '{shown(value)}'")
    js.strict = value.data


_CIPHERS = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}


def _read_cipher(js: JetStreamOptions, value: Value, problems: Problems) -> None:
    name = as_text(value)
    if name.lower() not in _CIPHERS:
        raise OptionError(value, f"Unknown cipher type: {quote(name)}")
    js.cipher = _CIPHERS[name.lower()]


def _read_sync_interval(js: JetStreamOptions, value: Value, problems: Problems) -> None:
    if isinstance(value.data, str) and value.data.lower() == "always":
        js.sync_interval = None
        return
    ns = as_duration(value, "sync_interval", problems)
    if ns < 0:
        raise OptionError(value, "invalid sync_interval, needs to be positive")
    js.sync_interval = ns or None


def _count(attribute: str, default: int = 0) -> Reader:
    """A number of entries; what is not above 0 means the default."""

    def read(js: Any, value: Value, problems: Problems) -> None:
        if type(value.data) is not int:
            raise OptionError(
                value, f'Expected a parseable size for "{attribute}", got {shown(value)}'
            )
        setattr(js, attribute, value.data if value.data > 0 else default)

    return read


def _read_meta_compact(js: Any, value: Value, problems: Problems) -> None:
    if type(value.data) is not int or value.data < 0:
        raise OptionError(
            value, f'Expected an absolute size for "meta_compact", got {shown(value)}'
        )
    js.meta_compact = value.data


def _read_meta_compact_size(js: Any, value: Value, problems: Problems) -> None:
    number = as_size(value, "meta_compact_size")
    if number < 0:
        raise OptionError(
            value, f'Expected an absolute size for "meta_compact_size", got {shown(value)}'
        )
    js.meta_compact_size = number


def _read_concurrent_io(js: Any, value: Value, problems: Problems) -> None:
    if type(value.data) is not int or not 4 <= value.data <= 8192:
        raise OptionError(
            value,
            'Expected an absolute size for "max_concurrent_io" between 4 and 8192, '
            f"got {shown(value)}",
        )
    js.max_concurrent_io = value.data


def _span(attribute: str) -> Reader:
    """A duration that must be a string."""

    def read(limits: Any, value: Value, problems: Problems) -> None:
        try:
            ns = parse_duration(as_text(value))
        except ValueError as error:
            raise OptionError(value, str(error)) from None
        setattr(limits, attribute, max(ns, 0))

    return read


_OWN_PACE = "the meta group takes a snapshot every minute in which it changed, by a sync of its own"
_BUFFERED = 100_000
_NO_QUEUE = "a publish is handled as it is read, and waits in no queue"

_BATCH: dict[str, Reader] = {
    "max_inflight_per_stream": integer("max_batch_inflight_per_stream"),
    "max_inflight_total": integer("max_batch_inflight_total"),
    "max_msgs": integer("max_batch_size"),
    "timeout": _span("batch_timeout"),
}


def _read_batch(limits: JetStreamLimits, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        raise OptionError(value, f"Expected a map to define batch limits, got {type_name(value)}")
    read_block(limits, value.data, _BATCH, problems)


def _read_outstanding_catchup(js: JetStreamOptions, value: Value, problems: Problems) -> None:
    size("max_outstanding_catchup", "max_outstanding_catchup")(js, value, problems)
    if js.max_outstanding_catchup <= 0:
        js.max_outstanding_catchup = DEFAULT_OUTSTANDING_CATCHUP


_LIMITS: dict[str, Reader] = {
    "max_ack_pending": integer("max_ack_pending"),
    "max_ha_assets": integer("max_ha_assets"),
    "max_request_batch": integer("max_request_batch"),
    "duplicate_window": _span("duplicate_window"),
    "batch": _read_batch,
}


def _read_limits(js: JetStreamOptions, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        raise OptionError(
            value, f"Expected a map to define JetStreamLimits, got {type_name(value)}"
        )
    read_block(js.limits, value.data, _LIMITS, problems)


def _read_max_uploads(objects: ObjectRequests, value: Value, problems: Problems) -> None:
    number = as_int(value)
    if not 1 <= number <= MOST_UPLOADS:
        raise OptionError(value, f"max_uploads must be between 1 and {MOST_UPLOADS}, not {number}")
    objects.max_uploads = number


def _read_upload_timeout(objects: ObjectRequests, value: Value, problems: Problems) -> None:
    ns = as_duration(value, "upload_timeout", problems)
    if ns < SECOND:
        raise OptionError(value, "invalid upload_timeout, needs to be a second or more")
    objects.upload_timeout = ns


_OBJECT_REQUESTS: dict[str, Reader] = {
    "enabled": flag("enabled"),
    "max_uploads": _read_max_uploads,
    "upload_timeout": _read_upload_timeout,
}


def _read_object_requests(js: JetStreamOptions, value: Value, problems: Problems) -> None:
    if isinstance(value.data, bool):
        js.object_requests.enabled = value.data
    elif isinstance(value.data, dict):
        js.object_requests.enabled = True
        read_block(js.object_requests, value.data, _OBJECT_REQUESTS, problems)
    else:
        raise OptionError(
            value, f"Expected map or bool to define object_requests, got {type_name(value)}"
        )


def _read_unique_tag(js: JetStreamOptions, value: Value, problems: Problems) -> None:
    js.unique_tag = as_text(value).strip().lower()


_MEMORY = _js(size("max_memory", "max_mem_store"))
_FILE = _js(size("max_store", "max_file_store"))
_SYNC = _js(_read_sync_interval)
_KEY = _js(text("key"))
_PREVIOUS_KEY = _js(text("prev_key"))

_JETSTREAM: dict[str, Reader] = {
    "enabled": _js(flag("enabled")),
    "enable": _js(flag("enabled")),
    "store_dir": _read_block_store_dir,
    "storedir": _read_block_store_dir,
    "store": _read_block_store_dir,
    "max_memory_store": _MEMORY,
    "max_mem_store": _MEMORY,
    "max_mem": _MEMORY,
    "max_file_store": _FILE,
    "max_file": _FILE,
    "domain": _js(text("domain")),
    "unique_tag": _js(_read_unique_tag),
    "extension_hint": _js(
        ignored(
            "extension_hint", text("extension_hint"), "", "JetStream of a hub is never extended"
        )
    ),
    "strict": _js(_read_strict),
    "sync": _SYNC,
    "sync_interval": _SYNC,
    "limits": _js(_read_limits),
    "max_outstanding_catchup": _js(_read_outstanding_catchup),
    "max_buffered_size": _js(
        ignored(
            "max_buffered_size",
            size("max_buffered_size", "max_buffered_size"),
            128 << 20,
            _NO_QUEUE,
        )
    ),
    "max_buffered_msgs": _js(
        ignored("max_buffered_msgs", _count("max_buffered_msgs", _BUFFERED), _BUFFERED, _NO_QUEUE)
    ),
    "object_requests": _js(_read_object_requests),
    "request_queue_limit": _js(_count("request_queue_limit", DEFAULT_REQUEST_QUEUE_LIMIT)),
    "info_queue_limit": _js(_count("info_queue_limit")),
    "meta_compact": _js(ignored("meta_compact", _read_meta_compact, 0, _OWN_PACE)),
    "meta_compact_size": _js(ignored("meta_compact_size", _read_meta_compact_size, 0, _OWN_PACE)),
    "meta_compact_sync": _js(
        ignored("meta_compact_sync", flag("meta_compact_sync"), False, _OWN_PACE)
    ),
    "max_concurrent_io": _js(
        ignored(
            "max_concurrent_io", _read_concurrent_io, 4096, "one commit thread does all writing"
        )
    ),
    "key": _KEY,
    "ek": _KEY,
    "encryption_key": _KEY,
    "prev_key": _PREVIOUS_KEY,
    "prev_ek": _PREVIOUS_KEY,
    "prev_encryption_key": _PREVIOUS_KEY,
    "cipher": _js(_read_cipher),
    "tpm": unavailable("a key of JetStream in a TPM"),
}


def read_jetstream(options: Options, value: Value, problems: Problems) -> None:
    """Reads the block, or the word or boolean that stands for it, into `options.jetstream`."""
    data = value.data
    if isinstance(data, bool):
        options.jetstream.enabled = data
    elif isinstance(data, str):
        if data.lower() not in ("enabled", "enable", "disabled", "disable"):
            raise OptionError(
                value, f"Expected 'enabled' or 'disabled' for string value, got '{data}'"
            )
        options.jetstream.enabled = data.lower() in ("enabled", "enable")
    elif isinstance(data, dict):
        options.jetstream.enabled = True
        read_block(_Block(options), data, _JETSTREAM, problems)
    else:
        raise OptionError(
            value, f"Expected map, bool or string to define JetStream, got {type_name(value)}"
        )
    js = options.jetstream
    js.info_queue_limit = js.info_queue_limit or js.request_queue_limit
