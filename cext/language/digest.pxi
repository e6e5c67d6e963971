# What a tree says, whatever its places and the order of its keys: the digest of its compact JSON.

cdef uint8_t[256] ESCAPED       # what a JSON string says otherwise; 0xe2 begins the line separators too


cdef void init_escaped() noexcept nogil:
    cdef uint32_t c
    for c in range(0x20):
        ESCAPED[c] = c'u'
    ESCAPED[c'<'] = ESCAPED[c'>'] = ESCAPED[c'&'] = c'u'
    ESCAPED[c'"'] = c'"'
    ESCAPED[c'\\'] = c'\\'
    ESCAPED[8] = c'b'
    ESCAPED[c'\f'] = c'f'
    ESCAPED[c'\n'] = c'n'
    ESCAPED[c'\r'] = c'r'
    ESCAPED[c'\t'] = c't'
    ESCAPED[0xe2] = 0xe2


init_escaped()


def digest_of(Value root not None, form not None) -> bytes:
    """language.pyi says what it is."""
    cdef Writer writer = Writer(form)
    cdef uint8_t[32] out
    writer.write(root.data)
    writer.add("\n", 1)
    with nogil:
        sha256(writer.out.data, writer.out.n, out)
    return (<char*>out)[:32]


@cython.final
cdef class Writer:
    # Compact JSON with sorted keys, in the forms that Go gives numbers and times.
    cdef Bytes out
    cdef object form            # gives what is rare
    cdef uint32_t written

    def __cinit__(self, form) -> None:
        memset(&self.out, 0, sizeof(self.out))
        self.form = form

    def __dealloc__(self) -> None:
        bytes_free(&self.out)

    cdef int add(self, const void* p, size_t n) except -1:
        if bytes_add(&self.out, p, n) < 0:
            raise MemoryError
        return 0

    cdef int write(self, data) except -1:
        self.written += 1
        if not self.written % ITEMS_TOGETHER:
            with nogil:
                pass
        if type(data) is str:
            self.text(data)
        elif type(data) is dict:
            self.map(<dict>data)
        elif type(data) is list:
            self.array(<list>data)
        elif data is True:
            self.add("true", 4)
        elif data is False:
            self.add("false", 5)
        else:
            self.other(data)
        return 0

    cdef int map(self, dict data) except -1:
        cdef bint follows = False
        Py_EnterRecursiveCall(" while a configuration is summed up")
        try:
            self.add("{", 1)
            for key in sorted(data):
                if follows:
                    self.add(",", 1)
                follows = True
                self.text(key)
                self.add(":", 1)
                self.write((<Value?>data[key]).data)
            self.add("}", 1)
        finally:
            Py_LeaveRecursiveCall()
        return 0

    cdef int array(self, list data) except -1:
        cdef bint follows = False
        Py_EnterRecursiveCall(" while a configuration is summed up")
        try:
            self.add("[", 1)
            for value in data:
                if follows:
                    self.add(",", 1)
                follows = True
                self.write((<Value?>value).data)
            self.add("]", 1)
        finally:
            Py_LeaveRecursiveCall()
        return 0

    cdef int text(self, str text) except -1:
        cdef const uint8_t* p
        cdef Py_ssize_t n, i, since = 0
        cdef uint8_t[6] escape
        try:
            p = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, &n)
        except UnicodeEncodeError:
            self.other(text)
            return 0
        memcpy(escape, "\\u0000", 6)
        self.add("\"", 1)
        for i in range(n):
            if not ESCAPED[p[i]]:
                continue
            if p[i] == 0xe2:
                if n - i < 3 or p[i + 1] != 0x80 or p[i + 2] & 0xfe != 0xa8:
                    continue
                self.add(p + since, i - since)
                self.add("\\u2028" if p[i + 2] == 0xa8 else "\\u2029", 6)
                since = i + 3
                continue
            self.add(p + since, i - since)
            since = i + 1
            if ESCAPED[p[i]] == c'u':
                escape[4] = HEX_DIGITS[p[i] >> 4]
                escape[5] = HEX_DIGITS[p[i] & 15]
                self.add(escape, 6)
            else:
                escape[1] = ESCAPED[p[i]]
                self.add(escape, 2)
                escape[1] = c'u'
        self.add(p + since, n - since)
        self.add("\"", 1)
        return 0

    cdef int other(self, data) except -1:
        cdef bytes form = self.form(data).encode()
        self.add(<const char*>form, len(form))
        return 0
