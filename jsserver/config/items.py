"""What the lexer of the configuration language hands to the parser."""

from enum import IntEnum


class Kind(IntEnum):
    """What an item is."""

    EOF = 0
    KEY = 1
    STRING = 2
    BOOL = 3
    INTEGER = 4
    FLOAT = 5
    DATETIME = 6
    VARIABLE = 7
    INCLUDE = 8
    MAP_START = 9
    MAP_END = 10
    ARRAY_START = 11
    ARRAY_END = 12


class Item:
    """One item; `column` counts bytes, from 0 on the first line and from 1 on the others."""

    __slots__ = ("column", "kind", "line", "text")

    def __init__(self, kind: Kind, text: str, line: int, column: int) -> None:
        self.kind = kind
        self.text = text
        self.line = line
        self.column = column
