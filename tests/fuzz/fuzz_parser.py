"""Coverage-guided fuzzing of the client protocol's parser; the options are libFuzzer's.

The first byte chooses where the input is cut: the events must be those of the whole input.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from jsserver.cext import net

SEEDS = [
    b"\x03CONNECT {}\r\nPING\r\n",
    b"\x05SUB a.* q 1\r\nUNSUB 1 5\r\n",
    b"\x07PUB a r 3\r\nabc\r\nPUB a 0\r\n\r\n",
    b"\x02HPUB a r 12 15\r\nNATS/1.0\r\n\r\nabc\r\n",
    b"\x01+OK\r\n-ERR 'x'\r\nINFO {}\r\n",
]


def events(pieces: list[bytes]) -> list[tuple[object, ...]]:
    parser = net.PyParser(max_line=256, max_payload=512)
    found: list[tuple[object, ...]] = []
    for piece in pieces:
        found += parser.feed(piece)
        if found and found[-1][0] == "ERROR":
            break
    return found


def one_input(data: bytes) -> None:
    if not data:
        return
    step, data = data[0] or 1, data[1:]
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    if events(pieces) != events([data]):
        raise AssertionError(f"pieces of {step} bytes change the events")


def main() -> None:
    corpus = [word for word in sys.argv[1:] if not word.startswith("-")]
    if corpus:
        for number, seed in enumerate(SEEDS):
            Path(corpus[0], f"seed{number}").write_bytes(seed)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
