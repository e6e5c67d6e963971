# What a span names, as Python has it.

cdef inline bytes span_bytes(Span s):
    return (<const char*>s.p)[:s.n] if s.n else b""
