# The inboxes that both sides of a catch-up answer on.

cdef enum:
    TOKEN = 8                   # characters of an inbox's last token
    INBOX_MAX = 512             # bytes of a subject that is answered on


cdef uint32_t inbox_new(Env* env, const char* prefix, char* to) noexcept nogil:
    # A subject that nobody else has; how many bytes.
    cdef uint32_t n = <uint32_t>strlen(prefix)
    memcpy(to, prefix, n)
    env_token(env, <uint8_t*>to + n, TOKEN)
    return n + TOKEN
