"""Whole streams of S2 (https://github.com/klauspost/compress/tree/master/s2), of which nothing is
trusted. What writes them is `s2_encode` of the data plane."""

from jsserver.cext.bytes import S2Stream


def decompress(data: bytes, most: int) -> bytes:
    """What a stream holds; ValueError where it is none, or holds more than `most` bytes."""
    stream, parts, size = S2Stream(), [], 0
    piece = stream.feed(data)
    while piece:
        size += len(piece)
        if size > most:
            raise ValueError("the stream holds too much")
        parts.append(piece)
        piece = stream.feed(b"")
    stream.finish()
    return b"".join(parts)
