# How a client closes: it leaves its account, and the thread that serves it ends it in its turn.

cdef void client_leave(Client* c) noexcept nogil:
    if c.member:
        c.account.members -= 1
        c.member = False


cdef void client_close(Client* c, int reason) noexcept nogil:
    # Takes effect in its reactor's turn; from now on nothing is delivered or written.
    if c.closing:
        return
    c.closing = reason
    client_leave(c)
    c.next_closing = c.work.closing
    c.work.closing = c
    if reason == CLOSE_SLOW_PENDING or reason == CLOSE_SLOW_DEADLINE:
        c.engine.stats.slow_consumers += 1
        c.engine.stats.slow_clients += c.kind == KIND_CLIENT
        c.engine.stats.slow_routes += c.kind == KIND_ROUTER
        c.engine.stats.slow_gateways += c.kind == KIND_GATEWAY
        c.engine.stats.slow_leafs += c.kind >= KIND_LEAF
    elif reason == CLOSE_STALE:
        c.engine.stats.stale_clients += c.kind == KIND_CLIENT
        c.engine.stats.stale_routes += c.kind == KIND_ROUTER
        c.engine.stats.stale_gateways += c.kind == KIND_GATEWAY
        c.engine.stats.stale_leafs += c.kind >= KIND_LEAF
