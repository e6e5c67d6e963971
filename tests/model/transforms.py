"""A plain model of what transforms make of subjects, and random ones to try it on."""

from __future__ import annotations

import random
from dataclasses import dataclass

LETTERS = "abcxyz-_0é€"


@dataclass
class Call:
    """A token of a destination: a function of wildcards, which count from 1, or a text."""

    function: str
    numbers: tuple[int, ...] = ()
    text: str = ""

    def written(self, rng: random.Random) -> str:
        if self.function == "text":
            return self.text
        if self.function == "$":
            return f"${self.numbers[0]}"
        name = self.function
        if rng.random() < 0.5:
            name = name[0].upper() + name[1:]
        if rng.random() < 0.2:
            name = name.replace("From", "from").replace("Left", "left").replace("Right", "right")
        arguments = [str(number) for number in self.numbers]
        if self.function == "split":
            arguments.append(self.text)
        comma = rng.choice((",", ", "))
        inner = comma.join(arguments)
        if self.function != "split" and rng.random() < 0.2:
            inner = f" {inner} "
        return f"{{{{{inner.join((f'{name}(', ')'))}}}}}"

    def made(self, tokens: list[str], stars: list[int]) -> str:
        """What it makes of a subject; stars: where the wildcards of its source stand."""

        def wildcard(number: int) -> bytes:
            return tokens[stars[number - 1] if number > 0 else 0].encode()

        if self.function == "text":
            return self.text
        if self.function == "partition":
            most, *numbers = self.numbers
            key = b"".join(map(wildcard, numbers)) if numbers else ".".join(tokens).encode()
            return str(hashed(key) % most) if most else "0"
        if self.function == "random":
            return "0"
        token = wildcard(self.numbers[0])
        if self.function in ("$", "wildcard"):
            return raw(token)
        if self.function == "split":
            return split(token, self.text.encode())
        size = self.numbers[1]
        if not 0 < size < len(token):
            return raw(token)
        match self.function:
            case "splitFromLeft":
                pieces = [token[:size], token[size:]]
            case "splitFromRight":
                pieces = [token[:-size], token[-size:]]
            case "sliceFromLeft":
                pieces = [token[at : at + size] for at in range(0, len(token), size)]
            case "sliceFromRight":
                first = len(token) % size
                pieces = [token[:first]] if first else []
                pieces += [token[at : at + size] for at in range(first, len(token), size)]
            case "left":
                pieces = [token[:size]]
            case _:
                pieces = [token[-size:]]
        return raw(b".".join(pieces))


def raw(data: bytes) -> str:
    """Bytes that may be half of a character."""
    return data.decode("utf-8", "surrogateescape")


def hashed(key: bytes) -> int:
    value = 2166136261
    for byte in key:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def split(token: bytes, by: bytes) -> str:
    """Empty pieces are left out, with the dot before them; only one before the second is kept."""
    pieces = token.split(by) if by else [letter.encode() for letter in raw(token)]
    made = b""
    for at, piece in enumerate(pieces):
        if at and piece and not (at == 1 and not pieces[0]):
            made += b"."
        made += piece
    return raw(made)


@dataclass
class Model:
    """A transform of `source` by `calls`, with `rest` at the end of both."""

    source: list[str]
    calls: list[Call]

    @property
    def rest(self) -> bool:
        return self.source[-1] == ">"

    def destination(self, rng: random.Random) -> str:
        return ".".join([call.written(rng) for call in self.calls] + [">"] * self.rest)

    def made(self, subject: str) -> str | None:
        """None where the source does not match."""
        tokens = subject.split(".")
        fixed = self.source[: len(self.source) - self.rest]
        if len(tokens) < len(self.source) or (not self.rest and len(tokens) > len(fixed)):
            return None
        if any(token in ("", "*", ">") for token in tokens):
            return None
        if any(f not in ("*", t) for f, t in zip(fixed, tokens, strict=False)):
            return None
        stars = [at for at, token in enumerate(self.source) if token == "*"]
        made = [call.made(tokens, stars) for call in self.calls]
        return ".".join(made + tokens[len(fixed) :] * self.rest)


def token(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.choice((1, 1, 2, 3, 5, 8))))


def call(rng: random.Random, stars: int, unlimited: bool) -> Call:
    if rng.random() < 0.25:
        return Call("text", text=rng.choice(("t", "$", "$x", "{{", "}}", "a-b", "é")))
    if stars == 0 or rng.random() < 0.25:
        numbers = [rng.randint(0, stars) for _ in range(rng.choice((0, 1, 2, 3)))] if stars else []
        most = rng.choice((0, 1, 2, 10, 1000, 2147483647))
        # Without a wildcard nats-server may hash nothing: not what is compared.
        if not numbers and not unlimited:
            return Call("random", (rng.choice((0, 1)),))
        return Call("partition", (most, *numbers))
    function = rng.choice(
        ("$", "wildcard", "split", "splitFromLeft", "splitFromRight", "sliceFromLeft")
        + ("sliceFromRight",)
        + ("left", "right") * unlimited
    )
    index = rng.randint(0, stars)
    if function in ("$", "wildcard"):
        return Call(function, (index,))
    if function == "split":
        return Call(function, (index,), rng.choice(("-", "--", "a", "é", "xy", "")))
    return Call(function, (index, rng.choice((-1, 0, 1, 1, 2, 3, 5, 100))))


def model(rng: random.Random, first: str = "s", *, unlimited: bool = True) -> Model:
    """Of subjects that begin with a token; unlimited: with all that only the data plane takes."""
    source = [first] + [rng.choice(("*", "*", "b")) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if rng.random() < 0.3:
        source.append(">")
    stars = source.count("*")
    return Model(source, [call(rng, stars, unlimited) for _ in range(rng.choice((1, 1, 2, 3)))])


def subject(rng: random.Random, of: Model) -> str:
    """One that the source matches, but for some that it does not."""
    tokens = [token(rng) if t == "*" else t for t in of.source if t != ">"]
    if of.rest or rng.random() < 0.1:
        tokens += [token(rng) for _ in range(rng.choice((1, 1, 2, 4)))]
    if rng.random() < 0.1:
        tokens[rng.randrange(1, len(tokens)) if len(tokens) > 1 else 0] = rng.choice(
            ("x", "*", ">")
        )
    return ".".join(tokens)
