# A reader of small JSON texts without allocation: members of an object or elements of an array, one
# by one, values as views. Nested values are checked and skipped; depth is bounded. And bytes in a JSON text: base64.

cdef enum:
    JSON_DEPTH_MAX = 10000   # Go's decoder has the same bound


cdef inline void json_blanks(JsonReader* r) noexcept nogil:
    while r.p < r.end and (r.p[0] == c' ' or r.p[0] == c'\n' or r.p[0] == c'\r' or r.p[0] == c'\t'):
        r.p += 1


cdef void json_open(JsonReader* r, Span text) noexcept nogil:
    r.p = text.p
    r.end = text.p + text.n
    r.first = True
    r.close = 0


cdef bint json_enter(JsonReader* r, uint8_t opening) noexcept nogil:
    json_blanks(r)
    if r.p == r.end or r.p[0] != opening:
        return False
    r.p += 1
    r.first = True
    r.close = c'}' if opening == c'{' else c']'
    return True


cdef bint json_enter_object(JsonReader* r) noexcept nogil:
    return json_enter(r, c'{')


cdef bint json_enter_array(JsonReader* r) noexcept nogil:
    return json_enter(r, c'[')


cdef bint json_string(JsonReader* r, JsonItem* it) noexcept nogil:
    # At an opening quote.
    cdef const uint8_t* start
    cdef uint32_t i
    r.p += 1
    start = r.p
    it.escaped = False
    while r.p < r.end:
        if r.p[0] == c'"':
            it.kind = JSON_STRING
            it.text.p = start
            it.text.n = <uint32_t>(r.p - start)
            r.p += 1
            return True
        if r.p[0] < c' ':
            return False
        if r.p[0] == c'\\':
            it.escaped = True
            r.p += 1
            if r.p == r.end:
                return False
            if r.p[0] == c'u':
                for i in range(1, 5):
                    if r.end - r.p <= <ssize_t>i or hex_value(r.p[i]) < 0:
                        return False
                r.p += 4
            elif memchr(b"\"\\/bfnrt", r.p[0], 8) == NULL:
                return False
        r.p += 1
    return False


cdef inline int hex_value(uint8_t ch) noexcept nogil:
    if c'0' <= ch <= c'9':
        return ch - c'0'
    ch |= 32
    if c'a' <= ch <= c'f':
        return ch - c'a' + 10
    return -1


cdef bint json_number(JsonReader* r, JsonItem* it) noexcept nogil:
    cdef const uint8_t* start = r.p
    cdef const uint8_t* digits
    if r.p[0] == c'-':
        r.p += 1
    digits = r.p
    while r.p < r.end and c'0' <= r.p[0] <= c'9':
        r.p += 1
    if r.p == digits or (digits[0] == c'0' and r.p - digits > 1):
        return False
    if r.p < r.end and r.p[0] == c'.':
        r.p += 1
        digits = r.p
        while r.p < r.end and c'0' <= r.p[0] <= c'9':
            r.p += 1
        if r.p == digits:
            return False
    if r.p < r.end and (r.p[0] | 32) == c'e':
        r.p += 1
        if r.p < r.end and (r.p[0] == c'+' or r.p[0] == c'-'):
            r.p += 1
        digits = r.p
        while r.p < r.end and c'0' <= r.p[0] <= c'9':
            r.p += 1
        if r.p == digits:
            return False
    it.kind = JSON_NUMBER
    it.text.p = start
    it.text.n = <uint32_t>(r.p - start)
    return True


cdef bint json_word(JsonReader* r, JsonItem* it, const char* word, uint32_t n, int kind) noexcept nogil:
    if r.end - r.p < <ssize_t>n or memcmp(r.p, word, n) != 0:
        return False
    it.kind = kind
    it.text.p = r.p
    it.text.n = n
    r.p += n
    return True


cdef bint json_nested(JsonReader* r, JsonItem* it) noexcept nogil:
    # A whole object or array, its inside checked. Without recursion: the depth is the sender's choice.
    cdef JsonReader inner = r[0]
    cdef JsonItem key, val
    cdef uint8_t closes[JSON_DEPTH_MAX]
    cdef int depth = 0
    cdef int rc
    it.kind = JSON_OBJECT if r.p[0] == c'{' else JSON_ARRAY
    it.text.p = r.p
    while True:
        if inner.p[0] == c'{' or inner.p[0] == c'[':
            if depth == JSON_DEPTH_MAX:
                return False
            json_enter(&inner, inner.p[0])
            closes[depth] = inner.close
            depth += 1
        elif not json_scalar(&inner, &val):
            return False
        rc = json_lead(&inner, &key if inner.close == c'}' else NULL)
        while rc == 0:
            depth -= 1
            if depth == 0:
                it.text.n = <uint32_t>(inner.p - it.text.p)
                r.p = inner.p
                return True
            inner.close = closes[depth - 1]
            inner.first = False
            rc = json_lead(&inner, &key if inner.close == c'}' else NULL)
        if rc < 0:
            return False


cdef bint json_scalar(JsonReader* r, JsonItem* it) noexcept nogil:
    # At the first byte of a string, number or word.
    it.escaped = False
    if r.p[0] == c'"':
        return json_string(r, it)
    if r.p[0] == c't':
        return json_word(r, it, b"true", 4, JSON_TRUE)
    if r.p[0] == c'f':
        return json_word(r, it, b"false", 5, JSON_FALSE)
    if r.p[0] == c'n':
        return json_word(r, it, b"null", 4, JSON_NULL)
    return json_number(r, it)


cdef int json_lead(JsonReader* r, JsonItem* key) noexcept nogil:
    # To the first byte of the next member's (key not NULL) or element's value: 1, 0 at the end, -1 on bad JSON.
    json_blanks(r)
    if r.p == r.end:
        return -1
    if r.p[0] == r.close:
        r.p += 1
        return 0
    if not r.first:
        if r.p[0] != c',':
            return -1
        r.p += 1
        json_blanks(r)
        if r.p == r.end:
            return -1
    r.first = False
    if key != NULL:
        if r.p[0] != c'"' or not json_string(r, key):
            return -1
        json_blanks(r)
        if r.p == r.end or r.p[0] != c':':
            return -1
        r.p += 1
        json_blanks(r)
    return 1 if r.p < r.end else -1


cdef int json_step(JsonReader* r, JsonItem* key, JsonItem* val) noexcept nogil:
    # The next member (key not NULL) or element: 1, 0 at the end, -1 on bad JSON.
    cdef int rc = json_lead(r, key)
    if rc <= 0:
        return rc
    val.escaped = False
    if r.p[0] == c'{' or r.p[0] == c'[':
        return 1 if json_nested(r, val) else -1
    return 1 if json_scalar(r, val) else -1


cdef int json_next_member(JsonReader* r, JsonItem* key, JsonItem* val) noexcept nogil:
    return json_step(r, key, val)


cdef int json_next_element(JsonReader* r, JsonItem* val) noexcept nogil:
    return json_step(r, NULL, val)


cdef bint json_at_end(JsonReader* r) noexcept nogil:
    # Only blanks are left.
    json_blanks(r)
    return r.p == r.end


cdef bint json_key_is(const JsonItem* key, const char* name) noexcept nogil:
    # Keys are matched without regard to case, as Go's decoder does.
    cdef size_t n = strlen(name)
    cdef size_t i
    cdef uint8_t a, b
    if key.text.n != n:
        return False
    for i in range(n):
        a = key.text.p[i]
        b = <uint8_t>name[i]
        if c'A' <= a <= c'Z':
            a |= 32
        if a != b:
            return False
    return True


cdef bint json_bool(const JsonItem* it, bint* out) noexcept nogil:
    if it.kind == JSON_TRUE or it.kind == JSON_FALSE:
        out[0] = it.kind == JSON_TRUE
    return it.kind == JSON_TRUE or it.kind == JSON_FALSE or it.kind == JSON_NULL


cdef bint json_int(const JsonItem* it, int64_t* out) noexcept nogil:
    # A whole number that fits; False otherwise.
    cdef uint64_t v = 0
    cdef uint32_t i = 0
    cdef bint negative = False
    if it.kind != JSON_NUMBER:
        return False
    if it.text.p[0] == c'-':
        negative = True
        i = 1
    while i < it.text.n:
        if it.text.p[i] < c'0' or it.text.p[i] > c'9':
            return False
        if v > <uint64_t>INT64_MAX // 10:
            return False
        v = v * 10 + (it.text.p[i] - c'0')
        i += 1
    if v > <uint64_t>INT64_MAX + (1 if negative else 0):
        return False
    out[0] = -<int64_t>v if negative else <int64_t>v
    return True


cdef bint json_uint(const JsonItem* it, uint64_t* out) noexcept nogil:
    # A whole number from 0 to 2^64 - 1; False otherwise.
    cdef uint64_t v = 0, d
    cdef uint32_t i
    if it.kind != JSON_NUMBER:
        return False
    for i in range(it.text.n):
        if it.text.p[i] < c'0' or it.text.p[i] > c'9':
            return False
        d = it.text.p[i] - c'0'
        if v > (<uint64_t>-1 - d) // 10:
            return False
        v = v * 10 + d
    out[0] = v
    return True


cdef int json_text(const JsonItem* it, uint8_t* out, uint32_t cap) noexcept nogil:
    # The string's bytes with escapes resolved (UTF-8); its length, or -1 when it is none or does not fit.
    cdef const uint8_t* p = it.text.p
    cdef const uint8_t* end = p + it.text.n
    cdef uint32_t n = 0, code, low
    if it.kind != JSON_STRING:
        return -1
    while p < end:
        if n + 4 > cap:
            if n + <uint32_t>(end - p) > cap or it.escaped:
                return -1
        if p[0] != c'\\':
            out[n] = p[0]
            n += 1
            p += 1
            continue
        p += 1
        if p[0] != c'u':
            if p[0] == c'b':
                out[n] = 8
            elif p[0] == c'f':
                out[n] = c'\f'
            elif p[0] == c'n':
                out[n] = c'\n'
            elif p[0] == c'r':
                out[n] = c'\r'
            elif p[0] == c't':
                out[n] = c'\t'
            else:
                out[n] = p[0]
            n += 1
            p += 1
            continue
        code = hex4(p + 1)
        p += 5
        if 0xD800 <= code < 0xDC00 and end - p >= 6 and p[0] == c'\\' and p[1] == c'u':
            low = hex4(p + 2)
            if 0xDC00 <= low < 0xE000:
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                p += 6
        if 0xD800 <= code < 0xE000:
            code = 0xFFFD
        n += put_utf8(out + n, code)
    return <int>n


cdef inline uint32_t hex4(const uint8_t* p) noexcept nogil:
    return ((<uint32_t>hex_value(p[0]) << 12) | (<uint32_t>hex_value(p[1]) << 8)
            | (<uint32_t>hex_value(p[2]) << 4) | <uint32_t>hex_value(p[3]))


cdef inline uint32_t put_utf8(uint8_t* out, uint32_t code) noexcept nogil:
    if code < 0x80:
        out[0] = <uint8_t>code
        return 1
    if code < 0x800:
        out[0] = <uint8_t>(0xC0 | (code >> 6))
        out[1] = <uint8_t>(0x80 | (code & 63))
        return 2
    if code < 0x10000:
        out[0] = <uint8_t>(0xE0 | (code >> 12))
        out[1] = <uint8_t>(0x80 | ((code >> 6) & 63))
        out[2] = <uint8_t>(0x80 | (code & 63))
        return 3
    out[0] = <uint8_t>(0xF0 | (code >> 18))
    out[1] = <uint8_t>(0x80 | ((code >> 12) & 63))
    out[2] = <uint8_t>(0x80 | ((code >> 6) & 63))
    out[3] = <uint8_t>(0x80 | (code & 63))
    return 4


cdef uint32_t put_base64(uint8_t* p, Span s) noexcept nogil:
    # Four bytes for three, and four for what is left.
    cdef const uint8_t* digits = <const uint8_t*>b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef const uint8_t* at = s.p
    cdef uint8_t* to = p
    cdef uint32_t left = s.n, v
    while left >= 3:
        v = <uint32_t>at[0] << 16 | <uint32_t>at[1] << 8 | at[2]
        to[0] = digits[v >> 18]
        to[1] = digits[v >> 12 & 63]
        to[2] = digits[v >> 6 & 63]
        to[3] = digits[v & 63]
        at += 3
        to += 4
        left -= 3
    if left:
        v = <uint32_t>at[0] << 16 | (<uint32_t>at[1] << 8 if left == 2 else 0)
        to[0] = digits[v >> 18]
        to[1] = digits[v >> 12 & 63]
        to[2] = digits[v >> 6 & 63] if left == 2 else c'='
        to[3] = c'='
        to += 4
    return <uint32_t>(to - p)
