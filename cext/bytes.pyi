"""Types of the Python face of the bytes layer."""

from collections.abc import Iterable, Mapping, Sequence

from _typeshed import ReadableBuffer, StrPath

def hh64(key: bytes, data: bytes) -> int:
    """HighwayHash-64 of data under a key of 32 bytes; ValueError for a key of another length."""

def highway_simd(on: bool) -> bool:
    """Turns the vector form of HighwayHash on, where the processor has it, or off; True if on."""

def sha256(data: bytes) -> bytes: ...
def sync_file_system(descriptor: int) -> None:
    """Blocking. Brings everything to disk that was written to the file system that a file is on;
    OSError, also when something could not be written since the descriptor was opened."""

def begin_writing(descriptors: list[int]) -> None:
    """Hands what files hold to their disks, and does not wait for these. A sync of them then
    takes less time, and tells of errors."""

def make_directory_of(
    path: StrPath, folders: Sequence[str], files: Mapping[str, bytes]
) -> list[int]:
    """Blocking. Makes a directory with empty folders and with files in it, and returns descriptors
    of it and of the files, which are still to be synced; OSError: what was made stays."""

def place_directory(path: StrPath, name: StrPath, parent: StrPath) -> int:
    """Blocking. Gives a directory another name, and returns a descriptor of the directory `parent`
    that this is in, which is still to be synced; OSError: it has the name it had."""

def close_files(descriptors: list[int]) -> None:
    """Blocking. Closes up to five descriptors."""

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

class SearchLimit(Exception):
    """A search among patterns took all the steps that it was given."""

def first_overlap(patterns: Sequence[str | bytes], end: int, steps: int) -> tuple[int, int] | None:
    """The numbers of the first pattern before `end` that overlaps with a later one, and of the
    first of those. A pattern with an empty token overlaps with none. The GIL is let go meanwhile.

    SearchLimit: that takes more than `steps` looks at a token."""

def first_covered(patterns: Sequence[str | bytes], end: int, steps: int) -> int | None:
    """The number of the first pattern before `end` that another one covers; as above."""

def any_overlap(patterns: Iterable[str | bytes], pattern: str | bytes) -> bool:
    """Whether one of the patterns overlaps with this one."""

class PatternIndex:
    """Patterns in a trie of tokens, which finds those that overlap with others. One that was added
    twice is there until it was removed twice; one with an empty token never is. For one thread."""

    def add(self, patterns: Iterable[str | bytes]) -> None: ...
    def remove(self, patterns: Sequence[str | bytes]) -> None:
        """Takes back an `add`; KeyError if there was none."""

    def first_covering(self, pattern: str | bytes) -> int | None:
        """How many patterns were added before the first one that covers this one; of an index from
        which none was removed."""

    def meets(self, patterns: Iterable[str | bytes], steps: int) -> bool:
        """Whether one of these overlaps with one that is there. A literal costs a look for each of
        its tokens, a `*` one for each that may stand there. SearchLimit: more than `steps`."""

class SubjectTransform:
    """What becomes of the subjects that its source matches, by the parts that
    `jsserver.text.transforms` reads and checks. The data plane copies it before it applies it."""

    def __init__(
        self, source: bytes, parts: list[tuple[str, int, bytes, tuple[int, ...]]]
    ) -> None: ...
    def __call__(self, subject: str | bytes) -> bytes | None:
        """None: the source does not match. OverflowError: that is longer than 65,535 bytes."""

# ---- S2 and Snappy -----------------------------------------------------------------------------

def s2_decode(data: ReadableBuffer) -> bytes:
    """The plain bytes of one block. ValueError."""

def s2_encode(data: ReadableBuffer, level: int = 2) -> bytes:
    """An S2 stream that holds these bytes."""

def s2_encode_block(data: ReadableBuffer) -> bytes:
    """One block that holds these bytes."""

def crc32c_of(data: ReadableBuffer) -> tuple[int, int]:
    """A CRC-32C computed in both ways, with the processor's instruction and from tables."""

class S2Stream:
    """Decodes a stream of chunks as its pieces come."""

    def feed(self, data: ReadableBuffer) -> bytes:
        """What whole chunks hold so far, about 8 MiB at most: feed b"" until nothing comes.

        ValueError.
        """

    def finish(self) -> None:
        """ValueError when the stream ends inside a chunk, or is none."""
