"""Which names streams and consumers may have."""

_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")


def is_valid_name(name: str) -> bool:
    """Whether a stream or consumer may be called this."""
    return bool(name) and _FORBIDDEN.isdisjoint(name)
