"""Unique ids of 22 characters, for events, inboxes and names that nobody chose."""

import os

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_LENGTH = 22


def token(length: int) -> str:
    """Random base62 characters, which cannot be guessed from others that somebody has seen."""
    # A byte is more than a digit needs: what the division leaves over makes no digit likelier.
    rest = int.from_bytes(os.urandom(length))
    digits = []
    for _ in range(length):
        rest, digit = divmod(rest, 62)
        digits.append(ALPHABET[digit])
    return "".join(digits)


def new() -> str:
    """A new id; callable from any thread."""
    return token(_LENGTH)
