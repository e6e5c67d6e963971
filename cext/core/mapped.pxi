# Replies that name a server of another cluster, `_GR_.<cluster>.<server>.<reply>`: what is sent there goes straight to that
# server, which knows the reply. Interest in the reply may be on its way still when a request arrives. Clients see the reply
# alone; an answer that they give soon goes to the whole subject.

cdef enum:
    MAPPED_NS = 2000000000      # how long an answer goes to the whole subject; by then interest in the reply has arrived
    MAPPED_MAX = 16384          # of one connection

cdef struct Mapped:
    # One allocation, with its text.
    int64_t until
    ListNode node               # of ClientOptions.mapped_by_time
    Span full


cdef inline Mapped* mapped_at(const ListNode* n) noexcept nogil:
    return <Mapped*>list_owner(n, &(<Mapped*>NULL).node)


cdef void mapped_free(ClientOptions* o, Mapped* m) noexcept nogil:
    strmap_del(&o.mapped, unmapped(m.full))
    list_remove(&m.node)
    free(m)


cdef void mapped_expire(ClientOptions* o, int64_t now) noexcept nogil:
    cdef Mapped* m
    while not list_empty(&o.mapped_by_time):
        m = mapped_at(list_first(&o.mapped_by_time))
        if m.until > now:
            return
        mapped_free(o, m)


cdef void note_mapped(Client* c, Span full) noexcept nogil:
    # c was asked with that reply. Without memory its answer goes where interest leads.
    cdef ClientOptions* o = c.opts
    cdef Mapped* m
    mapped_expire(o, c.engine.env.mono)
    m = <Mapped*>strmap_get(&o.mapped, unmapped(full))
    if m != NULL:
        mapped_free(o, m)
    elif o.mapped.n >= MAPPED_MAX:
        return
    m = <Mapped*>calloc(1, sizeof(Mapped) + full.n)
    if m == NULL:
        return
    memcpy(m + 1, full.p, full.n)
    m.full = span(<const uint8_t*>(m + 1), full.n)
    m.until = c.engine.env.mono + MAPPED_NS
    if strmap_put(&o.mapped, unmapped(m.full), m) != 0:
        free(m)
        return
    list_push_back(&o.mapped_by_time, &m.node)


cdef Span mapped_subject(Client* c, Span subject) noexcept nogil:
    # Where an answer of c goes; .p NULL: where it says. Lasts until another reply of its connection is noted.
    cdef Mapped* m
    mapped_expire(c.opts, c.engine.env.mono)
    m = <Mapped*>strmap_get(&c.opts.mapped, subject)
    return m.full if m != NULL else span(NULL, 0)


cdef void client_forget_mapped(Client* c) noexcept nogil:
    if c.opts == NULL:
        return
    while not list_empty(&c.opts.mapped_by_time):
        mapped_free(c.opts, mapped_at(list_first(&c.opts.mapped_by_time)))
    strmap_free(&c.opts.mapped)
