"""Which names streams and consumers may have."""

_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")
_BELIEVED = ("_R_.", "$JS.DEAD.", "$JS.FC.", "$JS.OBJECT.")


def is_valid_name(name: str) -> bool:
    """Whether a stream or consumer may be called this."""
    return bool(name) and _FORBIDDEN.isdisjoint(name)


def is_believed(subject: str) -> bool:
    """Whether what is sent there is an answer to a service's request, or says to the server what
    became of a message: nobody may have streams and consumers send there."""
    return subject.startswith(_BELIEVED)
