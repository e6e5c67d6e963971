# Reply subjects for both sides of a catch-up from store to store.

cdef enum:
    TOKEN = 8                   # characters of an inbox's last token
    INBOX_MAX = 512             # bytes of a reply subject


cdef uint32_t inbox_new(Env* env, const char* prefix, char* to) noexcept nogil:
    # Writes a new unique subject; its length.
    cdef uint32_t n = <uint32_t>strlen(prefix)
    memcpy(to, prefix, n)
    env_token(env, <uint8_t*>to + n, TOKEN)
    return n + TOKEN
