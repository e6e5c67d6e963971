# Numbers, and what begins like one: sizes, addresses, times.


cdef State negative(Lexer* x) noexcept nogil:
    cdef uint8_t c = take(x)
    if c == c'.':
        return fail(x, "Floats must start with a digit, not '.'.")
    if not KINDS[c] & IS_DIGIT:
        return fail(x, "Expected a digit but got '{}'.")
    scan(x, IS_DIGIT)
    return number_end(x, False)


cdef State number(Lexer* x) noexcept nogil:
    scan(x, IS_DIGIT)
    if peek(x) == c'-':
        return date(x)
    return number_end(x, True)


cdef State number_end(Lexer* x, bint strings) noexcept nogil:
    cdef uint8_t c = peek(x)
    if c == c'.':
        x.pos += 1
        return fraction(x)
    if KINDS[c] & IS_SUFFIX:
        x.pos += 1
        return suffix(x)
    if strings and not KINDS[c] & ENDS_NUMBER:
        take(x)
        return STRING
    emit(x, FOUND_INTEGER)
    return pop(x)


cdef State suffix(Lexer* x) noexcept nogil:
    # After `1k`: `b`, `i` or `ib` may follow; what is no digit makes it a string after all.
    scan(x, IS_UNIT)
    if KINDS[peek(x)] & (ENDS_NUMBER | IS_DIGIT):
        emit(x, FOUND_INTEGER)
        return pop(x)
    return STRING


cdef State fraction(Lexer* x) noexcept nogil:
    if not KINDS[take(x)] & IS_DIGIT:
        return fail(x, "Floats must have a digit after the '.', but got '{}' instead.")
    scan(x, IS_DIGIT)
    if peek(x) == c'.':
        scan(x, IS_ADDRESS)
        emit(x, FOUND_STRING)
    else:
        emit(x, FOUND_FLOAT)
    return pop(x)


cdef State date(Lexer* x) noexcept nogil:
    cdef const char* shape = "-99-99T99:99:99Z"
    cdef uint8_t c
    if x.pos - x.start != 4:
        x.pos += 1
        return fail(x, "All ISO8601 dates must be in full Zulu form.")
    while shape[0]:
        c = take(x)
        if shape[0] == c'9':
            if not KINDS[c] & IS_DIGIT:
                return fail(x, "Expected digit in ISO8601 datetime, but found '{}' instead.")
        elif c != shape[0]:
            return wrong_date(x, shape[0])
        shape += 1
    emit(x, FOUND_DATETIME)
    return pop(x)


cdef State wrong_date(Lexer* x, char expected) noexcept nogil:
    if expected == c'-':
        return fail(x, "Expected '-' in ISO8601 datetime, but found '{}' instead.")
    if expected == c'T':
        return fail(x, "Expected 'T' in ISO8601 datetime, but found '{}' instead.")
    if expected == c':':
        return fail(x, "Expected ':' in ISO8601 datetime, but found '{}' instead.")
    return fail(x, "Expected 'Z' in ISO8601 datetime, but found '{}' instead.")
