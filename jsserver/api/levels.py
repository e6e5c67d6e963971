"""The level of the API that a request needs."""

from jsserver import API_LEVEL

HEADER = b"\r\nNats-Required-Api-Level:"


def required_level(headers: bytes) -> bool:
    """Whether this server has the API level that the headers ask for."""
    _, _, rest = headers.partition(HEADER)
    value = rest.partition(b"\r\n")[0].lstrip(b" ")
    if not value:
        return True
    digits = value[1:] if value[:1] in (b"+", b"-") else value
    return digits.isdigit() and int(value) <= API_LEVEL
