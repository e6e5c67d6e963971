# Pull requests that wait with a consumer's leader, as the other members know them: by their replies. Who takes the lead tells
# those who wait to ask again.

cdef inline Asked* asked_first(const Consumer* c) noexcept nogil:
    return <Asked*>list_owner(list_first(&c.asked.all), &(<Asked*>NULL).node)


cdef void asked_drop(Consumer* c, Asked* a) noexcept nogil:
    strmap_del(&c.asked.by_reply, span(a.reply, a.n_reply))
    list_remove(&a.node)
    free(a)


cdef int asked_add(Consumer* c, Span reply) noexcept nogil:
    # More than the leader lets wait are those of leaders before: the oldest go. 0 | -1 no memory
    cdef Asked* a
    if strmap_get(&c.asked.by_reply, reply) != NULL:
        return 0
    while c.asked.by_reply.n and <int64_t>c.asked.by_reply.n >= c.cfg.max_waiting:
        asked_drop(c, asked_first(c))
    a = <Asked*>malloc(sizeof(Asked) + reply.n)
    if a == NULL:
        return -1
    memset(a, 0, sizeof(Asked))
    a.n_reply = reply.n
    memcpy(a.reply, reply.p, reply.n)
    if strmap_put(&c.asked.by_reply, reply, a) < 0:
        free(a)
        return -1
    list_push_back(&c.asked.all, &a.node)
    return 0


cdef void asked_remove(Consumer* c, Span reply) noexcept nogil:
    cdef Asked* a = <Asked*>strmap_get(&c.asked.by_reply, reply)
    if a != NULL:
        asked_drop(c, a)


cdef void asked_forget(Consumer* c) noexcept nogil:
    while c.asked.by_reply.n:
        asked_drop(c, asked_first(c))
    strmap_free(&c.asked.by_reply)


cdef void asked_end(Consumer* c) noexcept nogil:
    # Who takes the lead does not know what was asked. The others forget the requests, too.
    cdef Asked* a
    while c.asked.by_reply.n:
        a = asked_first(c)
        refuse(c, span(a.reply, a.n_reply), b"409 Leadership Change")
        propose_position(c, OP_REQUEST_ENDS, 0, span(a.reply, a.n_reply))
        asked_drop(c, a)
