# Files of certificates and keys, and what OpenSSL says of them.

cdef enum:
    PIECE_MAX = 16777216    # bytes of a file of certificates or keys


class ContextError(ValueError):
    """Certificates, keys or rules that cannot be used; the text says why."""


cdef int no_password(char* p, int n, int rw, void* arg) noexcept nogil:
    # Else OpenSSL would ask the terminal.
    return -1


cdef str last_reason():
    cdef unsigned long e = ERR_peek_last_error()
    cdef const char* words = ERR_reason_error_string(e) if e else NULL
    return "unknown error" if words == NULL else (<bytes>words).decode("ascii", "replace")


cdef BIO* read_piece(bytes text) except NULL:
    cdef BIO* b
    if len(text) > PIECE_MAX:
        raise ContextError("the file is too large")
    b = BIO_new_mem_buf(<const char*>text, <int>len(text))
    if b == NULL:
        raise MemoryError
    return b
