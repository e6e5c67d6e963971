"""Drives the parser of links: bytes in, operations out as plain values."""

from libc.stdint cimport uint8_t
from libc.string cimport memset

from jsserver.cext.bytes cimport Span, span_of
from jsserver.cext.links cimport *

include "texts.pxi"

KINDS = {LINE_CONNECT: "connect", LINE_INFO: "info", LINE_PING: "ping", LINE_PONG: "pong", LINE_OK: "ok",
         LINE_ERR: "err", LINE_INTEREST: "interest", LINE_NO_INTEREST: "no interest", LINE_MESSAGE: "message",
         LINE_ACCOUNT: "account", LINE_NO_ACCOUNT: "no account"}
RESULTS = {LINE_MORE: "more", LINE_UNKNOWN: "unknown", LINE_ARGUMENTS: "arguments", LINE_LONG: "long",
           LINE_PAYLOAD: "payload"}
DIALECTS = {"route": DIALECT_ROUTE, "account": DIALECT_ACCOUNT, "leaf": DIALECT_LEAF, "gateway": DIALECT_GATEWAY}


cdef class PyLinkParser:
    cdef LinkParser ps

    def __init__(self, dialect, max_line=65536, max_payload=-1):
        memset(&self.ps, 0, sizeof(LinkParser))
        self.ps.dialect = DIALECTS[dialect]
        self.ps.max_line = max_line
        self.ps.max_payload = max_payload

    @property
    def need(self):
        return self.ps.need

    def parse(self, bytes data not None):
        """A dictionary of what the line has, or the name of another result."""
        cdef Line line
        cdef int rc
        rc = line_parse(&self.ps, <const uint8_t*><const char*>data, len(data), &line)
        if rc != LINE_READ:
            return RESULTS[rc]
        out = {"kind": KINDS[line.kind], "size": line.size}
        for key, value in (("args", span_bytes(line.args)), ("origin", span_bytes(line.origin)),
                           ("account", span_bytes(line.account)), ("subject", span_bytes(line.subject)),
                           ("reply", span_bytes(line.reply)), ("queue", span_bytes(line.queue)),
                           ("weight", line.weight), ("header", span_bytes(line.header)),
                           ("data", span_bytes(line.data))):
            if value:
                out[key] = value
        if line.chosen:
            out["queues"] = span_bytes(line.queues).split()
        return out


def ack_subject(bytes reply not None):
    """Reply and subject, or None."""
    cdef Span r = span_of(reply)
    cdef Span s
    if not ack_subject_take(&r, &s):
        return None
    return span_bytes(r), span_bytes(s)
