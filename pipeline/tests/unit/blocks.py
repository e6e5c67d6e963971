"""Blocks as the readers of stores take them."""

from jsserver_spark.cext.columns import Plain


def plain(*parts: bytes) -> Plain:
    """A block of these bytes."""
    made = Plain()
    made.extend(b"".join(parts))
    return made
