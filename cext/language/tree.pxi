# Items into a tree: maps and lists of values.

cdef enum:
    ITEMS_TOGETHER = 2048       # as many are read before another thread may have the GIL, half a millisecond
    KEY_SHARED = 32             # bytes; shorter keys, of which many are the same, are kept once
    DIGITS_PLAIN = 18           # of an integer that fits 64 bits for certain

_DECIDED = {
    FOUND_INTEGER: "integer",
    FOUND_FLOAT: "float",
    FOUND_DATETIME: "datetime",
    FOUND_VARIABLE: "variable",
    FOUND_INCLUDE: "include",
}


class Malformed(ValueError):
    """The text is no configuration."""


cdef class Tree:
    # language.pyi says what it is.
    cdef Lexer x
    cdef bytes text
    cdef readonly str file
    cdef readonly dict root
    cdef readonly list contexts
    cdef list keys              # their values, which are set later
    cdef list names
    cdef bint dangling          # the last item is a key
    cdef uint32_t taken

    def __cinit__(self) -> None:
        memset(&self.x, 0, sizeof(self.x))

    def __dealloc__(self) -> None:
        bytes_free(&self.x.parts)

    def __init__(self, bytes text not None, str file not None) -> None:
        cdef const uint8_t* nul
        self.text = text
        self.file = file
        self.root = {}
        self.contexts = [self.root]
        self.keys = []
        self.names = []
        self.x.text = <const uint8_t*><const char*>text
        self.x.n = len(text)
        self.x.state = TOP
        nul = <const uint8_t*>memchr(self.x.text, 0, self.x.n)
        if nul != NULL:
            self.x.pos = <size_t>(nul - self.x.text)
            fail(&self.x, "A NUL byte is not allowed")

    @property
    def line(self) -> int:
        return self.x.line

    @property
    def column(self) -> int:
        return self.x.column

    def advance(self) -> tuple | None:
        cdef Lexer* x = &self.x
        cdef Found found
        while x.error == NULL:
            self.taken += 1
            if not self.taken % ITEMS_TOGETHER:
                with nogil:
                    pass
            if not next_item(x):
                break
            found = x.found
            if found == FOUND_EOF:
                if self.dangling or len(self.contexts) > 1:
                    raise self.invalid()
                return None
            self.dangling = found == FOUND_KEY and not (x.size == 1 and x.p[0] == c'}')
            if found == FOUND_KEY:
                self.begin()
            elif found == FOUND_STRING:
                self.set(self.words())
            elif found == FOUND_MAP_START:
                self.contexts.append({})
            elif found == FOUND_ARRAY_START:
                self.contexts.append([])
            elif found == FOUND_MAP_END or found == FOUND_ARRAY_END:
                self.set(self.contexts.pop())
            elif found == FOUND_BOOL:
                self.set(True if is_yes(x.p, x.size) else False)
            elif found != FOUND_INTEGER or not self.set_integer():
                return _DECIDED[found], self.words()
        raise self.wrong()

    cdef str words(self):
        return PyUnicode_DecodeUTF8(<const char*>self.x.p, <Py_ssize_t>self.x.size, "surrogateescape")

    cdef int begin(self) except -1:
        # A key: the value stands where it stands.
        cdef Value value = Value.__new__(Value)
        cdef str name = self.words()
        if self.x.size <= KEY_SHARED:
            name = shared(name)
        value.line = self.x.line
        value.column = self.x.column
        value.file = self.file
        self.keys.append(value)
        self.names.append(name)
        return 0

    cpdef set(self, data):
        cdef Value value
        cdef object context = self.contexts[len(self.contexts) - 1]
        if type(context) is list:
            value = Value.__new__(Value)
            value.data = data
            value.line = self.x.line
            value.column = self.x.column
            value.file = self.file
            (<list>context).append(value)
            return
        if not self.keys:
            raise self.invalid()
        value = <Value>self.keys.pop()
        value.data = data
        (<dict>context)[self.names.pop()] = value

    cdef bint set_integer(self) except -1:
        # False: there is more to it than digits.
        cdef const uint8_t* p = self.x.p
        cdef size_t n = self.x.size, i
        cdef bint below = p[0] == c'-'
        cdef int64_t number = 0
        if n > DIGITS_PLAIN:
            return False
        for i in range(below, n):
            if not KINDS[p[i]] & IS_DIGIT:
                return False
            number = 10 * number + p[i] - c'0'
        self.set(-number if below else number)
        return True

    cdef object invalid(self):
        return Malformed(f"config is invalid ({self.file}:{self.x.line}:{self.x.column})")

    cdef object wrong(self):
        # What the lexer says, with its line and what it met.
        cdef Lexer* x = &self.x
        if x.error == NO_MEMORY:
            return MemoryError()
        got = (<const char*>x.got)[:x.got_size].decode("utf-8", "replace") if x.got_size else "\0"
        text = x.error.decode().replace("{}", "\\n" if got == "\n" else got, 1)
        return Malformed(f"Parse error on line {count_lines(x, x.pos)}: '{text}'")


cdef str shared(str name):
    # The one string of this text.
    cdef PyObject* p = <PyObject*>name
    Py_INCREF(name)
    PyUnicode_InternInPlace(&p)
    name = <str>p
    Py_DECREF(name)
    return name
