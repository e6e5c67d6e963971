"""What the API knows but this server does not do yet. An entry is removed when the thing is built.

Options listed here are validated as documented and then refused; no option is accepted and ignored.
"""

from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import StreamConfig, SubjectTransform

STREAM_OPTIONS = ("compression",)


def _refusal(what: str) -> ApiError:
    return errcodes.STREAM_INVALID_CONFIG(err=f"{what} is not supported by this server yet")


UNSET: tuple[object, ...] = (None, False, 0, "", "none", [], SubjectTransform())
"""What an option is when it asks for nothing: a transform of nothing into nothing changes none."""


def check_stream(config: StreamConfig) -> None:
    """Raises if a valid configuration asks for something that is not built."""
    for option in STREAM_OPTIONS:
        if getattr(config, option) not in UNSET:
            raise _refusal(f"stream option {option}")
