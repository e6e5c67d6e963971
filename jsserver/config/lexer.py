"""Lexer of the configuration language: text in, items (keys, values, starts and ends) out.

The lexer is a state machine with one method a state; a state consumes input, may emit one item and
returns the state to go on with. Where a value, a comment or an include is nested in something, the
state to come back to waits on a stack, so that nesting costs no recursion. What looks odd here
(a bare `2m` is a number, `[1]` is none, a lone `}` is tolerated) is what nats-server does with the
same text: a configuration file must mean the same to both servers.
"""

import re
from collections.abc import Iterator

from jsserver.config.cursor import EOF, NEWLINES, Cursor, State, shown
from jsserver.config.items import Item, Kind

_SPACES = " \t"
_BLANKS = (
    _SPACES + NEWLINES + "\v\f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""White space of Unicode; any of it ends a key, but only the first two kinds end a value."""
_SEPARATORS = ":="
_DIGITS = "0123456789"
_HEX = "0123456789abcdefABCDEF"
_SUFFIXES = "kKmMgGtTpPeE"
_AFTER_NUMBER = _SPACES + NEWLINES + EOF + ",;}"
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_DATE_SHAPE = "-99-99T99:99:99Z"
_NO_INCLUDE = {
    "{": "start of a map",
    "[": "start of an array",
    "(": "start of a block",
    "\\": "escape sequence",
}

# Runs of characters.
_SPACE = re.compile(f"[{_SPACES}]*")
_BLANK = re.compile(f"[{_BLANKS}]*")
_BARE_KEY = re.compile(f"[^{_BLANKS}{_SEPARATORS}]*")
_WORD = re.compile(r"[^\\ \t\r\n,;\]}']*")
_PATH = re.compile(r"[^ \t\r\n;}']*")
_NUMBER = re.compile("[0-9]*")
_UNIT = re.compile("[iIbB]*")
_ADDRESS = re.compile("[0-9.:-]*")
_QUOTED = {"'": re.compile("[^']*"), '"': re.compile('[^"]*')}
_DOUBLE_QUOTED = re.compile(r'[^"\\]*')


class Lexer(Cursor):
    """Iterates over the items of one text; raises ConfigError where the text is no configuration.

    The text holds no NUL.
    """

    def __iter__(self) -> Iterator[Item]:
        nul = self.text.find(EOF)
        if nul >= 0:
            self.pos = nul
            raise self._error("A NUL byte is not allowed")
        state: State | None = self._top
        while state is not None:
            state = state()
            if self._items:
                yield from self._items
                self._items.clear()

    # The top level.

    def _top(self) -> State | None:
        char = self._lead(_BLANK)
        if char == "{":
            self._push(self._top)
            return self._block_key
        if char in (EOF, "/"):
            return self._end()
        self._back()
        self._push(self._top_value_end)
        return self._key_start

    def _top_value_end(self) -> State | None:
        char = self._lead(_SPACE)
        if char == "/":
            return self._top_value_end
        if char in NEWLINES + ",;}":
            self.start = self.pos
            return self._top
        if char == EOF:
            self._emit(Kind.EOF)
            return None
        raise self._error(
            "Expected a top-level value to end with a new line, comment or EOF, "
            f"but got '{shown(char)}' instead."
        )

    # The block in braces around a whole file in JSON's form.

    def _block_key(self) -> State | None:
        char = self._lead(_BLANK)
        if char == "{":
            self._push(self._block_end)
            return self._block_key
        if char == "}":
            self.start = self.pos
            return self._pop()
        if char in (EOF, "/"):
            return self._end()
        self._back()
        self._push(self._block_value_end)
        return self._key_start

    def _block_end(self) -> State:
        """After a block inside a block."""
        char = self._lead(_BLANK)
        if char == "/":
            return self._block_end
        if char in ",;":
            return self._block_key
        if char == "}":
            self.start = self.pos
            return self._pop()
        raise self._error(
            f"Expected a block-level to end with a '}}', but got '{shown(char)}' instead."
        )

    def _block_value_end(self) -> State:
        char = self._lead(_SPACE)
        if char == "/":
            return self._block_value_end
        if char in NEWLINES + ",;":
            self.start = self.pos
            return self._block_key
        if char == "}":
            self.start = self.pos
            return self._pop()
        raise self._error(
            "Expected a block-level value to end with a new line, comment or EOF, "
            f"but got '{shown(char)}' instead."
        )

    # Keys at the top level and in a block.

    def _key_start(self) -> State | None:
        self._skip(_BLANK)
        char = self._peek()
        if char in _SEPARATORS:
            raise self._error(f"Unexpected key separator '{char}'")
        if char in "\"'":
            return self._quoted_key(char)
        self._scan(_BARE_KEY)
        if self._peek() in _BLANKS and self._is_include():
            return self._include
        self._emit(Kind.KEY)
        return self._key_end

    def _quoted_key(self, quote: str) -> State | None:
        self.pos += 1
        self.start = self.pos
        self._scan(_QUOTED[quote])
        if self._peek() == EOF:
            return self._end()
        self._emit(Kind.KEY)
        self.pos += 1
        self.start = self.pos
        return self._key_end

    def _is_include(self) -> bool:
        if self.text[self.start : self.pos].lower() != "include":
            return False
        self.start = self.pos
        return True

    def _key_end(self) -> State | None:
        self._skip(_BLANK)
        char = self._peek()
        if char == EOF:
            self._emit(Kind.EOF)
            return None
        if char in _SEPARATORS:
            self.pos += 1
            self.start = self.pos
        return self._value

    # Includes: the path is raw text.

    def _include(self) -> State | None:
        self._skip(_SPACE)
        char = self._next()
        if char in NEWLINES:
            raise self._error("Expected include value but found new line")
        if char in "\"'":
            self.start = self.pos
            self._scan(_QUOTED[char])
            if self._peek() == EOF:
                name = "double quoted" if char == '"' else "quoted"
                raise self._error(f"Unexpected EOF in {name} include")
            self._emit(Kind.INCLUDE)
            self.pos += 1
            self.start = self.pos
            return self._pop()
        if char in _DIGITS + "-":
            raise self._error("Expected include value but found start of a number")
        if char in _NO_INCLUDE:
            raise self._error(f"Expected include value but found {_NO_INCLUDE[char]}")
        self._back()
        self._scan(_PATH)
        self._emit(Kind.INCLUDE)
        if self._peek() == "'":
            self.pos += 1
        return self._pop()

    # Values.

    def _value(self) -> State | None:
        self._skip(_SPACE)
        char = self._next()
        if char in NEWLINES:
            raise self._error("Expected value but found new line")
        if char == "[":
            self._emit(Kind.ARRAY_START)
            return self._array_value
        if char == "{":
            self._emit(Kind.MAP_START)
            return self._map_key
        if char == "'":
            return self._raw_string()
        if char == '"':
            self.start = self.pos
            return self._double_string
        if char == "-":
            return self._negative
        if char == "(":
            return self._block_string()
        if char in _DIGITS:
            return self._number
        if char == ".":
            raise self._error("Floats must start with a digit")
        self._back()
        return self._string

    def _raw_string(self) -> State | None:
        self.start = self.pos
        self._scan(_QUOTED["'"])
        if self._peek() == EOF:
            return self._end()
        self._emit(Kind.STRING)
        self.pos += 1
        self.start = self.pos
        return self._pop()

    def _block_string(self) -> State:
        """The text after `(` up to a line that is `)` alone."""
        self.start = self.pos
        end = self.text.find("\n)\n", self.pos)
        if end < 0:
            self.pos = len(self.text)
            raise self._error("Unexpected EOF processing block.")
        self.pos = end + 1
        self._emit(Kind.STRING)
        self.pos += 1
        self.start = self.pos
        return self._pop()

    def _take_string(self) -> str:
        text = "".join(self._parts) + self.text[self.start : self.pos]
        if self._parts:
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
            self._parts.clear()
        return text

    def _double_string(self) -> State | None:
        self._scan(_DOUBLE_QUOTED)
        char = self._peek()
        if char == EOF:
            return self._end()
        if char == "\\":
            self._escape()
            return self._double_string
        self._emit(Kind.STRING, self._take_string())
        self.pos += 1
        self.start = self.pos
        return self._pop()

    def _escape(self) -> None:
        """One escape; what it stands for goes to the parts of the string."""
        self._parts.append(self.text[self.start : self.pos])
        if self._first < 0:
            self._first = self.start
        self.pos += 1
        char = self._next()
        if char == "x":
            code = self._hex_digits()
            self._parts.append(chr(code) if code < 0x80 else chr(0xDC00 + code))
        elif char in _ESCAPES:
            self._parts.append(_ESCAPES[char])
        else:
            raise self._error(
                f"Invalid escape character '{shown(char)}'. Only the following escape "
                'characters are allowed: \\xXX, \\t, \\n, \\r, \\", \\\\.'
            )
        self.start = self.pos

    def _hex_digits(self) -> int:
        expected = "Expected two hexadecimal digits after '\\x'"
        start = self.pos
        if self._next() in NEWLINES or self._next() in NEWLINES:
            raise self._error(f"{expected}, but hit end of line")
        digits = self.text[start : self.pos]
        if len(digits) != 2 or any(digit not in _HEX for digit in digits):
            seen = self.text[: self.pos].encode("utf-8", "surrogateescape")[-2:]
            raise self._error(f"{expected}, but got '{seen.decode('utf-8', 'replace')}'")
        return int(digits, 16)

    def _string(self) -> State:
        """A bare word: a string, a boolean or a variable's name."""
        self._scan(_WORD)
        char = self._peek()
        if char == "\\":
            self._escape()
            return self._string
        plain = not self._parts and char != "'"
        text = self._take_string()
        if plain and text.lower() in _BOOLEANS:
            self._emit(Kind.BOOL, text.lower())
        elif plain and text.startswith("$"):
            self.start += 1
            self._emit(Kind.VARIABLE, text[1:])
        else:
            self._emit(Kind.STRING, text)
        if char == "'":
            self.pos += 1
            self.start = self.pos
        return self._pop()

    # Numbers, and what begins like one.

    def _negative(self) -> State:
        char = self._next()
        if char == ".":
            raise self._error("Floats must start with a digit, not '.'.")
        if char not in _DIGITS:
            raise self._error(f"Expected a digit but got '{shown(char)}'.")
        self._scan(_NUMBER)
        return self._number_end(strings=False)

    def _number(self) -> State:
        self._scan(_NUMBER)
        if self._peek() == "-":
            return self._date()
        return self._number_end(strings=True)

    def _number_end(self, strings: bool) -> State:
        char = self._peek()
        if char == ".":
            self.pos += 1
            return self._float()
        if char in _SUFFIXES:
            self.pos += 1
            return self._suffix()
        if strings and char not in _AFTER_NUMBER:
            self.pos += 1
            return self._string
        self._emit(Kind.INTEGER)
        return self._pop()

    def _suffix(self) -> State:
        """After `1k`: `b`, `i` or `ib` may follow; what is no digit makes it a string after all."""
        self._scan(_UNIT)
        char = self._peek()
        if char in _AFTER_NUMBER or char in _DIGITS:
            self._emit(Kind.INTEGER)
            return self._pop()
        return self._string

    def _float(self) -> State:
        char = self._next()
        if char not in _DIGITS:
            raise self._error(
                f"Floats must have a digit after the '.', but got '{shown(char)}' instead."
            )
        self._scan(_NUMBER)
        if self._peek() == ".":
            self._scan(_ADDRESS)
            self._emit(Kind.STRING)
        else:
            self._emit(Kind.FLOAT)
        return self._pop()

    def _date(self) -> State:
        if self.pos - self.start != 4:
            self.pos += 1
            raise self._error("All ISO8601 dates must be in full Zulu form.")
        for expected in _DATE_SHAPE:
            char = self._next()
            if expected == "9":
                if char not in _DIGITS:
                    raise self._error(
                        f"Expected digit in ISO8601 datetime, but found '{shown(char)}' instead."
                    )
            elif char != expected:
                raise self._error(
                    f"Expected '{expected}' in ISO8601 datetime, but found '{shown(char)}' instead."
                )
        self._emit(Kind.DATETIME)
        return self._pop()

    # Arrays.

    def _array_value(self) -> State:
        char = self._lead(_BLANK)
        if char in ",/":
            raise self._error("Unexpected array value terminator ','.")
        if char == "]":
            return self._array_end()
        self._back()
        self._push(self._array_value_end)
        return self._value

    def _array_value_end(self) -> State:
        char = self._lead(_SPACE)
        if char in NEWLINES + ",/":
            self.start = self.pos
            return self._array_value
        if char == "]":
            return self._array_end()
        raise self._error(
            'Expected an array value terminator "," or an array terminator "]", '
            f"but got '{shown(char)}' instead."
        )

    def _array_end(self) -> State:
        self.start = self.pos
        self._emit(Kind.ARRAY_END)
        return self._pop()

    # Maps.

    def _map_key(self) -> State:
        char = self._lead(_BLANK)
        if char == EOF:
            raise self._error("Unexpected EOF processing map.")
        if char == "]":
            raise self._error("Unexpected array end ']' processing map.")
        if char in _SEPARATORS:
            raise self._error(f"Unexpected key separator '{char}'.")
        if char == "}":
            return self._map_end()
        if char in "\"'":
            self.start = self.pos
            self._scan(_QUOTED[char])
            if self._peek() == EOF:
                name = "double quoted" if char == '"' else "quoted"
                raise self._error(f"Unexpected EOF processing {name} map key.")
            self._emit(Kind.KEY)
            self.pos += 1
            self.start = self.pos
            return self._map_key_end
        if char == "/":
            self.start = self.pos
            self._next()
        self._scan(_BARE_KEY)
        if self._peek() == EOF:
            raise self._error("Unexpected EOF processing map key.")
        if self._peek() in _BLANKS and self._is_include():
            self._push(self._map_value_end)
            return self._include
        self._emit(Kind.KEY)
        return self._map_key_end

    def _map_key_end(self) -> State:
        self._skip(_BLANK)
        if self._peek() in _SEPARATORS:
            self.pos += 1
            self.start = self.pos
        return self._map_value

    def _map_value(self) -> State:
        self._skip(_BLANK)
        char = self._peek()
        if char == ",":
            self.pos += 1
            raise self._error('Unexpected map value terminator ",".')
        if char == "}":
            self.pos += 1
            return self._map_end()
        self._push(self._map_value_end)
        return self._value

    def _map_value_end(self) -> State:
        char = self._lead(_SPACE)
        if char in NEWLINES + ",;/":
            self.start = self.pos
            return self._map_key
        if char == "}":
            return self._map_end()
        raise self._error(
            'Expected a map value terminator "," or a map terminator "}", '
            f"but got '{shown(char)}' instead."
        )

    def _map_end(self) -> State:
        self.start = self.pos
        self._emit(Kind.MAP_END)
        return self._pop()
