# Replies that a client may give though its permissions do not name their subjects (allow_responses).

cdef void note_response(Client* c, Span reply) noexcept nogil:
    # allow_responses: what c was asked with a reply, it may answer, so often and so long. To be asked again with a reply that
    # is open counts as an answer to it, as in nats-server; the time goes on.
    cdef Reply* r
    if perms_can_publish(c.perms, reply) or may_respond(c, reply):
        return
    if c.opts.replies.n >= 4096:
        forget_responses(c)
    r = <Reply*>malloc(sizeof(Reply))
    if r == NULL:
        return
    if strmap_put(&c.opts.replies, reply, r) != 0:
        free(r)
        return
    r.left = c.opts.responses_max
    r.expires = c.engine.env.mono + c.opts.responses_ttl if c.opts.responses_ttl > 0 else INT64_MAX


cdef void forget_responses(Client* c) noexcept nogil:
    # Drops the openings that ran out, or all when none did: the table stays bounded.
    cdef uint32_t i
    cdef Reply* r
    cdef StrMap kept
    memset(&kept, 0, sizeof(kept))
    for i in range(c.opts.replies.cap):
        if c.opts.replies.keys[i] == NULL:
            continue
        r = <Reply*>c.opts.replies.vals[i]
        if (r.expires > c.engine.env.mono and kept.n < 2048
                and strmap_put(&kept, Span(c.opts.replies.keys[i], c.opts.replies.lens[i]), r) == 0):
            continue
        free(r)
    strmap_free(&c.opts.replies)
    c.opts.replies = kept


cdef bint may_respond(Client* c, Span subject) noexcept nogil:
    cdef Reply* r
    if c.opts == NULL or not c.opts.responses:
        return False
    r = <Reply*>strmap_get(&c.opts.replies, subject)
    if r == NULL:
        return False
    if r.expires <= c.engine.env.mono or r.left == 0:
        strmap_del(&c.opts.replies, subject)
        free(r)
        return False
    if r.left > 0:
        r.left -= 1
    return True


cdef void client_forget_replies(Client* c) noexcept nogil:
    cdef uint32_t i
    if c.opts == NULL:
        return
    for i in range(c.opts.replies.cap):
        if c.opts.replies.keys[i] != NULL:
            free(c.opts.replies.vals[i])
    strmap_free(&c.opts.replies)
