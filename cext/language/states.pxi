# The states of the lexer: each reads some of the text, may end one item, and says which state comes next.
#
# Where a value, a comment or an include is nested in something, the state to come back to waits on a stack, so that nesting
# costs no recursion. What looks odd here (a bare `2m` is a number, `[1]` is none, a lone `}` is tolerated) is what
# nats-server does with the same text: a configuration file must mean the same to both servers.

# ---- the top level


cdef State top(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, True)
    if c == c'{':
        push(x, TOP)
        return BLOCK_KEY
    if not c or c == c'/':
        return end(x)
    back(x)
    push(x, TOP_VALUE_END)
    return KEY_START


cdef State top_value_end(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, False)
    if c == c'/':
        return TOP_VALUE_END
    if KINDS[c] & IS_NEWLINE or c == c',' or c == c';' or c == c'}':
        x.start = x.pos
        return TOP
    if not c:
        emit(x, FOUND_EOF)
        return ENDED
    return fail(x, "Expected a top-level value to end with a new line, comment or EOF, but got '{}' instead.")


# ---- the block in braces around a whole file in JSON's form


cdef State block_key(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, True)
    if c == c'{':
        push(x, BLOCK_END)
        return BLOCK_KEY
    if c == c'}':
        x.start = x.pos
        return pop(x)
    if not c or c == c'/':
        return end(x)
    back(x)
    push(x, BLOCK_VALUE_END)
    return KEY_START


cdef State block_end(Lexer* x) noexcept nogil:
    # After a block inside a block.
    cdef uint8_t c = lead(x, True)
    if c == c'/':
        return BLOCK_END
    if c == c',' or c == c';':
        return BLOCK_KEY
    if c == c'}':
        x.start = x.pos
        return pop(x)
    return fail(x, "Expected a block-level to end with a '}', but got '{}' instead.")


cdef State block_value_end(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, False)
    if c == c'/':
        return BLOCK_VALUE_END
    if KINDS[c] & IS_NEWLINE or c == c',' or c == c';':
        x.start = x.pos
        return BLOCK_KEY
    if c == c'}':
        x.start = x.pos
        return pop(x)
    return fail(x, "Expected a block-level value to end with a new line, comment or EOF, but got '{}' instead.")


# ---- keys at the top level and in a block


cdef State key_start(Lexer* x) noexcept nogil:
    cdef uint8_t c
    skip_blanks(x)
    c = peek(x)
    if KINDS[c] & IS_SEPARATOR:
        return fail(x, "Unexpected key separator ':'" if c == c':' else "Unexpected key separator '='")
    if c == c'"' or c == c"'":
        return quoted_key(x, c)
    scan_bare_key(x)
    if blank_here(x) and is_include(x):
        return INCLUDE
    emit(x, FOUND_KEY)
    return KEY_END


cdef State quoted_key(Lexer* x, uint8_t quote) noexcept nogil:
    x.pos += 1
    x.start = x.pos
    scan_to_byte(x, quote)
    if not peek(x):
        return end(x)
    emit(x, FOUND_KEY)
    x.pos += 1
    x.start = x.pos
    return KEY_END


cdef bint is_include(Lexer* x) noexcept nogil:
    if not is_word(x.text + x.start, x.pos - x.start, "include"):
        return False
    x.start = x.pos
    return True


cdef bint is_word(const uint8_t* p, size_t n, const char* word) noexcept nogil:
    # Whether it is the word, in any letter case.
    cdef size_t i
    for i in range(n):
        if not word[i] or (p[i] | 0x20) != <uint8_t>word[i]:
            return False
    return not word[n]


cdef State key_end(Lexer* x) noexcept nogil:
    cdef uint8_t c
    skip_blanks(x)
    c = peek(x)
    if not c:
        emit(x, FOUND_EOF)
        return ENDED
    if KINDS[c] & IS_SEPARATOR:
        x.pos += 1
        x.start = x.pos
    return VALUE


# ---- includes: the path is raw text


cdef State include_path(Lexer* x) noexcept nogil:
    cdef uint8_t c
    skip_spaces(x)
    c = take(x)
    if KINDS[c] & IS_NEWLINE:
        return fail(x, "Expected include value but found new line")
    if c == c'"' or c == c"'":
        x.start = x.pos
        scan_to_byte(x, c)
        if not peek(x):
            if c == c'"':
                return fail(x, "Unexpected EOF in double quoted include")
            return fail(x, "Unexpected EOF in quoted include")
        emit(x, FOUND_INCLUDE)
        x.pos += 1
        x.start = x.pos
        return pop(x)
    if KINDS[c] & IS_DIGIT or c == c'-':
        return fail(x, "Expected include value but found start of a number")
    if c == c'{':
        return fail(x, "Expected include value but found start of a map")
    if c == c'[':
        return fail(x, "Expected include value but found start of an array")
    if c == c'(':
        return fail(x, "Expected include value but found start of a block")
    if c == c'\\':
        return fail(x, "Expected include value but found escape sequence")
    back(x)
    scan_to(x, ENDS_PATH)
    emit(x, FOUND_INCLUDE)
    if peek(x) == c"'":
        x.pos += 1
    return pop(x)


# ---- values


cdef State value(Lexer* x) noexcept nogil:
    cdef uint8_t c
    skip_spaces(x)
    c = take(x)
    if KINDS[c] & IS_NEWLINE:
        return fail(x, "Expected value but found new line")
    if c == c'[':
        emit(x, FOUND_ARRAY_START)
        return ARRAY_VALUE
    if c == c'{':
        emit(x, FOUND_MAP_START)
        return MAP_KEY
    if c == c"'":
        return raw_string(x)
    if c == c'"':
        x.start = x.pos
        return DOUBLE_STRING
    if c == c'-':
        return negative(x)
    if c == c'(':
        return block_string(x)
    if KINDS[c] & IS_DIGIT:
        return NUMBER
    if c == c'.':
        return fail(x, "Floats must start with a digit")
    back(x)
    return STRING


cdef State raw_string(Lexer* x) noexcept nogil:
    x.start = x.pos
    scan_to_byte(x, c"'")
    if not peek(x):
        return end(x)
    emit(x, FOUND_STRING)
    x.pos += 1
    x.start = x.pos
    return pop(x)


cdef State block_string(Lexer* x) noexcept nogil:
    # The text after `(` up to a line that is `)` alone.
    cdef const uint8_t* p = <const uint8_t*>memmem(x.text + x.pos, x.n - x.pos, <const char*>"\n)\n", 3)
    x.start = x.pos
    if p == NULL:
        x.pos = x.n
        return fail(x, "Unexpected EOF processing block.")
    x.pos = <size_t>(p - x.text) + 1
    emit(x, FOUND_STRING)
    x.pos += 1
    x.start = x.pos
    return pop(x)


cdef State double_string(Lexer* x) noexcept nogil:
    cdef uint8_t c
    while x.pos < x.n and x.text[x.pos] != c'"' and x.text[x.pos] != c'\\':
        x.pos += 1
    c = peek(x)
    if not c:
        return end(x)
    if c == c'\\':
        escape(x)
        return DOUBLE_STRING
    end_parts(x)
    emit(x, FOUND_STRING)
    x.pos += 1
    x.start = x.pos
    return pop(x)


cdef void end_parts(Lexer* x) noexcept nogil:
    # What was taken belongs to the string, if that has escapes.
    if x.escaped:
        add_part(x, x.text + x.start, x.pos - x.start)


cdef void add_part(Lexer* x, const uint8_t* p, size_t n) noexcept nogil:
    if bytes_add(&x.parts, p, n) < 0:
        fail(x, NO_MEMORY)


cdef void escape(Lexer* x) noexcept nogil:
    # One escape; what it stands for goes to the parts of the string.
    cdef uint8_t c
    if not x.escaped:
        x.escaped = True
        x.first = x.start
        x.parts.n = 0
    end_parts(x)
    x.pos += 1
    c = take(x)
    if c == c'x':
        c = hex_digits(x)
    elif c == c't':
        c = c'\t'
    elif c == c'n':
        c = c'\n'
    elif c == c'r':
        c = c'\r'
    elif c != c'"' and c != c'\\':
        fail(
            x,
            "Invalid escape character '{}'. Only the following escape characters are allowed: "
            "\\xXX, \\t, \\n, \\r, \\\", \\\\.",
        )
    if x.error == NULL:
        add_part(x, &c, 1)
    x.start = x.pos


cdef uint8_t hex_digits(Lexer* x) noexcept nogil:
    cdef size_t start = x.pos
    if KINDS[take(x)] & IS_NEWLINE or KINDS[take(x)] & IS_NEWLINE:
        fail(x, "Expected two hexadecimal digits after '\\x', but hit end of line")
        return 0
    if x.pos - start != 2 or not KINDS[x.text[start]] & IS_HEX or not KINDS[x.text[start + 1]] & IS_HEX:
        fail(x, "Expected two hexadecimal digits after '\\x', but got '{}'")
        x.got = x.text + x.pos - 2
        x.got_size = 2
        return 0
    return <uint8_t>(hex_value(x.text[start]) << 4 | hex_value(x.text[start + 1]))


cdef inline uint32_t hex_value(uint8_t c) noexcept nogil:
    return c - c'0' if c <= c'9' else (c | 0x20) - c'a' + 10


cdef State bare_string(Lexer* x) noexcept nogil:
    # A bare word: a string, a boolean or a variable's name.
    cdef uint8_t c
    cdef const uint8_t* p
    cdef size_t n
    cdef bint plain
    scan_to(x, ENDS_WORD)
    c = peek(x)
    if c == c'\\':
        escape(x)
        return STRING
    end_parts(x)
    p, n = x.text + x.start, x.pos - x.start
    plain = not x.escaped and c != c"'"
    if plain and (is_yes(p, n) or is_word(p, n, "false") or is_word(p, n, "no") or is_word(p, n, "off")):
        emit(x, FOUND_BOOL)
    elif plain and n and p[0] == c'$':
        x.start += 1
        emit(x, FOUND_VARIABLE)
    else:
        emit(x, FOUND_STRING)
    if c == c"'":
        x.pos += 1
        x.start = x.pos
    return pop(x)


cdef bint is_yes(const uint8_t* p, size_t n) noexcept nogil:
    return is_word(p, n, "true") or is_word(p, n, "yes") or is_word(p, n, "on")


# ---- arrays


cdef State array_value(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, True)
    if c == c',' or c == c'/':
        return fail(x, "Unexpected array value terminator ','.")
    if c == c']':
        return array_end(x)
    back(x)
    push(x, ARRAY_VALUE_END)
    return VALUE


cdef State array_value_end(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, False)
    if KINDS[c] & IS_NEWLINE or c == c',' or c == c'/':
        x.start = x.pos
        return ARRAY_VALUE
    if c == c']':
        return array_end(x)
    return fail(x, "Expected an array value terminator \",\" or an array terminator \"]\", but got '{}' instead.")


cdef State array_end(Lexer* x) noexcept nogil:
    x.start = x.pos
    emit(x, FOUND_ARRAY_END)
    return pop(x)


# ---- maps


cdef State map_key(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, True)
    if not c:
        return fail(x, "Unexpected EOF processing map.")
    if c == c']':
        return fail(x, "Unexpected array end ']' processing map.")
    if KINDS[c] & IS_SEPARATOR:
        return fail(x, "Unexpected key separator ':'." if c == c':' else "Unexpected key separator '='.")
    if c == c'}':
        return map_end(x)
    if c == c'"' or c == c"'":
        x.start = x.pos
        scan_to_byte(x, c)
        if not peek(x):
            if c == c'"':
                return fail(x, "Unexpected EOF processing double quoted map key.")
            return fail(x, "Unexpected EOF processing quoted map key.")
        emit(x, FOUND_KEY)
        x.pos += 1
        x.start = x.pos
        return MAP_KEY_END
    if c == c'/':
        x.start = x.pos
        take(x)
    scan_bare_key(x)
    if not peek(x):
        return fail(x, "Unexpected EOF processing map key.")
    if blank_here(x) and is_include(x):
        push(x, MAP_VALUE_END)
        return INCLUDE
    emit(x, FOUND_KEY)
    return MAP_KEY_END


cdef State map_key_end(Lexer* x) noexcept nogil:
    skip_blanks(x)
    if KINDS[peek(x)] & IS_SEPARATOR:
        x.pos += 1
        x.start = x.pos
    return MAP_VALUE


cdef State map_value(Lexer* x) noexcept nogil:
    cdef uint8_t c
    skip_blanks(x)
    c = peek(x)
    if c == c',':
        x.pos += 1
        return fail(x, "Unexpected map value terminator \",\".")
    if c == c'}':
        x.pos += 1
        return map_end(x)
    push(x, MAP_VALUE_END)
    return VALUE


cdef State map_value_end(Lexer* x) noexcept nogil:
    cdef uint8_t c = lead(x, False)
    if KINDS[c] & IS_NEWLINE or c == c',' or c == c';' or c == c'/':
        x.start = x.pos
        return MAP_KEY
    if c == c'}':
        return map_end(x)
    return fail(x, "Expected a map value terminator \",\" or a map terminator \"}\", but got '{}' instead.")


cdef State map_end(Lexer* x) noexcept nogil:
    x.start = x.pos
    emit(x, FOUND_MAP_END)
    return pop(x)


# ---- the way through them


cdef State step(Lexer* x) noexcept nogil:
    cdef State state = x.state
    if state == TOP:
        return top(x)
    elif state == TOP_VALUE_END:
        return top_value_end(x)
    elif state == BLOCK_KEY:
        return block_key(x)
    elif state == BLOCK_END:
        return block_end(x)
    elif state == BLOCK_VALUE_END:
        return block_value_end(x)
    elif state == KEY_START:
        return key_start(x)
    elif state == KEY_END:
        return key_end(x)
    elif state == INCLUDE:
        return include_path(x)
    elif state == VALUE:
        return value(x)
    elif state == DOUBLE_STRING:
        return double_string(x)
    elif state == STRING:
        return bare_string(x)
    elif state == NUMBER:
        return number(x)
    elif state == ARRAY_VALUE:
        return array_value(x)
    elif state == ARRAY_VALUE_END:
        return array_value_end(x)
    elif state == MAP_KEY:
        return map_key(x)
    elif state == MAP_KEY_END:
        return map_key_end(x)
    elif state == MAP_VALUE:
        return map_value(x)
    elif state == MAP_VALUE_END:
        return map_value_end(x)
    return ENDED


cdef bint next_item(Lexer* x) noexcept nogil:
    # False: the text is wrong, as `error` says. Behind FOUND_EOF comes nothing else.
    if x.found == FOUND_STRING:
        x.escaped = False       # whose parts were taken
    x.found = FOUND_EOF if x.state == ENDED else FOUND_NOTHING
    while x.found == FOUND_NOTHING:
        x.state = step(x)
        if x.error != NULL:
            return False
    return True
