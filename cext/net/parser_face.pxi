# The parser's Python face, for tests.

cdef class PyParser:
    """The client protocol's parser for tests: feed() returns the operations completed so far.

    Each as (verb, subject, reply, queue, sid, header, data, max) with bytes; ("ERROR", text) ends it.
    """

    cdef Parser parser
    cdef bytearray kept

    def __cinit__(self, int64_t max_line=4096, int64_t max_payload=1048576):
        self.parser.max_line = max_line
        self.parser.max_payload = max_payload
        self.kept = bytearray()

    def feed(self, bytes data):
        cdef Op op
        cdef int rc
        cdef size_t at = 0
        cdef const uint8_t* p
        cdef list out = []
        self.kept += data
        p = <const uint8_t*>PyByteArray_AS_STRING(self.kept)
        while True:
            memset(&op, 0, sizeof(op))
            rc = parse(&self.parser, p + at, len(self.kept) - at, &op)
            if rc < 0:
                out.append(("ERROR", {PARSE_UNKNOWN: "unknown", PARSE_ARGS: "args", PARSE_SIZE: "args", PARSE_LINE: "line",
                                      PARSE_PAYLOAD: "payload"}[rc]))
            if rc != PARSE_OK:
                break
            out.append(self.tell(&op))
            at += op.size
        del self.kept[:at]
        return out

    @staticmethod
    def look(bytes data, uint32_t most=1000):
        """(subject, data) of what is recognised before the engine lock is taken."""
        cdef const uint8_t* p = data
        cdef Ahead* ahead = <Ahead*>calloc(most, sizeof(Ahead))
        cdef Ahead* a
        cdef list out = []
        cdef uint32_t i
        if ahead == NULL:
            raise MemoryError
        try:
            for i in range(client_look(p, len(data), ahead, most)):
                a = &ahead[i]
                out.append((p[4:4 + a.n_subject], p[a.data_at:a.data_at + a.n_data]))
                p += a.data_at + a.n_data + 2
        finally:
            free(ahead)
        return out

    cdef tuple tell(self, Op* op):
        verb = ("", "CONNECT", "INFO", "PING", "PONG", "PUB", "SUB", "UNSUB", "+OK", "-ERR")[op.kind]
        if op.kind == OP_PUB:
            return (verb, span_to_bytes(op.subject), span_to_bytes(op.reply), b"", b"",
                    span_to_bytes(op.header), span_to_bytes(op.data), 0)
        if op.kind == OP_SUB:
            return (verb, span_to_bytes(op.subject), b"", span_to_bytes(op.queue), span_to_bytes(op.sid), b"", b"", 0)
        if op.kind == OP_UNSUB:
            return (verb, b"", b"", b"", span_to_bytes(op.sid), b"", b"", op.max)
        return (verb, span_to_bytes(op.args), b"", b"", b"", b"", b"", 0)


cdef bytes span_to_bytes(Span s):
    return PyBytes_FromStringAndSize(<const char*>s.p, s.n) if s.n else b""
