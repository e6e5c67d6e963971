# The end of clients' subscriptions.

cdef void sub_drop(Client* c, Sub* s) noexcept nogil:
    if s.closed:
        return
    if s.prev != NULL:
        s.prev.next = s.next
    else:
        c.first_sub = s.next
    if s.next != NULL:
        s.next.prev = s.prev
    c.n_subs -= 1
    if c.engine.trace:
        trace_line(c, TRACE_SUB, b"DELSUB", s.sid)
    strmap_del(&c.subs, s.sid)
    if s.shadow != NULL:
        shadows_drop(s)
    sublist_remove(c.account.subs, s)
    watch_changed(c.account, s, -1)
    if c.account.n_awaiting:
        interest_gone(c.account, s.subject)


cdef void client_drop_subs(Client* c) noexcept nogil:
    while c.first_sub != NULL:
        sub_drop(c, c.first_sub)
