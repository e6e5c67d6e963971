# Subjects that are the server's own: where no client publishes, and which none names for replies.

cdef inline bint is_kept_from(const Client* c, Span subject) noexcept nogil:
    # Whether no client may publish there, whatever its permissions say.
    return subject.n > 4 and ((subject.n > 5 and span_starts(subject, b"_GR_.", 5))
                              or (span_starts(subject, b"$NRG.", 5) and not c.account.system))


cdef inline bint goes_to_acks(Span reply) noexcept nogil:
    # What is sent to these subjects is believed for the kind of message that it is: $JS.ACK and $JS.FC, and those of acks that
    # the server itself waits for. A client that names one as a reply would choose what comes there.
    return (span_starts(reply, b"ACK.", 4) or span_starts(reply, b"FC.", 3) or span_starts(reply, b"DEAD.", 5)
            or span_starts(reply, b"OBJECT.", 7))


cdef inline bint reply_is_reserved(Span reply) noexcept nogil:
    # A prefix alone is none.
    return ((reply.n > 8 and span_starts(reply, b"$JS.", 4) and goes_to_acks(span(reply.p + 4, reply.n - 4)))
            or (reply.n > 5 and span_starts(reply, b"_GR_.", 5)) or (reply.n > 3 and span_starts(reply, b"_R_.", 4)))
