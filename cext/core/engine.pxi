# The engine: its life, the end of its accounts, and the way out that the layers below are handed.

cdef int outlet_send(void* ctx, const Msg* m) noexcept nogil:
    # Whatever message led to it, this one has come by no import.
    cdef Engine* e = <Engine*>ctx
    cdef const Via* outer = e.via
    cdef int taken
    e.via = NULL
    taken = engine_route(e, NULL, m)
    e.via = outer
    return taken


cdef void* outlet_subscribe(void* ctx, void* account, Span subject, int hears, inbound_fn fn,
                            void* target) noexcept nogil:
    return own_subscribe(<Account*>account, subject, hears, 0, fn, target)


cdef void outlet_unsubscribe(void* ctx, void* handle) noexcept nogil:
    own_unsubscribe(<Sub*>handle)


cdef enum:
    PENDING_MUCH = 524288   # bytes: a sender to a client that has so many to take rests, while they are in the cache


cdef void limit_pending(EngineLimits* limits, int64_t most) noexcept nogil:
    limits.max_pending = most
    limits.much_pending = min(<uint64_t>PENDING_MUCH, <uint64_t>(most - most // 4))


cdef int engine_init(Engine* e, int inbox_fd) noexcept nogil:
    memset(e, 0, sizeof(Engine))
    e.inbox.fd = inbox_fd
    e.inbox.requests_max = 10000
    e.inbox.asking_max = 128
    e.env.files = posix_files()
    e.env.system = posix_system()
    e.env.out.ctx = e
    e.env.out.send = outlet_send
    e.env.out.subscribe = outlet_subscribe
    e.env.out.unsubscribe = outlet_unsubscribe
    e.env.out.has_interest = outlet_has_interest
    e.env.out.heard_by = outlet_heard_by
    e.env.out.still_full = outlet_still_full
    e.env.out.watch = outlet_watch
    e.env.out.unwatch = outlet_unwatch
    e.env.out.event = outlet_event
    draft_open(&e.mapped)
    e.responses.sweep.fn = responses_sweep
    e.responses.sweep.owner = e
    e.limits.max_payload = 1024 * 1024
    e.limits.max_control_line = 4096
    limit_pending(&e.limits, 64 * 1024 * 1024)
    e.limits.max_connections = 65536
    e.limits.headers = True
    e.limits.stall = True
    return 0


cdef void engine_free(Engine* e) noexcept nogil:
    # Every client, stream and consumer is gone before.
    accounts_free(e)
    u64map_free(&e.responses.by_id)
    free(e.responses.buckets)
    bytes_free(&e.server_name)
    bytes_free(&e.cluster_name)
    draft_free(&e.mapped)
    chunks_free(e)
    bytes_free(&e.inbox.items)
    free(e.env.timers.a)


cdef void accounts_free(Engine* e) noexcept nogil:
    # All of them, also those that are still referred to.
    cdef ListNode* at = list_first(&e.accounts)
    cdef ListWalk rest
    cdef Account* a
    while at != NULL:
        account_unlink(<Account*>list_owner(at, &(<Account*>NULL).node))    # others may end with that
        at = list_next(&e.accounts, at)
    accounts_gc(e)
    rest = list_walk(&e.accounts)
    a = account_step(&rest)
    while a != NULL:
        account_end(a)
        a = account_step(&rest)
    accounts_gc(e)
    strmap_free(&e.by_name)


cdef void account_close(Account* a) noexcept nogil:
    cdef Sub* s
    if a.closed:
        return
    account_hold(a)
    strmap_del(&a.engine.by_name, a.name)
    a.closed = True
    account_unlink(a)
    s = sub_at(list_pop(&a.served))
    while s != NULL:
        own_unsubscribe(s)
        s = sub_at(list_pop(&a.served))
    account_release(a)
