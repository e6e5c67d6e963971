"""What of the data plane reaches the system itself, and what draws numbers that can be guessed."""

import re
from collections.abc import Iterator

import pytest

from tests.unit.test_layers import CEXT, name_of

#: Layers that reach the system only through their environment's tables.
CLOSED = ("store", "stream", "consumer")
#: What asks the system for something. Names of types and constants may stand anywhere.
SYSTEM_CALLS = re.compile(
    r"(?<![\w.])(?:c_)?(?:"
    r"pthread_(?!t\b|mutex_t\b|cond_t\b)\w+|open|openat|close|p?readv?|p?writev?|fsync|fdatasync|syncfs|sync|sync_file_range|f?truncate"
    r"|fallocate|posix_\w*fadvise|fcntl|flock|[fl]?stat|rename|unlink|mkdir|rmdir|opendir|readdir|closedir|utimens|futimens"
    r"|mmap|munmap|mremap|mprotect|madvise|msync|clock_\w+|gettimeofday|time|nanosleep|usleep|sleep|getrandom|random"
    r"|rand|socket|send|recv|poll|epoll_\w+|eventfd|sigaction|fork|sched_\w+"
    r")\s*\("
)
#: Modules of C that stand for the system, and what of them is no call.
POSIX = re.compile(r"^\s*from (?:posix\.\w+|libc\.time|libc\.signal) cimport (.+)$", re.MULTILINE)
INCLUDED = re.compile(r"#include <((?:sys/|pthread|unistd|fcntl|dirent|signal|time|stdio)[\w/.]*)>")


def system_calls(text: str) -> Iterator[str]:
    """What of the data plane's code goes past the tables, through Python's modules too."""
    code = re.sub(r'"[^"\n]*"|#(?!include).*', "", text)
    code = re.sub(r"^\s*(?:cdef|cpdef|def)\b[^=\n]*$", "", code, flags=re.MULTILINE)
    yield from (m.group() for m in SYSTEM_CALLS.finditer(code))
    yield from re.findall(r"\bos\.(?!path\.|fsencode|fsdecode|strerror)\w+\(", code)
    for names in POSIX.findall(text):
        yield from (n for n in re.findall(r"\w+", names) if not (n.isupper() or n.endswith("_t")))
    yield from INCLUDED.findall(text)


#: The lock on a directory, which is the control plane's.
OUTSIDE = {"store/face.pxi"}


def test_store_stream_and_consumer_reach_the_system_only_through_their_environment() -> None:
    past = []
    for layer in CLOSED:
        for suffix in (".pyx", ".pxd", ".pxi", ".h"):
            for path in [*CEXT.glob(f"{layer}{suffix}"), *(CEXT / layer).glob(f"*{suffix}")]:
                if str(path.relative_to(CEXT)) not in OUTSIDE:
                    calls = system_calls(path.read_text())
                    past += [f"{name_of(path)}: {call}" for call in calls]
    assert not past, "\n".join(past)


#: What draws numbers that can be computed from others: jitter, samples, receivers, destinations.
DRAWING = {
    *("bytes/hash.pxi", "bytes/transform.pxi", "consumer/acks.pxi", "core/mappings.pxi"),
    *("core/reports.pxi", "core/router.pxi", "net/handshake.pxi"),
}


def test_ids_are_not_made_of_numbers_that_can_be_guessed() -> None:
    """Subjects, tokens and nonces come from env_secret and env_token."""
    used = {
        str(path.relative_to(CEXT))
        for path in CEXT.rglob("*.pxi")
        if re.search(r"\benv_random\(", path.read_text())
    }
    assert used == DRAWING


@pytest.mark.parametrize(
    "text",
    [
        "fd = c_fsync(fd)",
        "    pthread_mutex_lock(&c.q)",
        "    # open\n    cdef int fd = open(path, 0)",
        "from posix.unistd cimport fsync",
        "    #include <sys/mman.h>",
        "p = mmap(NULL, n, 0, 0, fd, 0)",
        "os.sync()",
        "with open(path) as f:",
    ],
)
def test_a_call_past_the_environment_is_seen(text: str) -> None:
    assert list(system_calls(text))
