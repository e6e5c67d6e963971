"""Client conversations for fuzzing the protocol's parser: their bytes and what they mean."""

from hypothesis import strategies as st

Event = tuple[object, ...]

BLANKS = st.sampled_from([b" ", b"\t", b"  ", b" \t "])
ENDS = st.sampled_from([b"\r\n", b"\n"])
TOKENS = st.binary(min_size=1, max_size=12).filter(lambda t: not set(t) & set(b" \t\r\n"))
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"\r\n", b"PING\r\n", b"x" * 3000]),
)


def any_case(draw: st.DrawFn, verb: bytes) -> bytes:
    return bytes(draw(st.sampled_from([byte, byte | 32])) for byte in verb)


@st.composite
def publish(draw: st.DrawFn) -> tuple[bytes, Event]:
    subject, body = draw(TOKENS), draw(BODIES)
    reply = draw(st.one_of(st.just(b""), TOKENS))
    header = draw(BODIES) if draw(st.booleans()) else None
    words = [any_case(draw, b"PUB" if header is None else b"HPUB"), subject]
    words += [reply] if reply else []
    data = body
    if header is not None:
        words.append(b"%d" % len(header))
        data = header + body
    words.append(b"0" * draw(st.integers(0, 3)) + b"%d" % len(data))
    line = draw(BLANKS).join(words) + draw(ENDS)
    return line + data + b"\r\n", ("PUB", subject, reply, b"", b"", header or b"", body, 0)


@st.composite
def subscribe(draw: st.DrawFn) -> tuple[bytes, Event]:
    subject, sid = draw(TOKENS), draw(TOKENS)
    queue = draw(st.one_of(st.just(b""), TOKENS))
    words = [any_case(draw, b"SUB"), subject, *([queue] if queue else []), sid]
    line = draw(BLANKS).join(words) + draw(ENDS)
    return line, ("SUB", subject, b"", queue, sid, b"", b"", 0)


@st.composite
def unsubscribe(draw: st.DrawFn) -> tuple[bytes, Event]:
    sid, most = draw(TOKENS), draw(st.integers(0, 999_999_999))
    words = [any_case(draw, b"UNSUB"), sid, *([b"%d" % most] if most else [])]
    line = draw(BLANKS).join(words) + draw(ENDS)
    return line, ("UNSUB", b"", b"", b"", sid, b"", b"", most)


@st.composite
def ping(draw: st.DrawFn) -> tuple[bytes, Event]:
    verb = draw(st.sampled_from([b"PING", b"PONG", b"+OK"]))
    junk = draw(st.sampled_from([b"", b"junk", b" and more"]))
    name = verb.decode()
    return any_case(draw, verb) + junk + draw(ENDS), (name, b"", b"", b"", b"", b"", b"", 0)


def conversations() -> st.SearchStrategy[list[tuple[bytes, Event]]]:
    """Valid operations with the event that each must give."""
    return st.lists(st.one_of(publish(), subscribe(), unsubscribe(), ping()), max_size=12)


FRAGMENTS = [
    *(b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'x'\r\n", b"INFO {}\r\n", b"CONNECT {}\r\n"),
    *(b"PUB a 3\r\nabc\r\n", b"PUB a r 0\r\n\r\n", b"HPUB a 2 4\r\nabcd\r\n", b"SUB a q 1\r\n"),
    *(b"UNSUB 1 5\r\n", b"PUB ", b"SUB ", b"HPUB ", b"UNSUB ", b"999999999", b"-1", b"\r\n"),
    *(b"\n", b"\r", b" ", b"\t", b"\0", b"\xff", b"a" * 100, b"0" * 10),
]


def noise() -> st.SearchStrategy[bytes]:
    """Bytes near to the protocol and far from it."""
    piece = st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=6))
    return st.lists(piece, max_size=20).map(b"".join)
