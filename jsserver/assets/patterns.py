"""Questions about many patterns at once, each answered within a bound.

A question beyond the bound is refused: some sets of wildcards can only be compared each with each.

A token such as `*foo` is literal where messages are matched. Where patterns of a configuration are
compared it counts as `*`, as nats-server has it: the filters `["*foo", "bar"]` overlap.
"""

import re
from collections.abc import Sequence

from jsserver.cext import bytes as cext
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

MOST_LOOKS = 1 << 26
"""At a token, while patterns are compared with each other: about a second, beside the loop."""
MOST_LOOKS_AT_ONCE = 1 << 21
"""As above, while they are compared with an index on the event loop: about 20 milliseconds."""
MOST_TOKENS = 1 << 18
"""Of all patterns that come into an index together: about 50 milliseconds on the event loop."""

_STAR_AND_MORE = re.compile(r"(?<![^.])\*[^.]+")
_WILDCARD_AND_MORE = re.compile(r"(?<![^.])[*>][^.]+")
_WILDCARD = re.compile(r"(?<![^.])(?:\*|>$)(?![^.])")


def widened(pattern: str) -> str:
    """What a pattern counts as where overlaps are looked for: with `*` for each token that begins
    with a wildcard. A pattern without a wildcard proper stays as it is."""
    if _WILDCARD_AND_MORE.search(pattern) and _WILDCARD.search(pattern):
        return _WILDCARD_AND_MORE.sub("*", pattern)
    return pattern


def _all_widened(patterns: Sequence[str]) -> Sequence[str]:
    text = "".join(patterns)
    if "*" in text or ">" in text:
        return [widened(p) for p in patterns]
    return patterns


def _too_many() -> ApiError:
    return errcodes.STREAM_INVALID_CONFIG(
        err="subjects have too many wildcards to be compared with each other"
    )


def first_overlap(patterns: Sequence[str], end: int) -> tuple[int, int] | None:
    """The numbers of the first pattern before `end` that overlaps with a later one, and of the
    first of those; ApiError if that takes too long."""
    try:
        return cext.first_overlap(_all_widened(patterns), end, MOST_LOOKS)
    except cext.SearchLimit:
        raise _too_many() from None


def first_covered(patterns: Sequence[str], end: int) -> int | None:
    """The number of the first pattern before `end` that another one covers; as above. Here `*foo`
    counts as `*` in patterns without wildcards too."""
    try:
        some = [_STAR_AND_MORE.sub("*", p) if "*" in p else p for p in patterns]
        return cext.first_covered(some, end, MOST_LOOKS)
    except cext.SearchLimit:
        raise _too_many() from None


def check_tokens(patterns: Sequence[str]) -> None:
    """Raises ApiError for patterns that an index would take too long to take in or to forget."""
    if len(patterns) + sum(p.count(".") for p in patterns) > MOST_TOKENS:
        raise errcodes.STREAM_INVALID_CONFIG(
            err=f"subjects have more than {MOST_TOKENS} tokens together"
        )


def captures(subjects: Sequence[str], wanted: str) -> bool:
    """Whether any of a stream's subjects has some in common with this one."""
    if cext.subject_is_valid(wanted):
        return any(cext.subjects_overlap(own, wanted) for own in subjects)
    return any(_meets(own.split("."), wanted.split(".")) for own in subjects)


def _meets(own: list[str], tokens: list[str]) -> bool:
    """As subjects overlap, of tokens that make no subject: nats-server looks at these as well."""
    for one, other in zip(own, tokens, strict=False):
        if ">" in (one, other):
            return True
        if "*" not in (one, other) and one != other:
            return False
    return len(own) == len(tokens)


class PatternIndex:
    """The patterns that some owners claim, which do not overlap with each other's. On the event
    loop."""

    def __init__(self) -> None:
        self._index = cext.PatternIndex()

    def add(self, patterns: Sequence[str]) -> None:
        """An owner claims these. The same ones may be claimed twice."""
        self._index.add(_all_widened(patterns))

    def remove(self, patterns: Sequence[str]) -> None:
        """Takes back an `add`; KeyError if there was none."""
        self._index.remove(_all_widened(patterns))

    def meets(self, patterns: Sequence[str], own: Sequence[str] = ()) -> bool:
        """Whether one of these overlaps with one that is claimed, but for those that the owner has
        claimed before; ApiError if that takes too long."""
        fresh = list(set(patterns).difference(own)) if own else patterns
        if not fresh:
            return False
        text = "".join((*own, *fresh))
        if "*" not in text and ">" not in text:
            own = ()  # different literal ones do not meet
        fresh, own = _all_widened(fresh), _all_widened(own)
        self._index.remove(own)  # they would be looked at in vain
        try:
            return self._index.meets(fresh, MOST_LOOKS_AT_ONCE)
        except cext.SearchLimit:
            raise _too_many() from None
        finally:
            self._index.add(own)
