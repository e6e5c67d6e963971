# A client's life but its end: it is made, let into an account, and freed.

cdef void client_init(Client* c, Engine* e, Worklist* work, Account* a, uint64_t cid, int kind,
                      const Protocol* protocol) noexcept nogil:
    memset(c, 0, sizeof(Client))
    c.cid = cid
    c.kind = kind
    c.hears = HEARD_BY[kind]
    c.protocol = protocol
    c.engine = e
    c.work = work
    c.account = a
    account_hold(a)
    c.max_subscriptions = c.max_payload = -1
    if protocol.init != NULL:
        protocol.init(c)


cdef void client_become(Client* c, int kind, const Protocol* protocol) noexcept nogil:
    c.kind = kind
    c.hears = HEARD_BY[kind]
    c.protocol = protocol
    c.opts = NULL
    if protocol.init != NULL:
        protocol.init(c)


cdef void client_bind(Client* c, Account* a, int kind) noexcept nogil:
    client_leave(c)
    client_drop_subs(c)
    account_hold(a)
    account_release(c.account)
    c.account = a
    c.kind = kind
    c.hears = HEARD_BY[kind]


cdef bint client_join(Client* c, Account* a) noexcept nogil:
    client_leave(c)
    client_forget_replies(c)    # of the user that it was before
    client_forget_mapped(c)
    client_forget_measured(c)
    if c.account != a:
        client_drop_subs(c)
        account_hold(a)
        account_release(c.account)
        c.account = a
    if a.max_members >= 0 and a.members >= <uint64_t>a.max_members:
        return False
    a.members += 1
    c.member = True
    return True


cdef int64_t client_max_payload(const Client* c) noexcept nogil:
    cdef int64_t all_have = c.engine.limits.max_payload, own = c.account.max_payload
    if own < 0 or 0 <= c.max_payload < own:
        own = c.max_payload
    if own < 0:
        return all_have
    return own if all_have < 0 else min(own, all_have)


cdef void client_free(Client* c) noexcept nogil:
    cdef Chunk* k
    if c.protocol.end != NULL:
        c.protocol.end(c)
    client_drop_subs(c)
    strmap_free(&c.subs)
    client_forget_replies(c)
    client_forget_mapped(c)
    client_forget_measured(c)
    while c.head != NULL:
        k = c.head
        c.head = k.next
        chunk_release(c.engine, k)
    c.tail = NULL
    bytes_free(&c.user)
    client_leave(c)
    account_release(c.account)
    perms_release(c.perms)
    c.perms = NULL
