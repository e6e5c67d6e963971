# A place in a configuration text: moving on, ending items, errors with their line.
#
# What every state of the lexer works with, whatever part of the language it reads. The text is UTF-8; a byte that is none
# counts as a character of its own.

cdef enum:
    NESTING_MOST = 100          # maps and arrays inside each other; more is an error

MAX_NESTING = NESTING_MOST

cdef enum Found:
    # What an item is.
    FOUND_NOTHING
    FOUND_EOF
    FOUND_KEY
    FOUND_STRING
    FOUND_BOOL
    FOUND_INTEGER
    FOUND_FLOAT
    FOUND_DATETIME
    FOUND_VARIABLE
    FOUND_INCLUDE
    FOUND_MAP_START
    FOUND_MAP_END
    FOUND_ARRAY_START
    FOUND_ARRAY_END

cdef enum State:
    # What comes next; the functions of these names read it.
    ENDED
    TOP
    TOP_VALUE_END
    BLOCK_KEY
    BLOCK_END
    BLOCK_VALUE_END
    KEY_START
    KEY_END
    INCLUDE
    VALUE
    DOUBLE_STRING
    STRING
    NUMBER
    ARRAY_VALUE
    ARRAY_VALUE_END
    MAP_KEY
    MAP_KEY_END
    MAP_VALUE
    MAP_VALUE_END

cdef enum:
    # Kinds of characters, as bits. Any blank ends a key; only spaces and line ends end a value.
    IS_SPACE = 1
    IS_NEWLINE = 2
    IS_BLANK = 4                # white space; that beyond ASCII is found by blank_size
    IS_SEPARATOR = 8
    IS_DIGIT = 16
    IS_HEX = 32
    IS_SUFFIX = 64              # of a number
    IS_UNIT = 128               # behind a suffix
    IS_ADDRESS = 256            # in an address that begins like a float
    ENDS_NUMBER = 512
    ENDS_WORD = 1024
    ENDS_PATH = 2048
    LEADS_BLANK = 4096          # white space beyond ASCII may begin with this byte

cdef uint32_t[256] KINDS


cdef void mark(const char* characters, uint32_t kind) noexcept nogil:
    while characters[0]:
        KINDS[<uint8_t>characters[0]] |= kind
        characters += 1


mark(b" \t", IS_SPACE | IS_BLANK | ENDS_NUMBER | ENDS_WORD | ENDS_PATH)
mark(b"\r\n", IS_NEWLINE | IS_BLANK | ENDS_NUMBER | ENDS_WORD | ENDS_PATH)
mark(b"\v\f", IS_BLANK)
mark(b":=", IS_SEPARATOR)
mark(b"0123456789", IS_DIGIT | IS_HEX | IS_ADDRESS)
mark(b"abcdefABCDEF", IS_HEX)
mark(b"kKmMgGtTpPeE", IS_SUFFIX)
mark(b"iIbB", IS_UNIT)
mark(b".:-", IS_ADDRESS)
mark(b",;}", ENDS_NUMBER)
mark(b"\\,;]}'", ENDS_WORD)
mark(b";}'", ENDS_PATH)
mark(b"\xc2\xe1\xe2\xe3", LEADS_BLANK)
KINDS[0] |= ENDS_NUMBER         # what is read at the end of the text


cdef const char* NO_MEMORY = "no memory"


cdef struct Lexer:
    # `start` is where the present item does; strings with escapes began at `first` and have `parts` before it.
    const uint8_t* text         # without NUL
    size_t n
    size_t pos
    size_t start
    size_t width                # of the character that was taken last
    State state
    State[NESTING_MOST] stack   # to come back to
    uint32_t depth
    Bytes parts
    size_t first
    bint escaped
    # Lines: how many newlines are before `counted`, and the last one before `marked` (0: there is none).
    size_t counted
    uint32_t lines
    size_t marked
    size_t newline
    # The item.
    Found found
    const uint8_t* p
    size_t size
    uint32_t line
    uint32_t column             # in bytes, from 0 on the first line and from 1 on the others
    # What is wrong, with what stands for {} in it; NULL: nothing.
    const char* error
    const uint8_t* got
    size_t got_size


# ---- moving about


cdef size_t blank_size(const uint8_t* p, size_t n) noexcept nogil:
    # Bytes of the white space beyond ASCII at p[0:n]; 0: there is none.
    if n < 2:
        return 0
    if p[0] == 0xc2:
        return 2 if p[1] == 0x85 or p[1] == 0xa0 else 0
    if n < 3:
        return 0
    if p[0] == 0xe1:
        return 3 if p[1] == 0x9a and p[2] == 0x80 else 0
    if p[0] == 0xe2 and p[1] == 0x80:
        return 3 if 0x80 <= p[2] <= 0x8a or p[2] == 0xa8 or p[2] == 0xa9 or p[2] == 0xaf else 0
    if p[0] == 0xe2:
        return 3 if p[1] == 0x81 and p[2] == 0x9f else 0
    return 3 if p[0] == 0xe3 and p[1] == 0x80 and p[2] == 0x80 else 0


cdef inline uint8_t peek(Lexer* x) noexcept nogil:
    # The next character's first byte; 0 at the end of the text.
    return x.text[x.pos] if x.pos < x.n else 0


cdef inline uint8_t take(Lexer* x) noexcept nogil:
    # Takes the next character: its first byte; 0 at the end of the text, again and again.
    cdef uint8_t c = peek(x)
    x.width = 0 if x.pos >= x.n else 1
    if c >= 0x80:
        x.width = max(rune_size(x.text + x.pos, <uint32_t>min(x.n - x.pos, <size_t>4)), <uint32_t>1)
    x.pos += x.width
    return c


cdef inline void back(Lexer* x) noexcept nogil:
    x.pos -= x.width
    x.width = 0


cdef inline void scan(Lexer* x, uint32_t kind) noexcept nogil:
    # To the end of the run of characters of a kind.
    while x.pos < x.n and KINDS[x.text[x.pos]] & kind:
        x.pos += 1


cdef inline void scan_to(Lexer* x, uint32_t kind) noexcept nogil:
    # To the first character of a kind.
    while x.pos < x.n and not KINDS[x.text[x.pos]] & kind:
        x.pos += 1


cdef inline void scan_to_byte(Lexer* x, uint8_t c) noexcept nogil:
    cdef const uint8_t* p = <const uint8_t*>memchr(x.text + x.pos, c, x.n - x.pos)
    x.pos = x.n if p == NULL else <size_t>(p - x.text)


cdef inline size_t blank_here(Lexer* x) noexcept nogil:
    # Bytes of the blank that comes next; 0: none does.
    cdef uint32_t kind = KINDS[peek(x)]
    if kind & LEADS_BLANK:
        return blank_size(x.text + x.pos, x.n - x.pos)
    return 1 if kind & IS_BLANK else 0


cdef inline void skip_spaces(Lexer* x) noexcept nogil:
    scan(x, IS_SPACE)
    x.start = x.pos


cdef inline void skip_blanks(Lexer* x) noexcept nogil:
    cdef size_t size = blank_here(x)
    while size:
        x.pos += size
        size = blank_here(x)
    x.start = x.pos


cdef inline void scan_bare_key(Lexer* x) noexcept nogil:
    # To the first blank or separator.
    scan_to(x, IS_BLANK | IS_SEPARATOR | LEADS_BLANK)
    while KINDS[peek(x)] & LEADS_BLANK and not blank_here(x):
        x.pos += 1
        scan_to(x, IS_BLANK | IS_SEPARATOR | LEADS_BLANK)


cdef inline uint8_t lead(Lexer* x, bint blanks) noexcept nogil:
    # Takes the next character that is neither blank (or a space) nor in a comment.
    cdef uint8_t c
    while True:
        if blanks:
            skip_blanks(x)
        else:
            skip_spaces(x)
        c = take(x)
        if c != c'#' and (c != c'/' or peek(x) != c'/'):
            return c
        scan_to(x, IS_NEWLINE)


# ---- items and errors


cdef size_t count_lines(Lexer* x, size_t pos) noexcept nogil:
    # Lines that begin before `pos`. What was counted before is not looked at again.
    cdef const uint8_t* p
    if pos < x.counted:
        x.counted = 0
        x.lines = 0
    while x.counted < pos:
        p = <const uint8_t*>memchr(x.text + x.counted, c'\n', pos - x.counted)
        if p == NULL:
            x.counted = pos
            break
        x.counted = <size_t>(p - x.text) + 1
        x.lines += 1
    return x.lines + 1


cdef size_t column_of(Lexer* x, size_t pos) noexcept nogil:
    # Items come in the order of their starts.
    cdef const uint8_t* p
    while x.marked < pos:
        p = <const uint8_t*>memchr(x.text + x.marked, c'\n', pos - x.marked)
        if p == NULL:
            x.marked = pos
            break
        x.newline = <size_t>(p - x.text)
        x.marked = x.newline + 1
    return pos - x.newline


cdef void emit(Lexer* x, Found found) noexcept nogil:
    # Ends an item: what was taken of a string with escapes, else the text from its start.
    x.found = found
    if x.escaped:
        x.p = x.parts.data
        x.size = x.parts.n
    else:
        x.p = x.text + x.start
        x.size = x.pos - x.start
    x.line = <uint32_t>count_lines(x, x.pos)
    x.column = <uint32_t>column_of(x, x.first if x.escaped else x.start)
    x.start = x.pos


cdef void push(Lexer* x, State state) noexcept nogil:
    if x.depth >= NESTING_MOST:
        fail(x, "maps and arrays are nested deeper than 100")
        return
    x.stack[x.depth] = state
    x.depth += 1


cdef State pop(Lexer* x) noexcept nogil:
    if not x.depth:
        return fail(x, "Unexpected EOF.")
    x.depth -= 1
    return x.stack[x.depth]


cdef State fail(Lexer* x, const char* error) noexcept nogil:
    # With the character that was taken last, or nothing at the end of the text.
    x.error = error
    x.got = x.text + x.pos - x.width
    x.got_size = x.width
    return ENDED


cdef State end(Lexer* x) noexcept nogil:
    # The end of the text; an error where something was begun.
    if x.pos > x.start:
        return fail(x, "Unexpected EOF.")
    emit(x, FOUND_EOF)
    return ENDED
