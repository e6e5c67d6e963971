"""Types of the Python face of the bytes layer."""

def hh64(key: bytes, data: bytes) -> int:
    """HighwayHash-64 of data under a key of 32 bytes; ValueError for a key of another length."""

def highway_simd(on: bool) -> bool:
    """Turns the vector form of HighwayHash on, where the processor has it, or off; True if on."""

def sha256(data: bytes) -> bytes: ...
def snappy(data: bytes) -> bytes:
    """The data as a stream of Snappy's chunks."""

def subject_matches(pattern: str | bytes, subject: str | bytes) -> bool:
    """Whether pattern (with * and >) matches subject, whose own wildcards count as literals."""

def subject_covers(outer: str | bytes, inner: str | bytes) -> bool:
    """Whether outer matches every literal that inner matches."""

def subjects_overlap(a: str | bytes, b: str | bytes) -> bool:
    """Whether some literal is matched by both."""

def subject_is_valid(subject: str | bytes) -> bool:
    """Whether there is no empty token, no blank, and > only as the last token."""

def subject_is_literal(subject: str | bytes) -> bool:
    """Whether no token is a wildcard."""

class SubjectTransform:
    """What becomes of subjects, by the parts that `jsserver.text.transforms` reads and checks."""

    def __init__(self, parts: list[tuple[str, int, bytes, tuple[int, ...]]]) -> None: ...
    def __call__(self, subject: str | bytes) -> bytes:
        """Of a subject that the transform's source matches."""
