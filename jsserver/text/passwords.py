"""What is stored of a password: its text, or a hash of it by bcrypt."""

import re

_HASH = re.compile(r"\$2[abxy]\$(\d{2})\$")
_WHOLE = re.compile(r"\$2[abxy]\$\d{2}\$[./A-Za-z0-9]{53}")
_COSTS = range(4, 32)


def is_bcrypt(password: str) -> bool:
    """Whether it is taken for a hash."""
    return _HASH.match(password) is not None


def fits_nobody(password: str) -> bool:
    """Whether it is taken for a hash, and is one of no password: it was cut, or has other signs."""
    found = _HASH.match(password)
    if found is None:
        return False
    return _WHOLE.fullmatch(password) is None or int(found[1]) not in _COSTS
