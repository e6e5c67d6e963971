# What a text is made into: values with their places.

@cython.freelist(256)
cdef class Value:
    # language.pyi says what it is.
    cdef public object data
    cdef public object file
    cdef public uint32_t line
    cdef public uint32_t column
    cdef public bint used

    def __init__(self, data, uint32_t line=0, uint32_t column=0, file="") -> None:
        self.data = data
        self.line = line
        self.column = column
        self.file = file

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def plain(self) -> object:
        if isinstance(self.data, dict):
            return {key: value.plain() for key, value in self.data.items()}
        if isinstance(self.data, list):
            return [value.plain() for value in self.data]
        return self.data


def plain_subjects(list values not None) -> list | None:
    """language.pyi says what it is."""
    cdef list found = []
    cdef Value value
    cdef const char* p
    cdef Py_ssize_t n, i
    for item in values:
        value = <Value?>item
        if type(value.data) is not str or not PyUnicode_IS_COMPACT_ASCII(value.data):
            return None
        p = PyUnicode_AsUTF8AndSize(value.data, &n)
        for i in range(n):
            if not c' ' < p[i] < 0x7f:
                return None
        if n > UINT32_MAX or not subject_is_valid(span(<const uint8_t*>p, <uint32_t>n)):
            return None
        found.append(value.data)
    return found
