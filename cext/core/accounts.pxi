# Accounts: made and found by name, and freed when the last who refers to them has let go.

cdef enum:
    ACCOUNT_ID_MAX = 0xfffffff0


cdef Account* account_open(Engine* e, Span name) noexcept nogil:
    cdef Account* a = <Account*>strmap_get(&e.by_name, name)
    cdef uint8_t* copy
    if a != NULL:
        a.refs += 1
        return a
    if e.next_account >= ACCOUNT_ID_MAX:
        return NULL
    a = <Account*>calloc(1, sizeof(Account) + name.n)
    if a == NULL:
        return NULL
    copy = <uint8_t*>a + sizeof(Account)
    if name.n:
        memcpy(copy, name.p, name.n)
    a.name = span(copy, name.n)
    a.engine = e
    a.memory.max = a.storage.max = -1
    a.max_members = a.max_subscriptions = a.max_payload = -1
    a.subs = sublist_new(&e.waiting)
    if a.subs == NULL or strmap_put(&e.by_name, a.name, a) != 0:
        sublist_free(a.subs)
        free(a)
        return NULL
    a.id = e.next_account
    e.next_account += 1
    a.refs = 1
    a.prev = e.last_account
    if e.last_account != NULL:
        e.last_account.next = a
    else:
        e.first_account = a
    e.last_account = a
    return a


cdef void account_hold(Account* a) noexcept nogil:
    a.refs += 1


cdef void account_release(Account* a) noexcept nogil:
    invariant(a.refs > 0, "an account is released once for each that held it")
    a.refs -= 1
    if a.refs == 0 and a.closed:
        account_end(a)


cdef void account_end(Account* a) noexcept nogil:
    # A delivery under way may still name it: gc frees it.
    cdef Engine* e = a.engine
    if a.prev != NULL:
        a.prev.next = a.next
    else:
        e.first_account = a.next
    if a.next != NULL:
        a.next.prev = a.prev
    else:
        e.last_account = a.prev
    a.next = e.ended
    e.ended = a


cdef void account_free(Account* a) noexcept nogil:
    sublist_free(a.subs)
    strmap_free(&a.watches)
    strmap_free(&a.early)
    mappings_free(a.mappings)
    free(<void*>a.domain.p)
    free(a)


cdef void accounts_gc(Engine* e) noexcept nogil:
    cdef Account* a
    while e.ended != NULL:
        a = e.ended
        e.ended = a.next
        account_free(a)


cdef void accounts_free(Engine* e) noexcept nogil:
    # All of them, whoever refers to them.
    cdef Account* a = e.first_account
    while a != NULL:
        account_unlink(a)
        a = a.next
    accounts_gc(e)
    while e.first_account != NULL:
        account_end(e.first_account)
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
    while a.served != NULL:
        s = a.served
        a.served = s.next
        own_unsubscribe(s)
    account_release(a)


cdef Sub* account_serve(Account* a, Span subject, int hears, inbound_fn fn) noexcept nogil:
    cdef Sub* s
    if a.closed:
        return NULL
    s = own_subscribe(a, subject, hears, fn, a)
    if s != NULL:
        s.next = a.served
        a.served = s
    return s


cdef void account_stop_serving(Account* a, Span subject) noexcept nogil:
    # Ends the latest account_serve of this subject.
    cdef Sub** at = &a.served
    cdef Sub* s
    while at[0] != NULL:
        s = at[0]
        if span_eq(s.subject, subject):
            at[0] = s.next
            own_unsubscribe(s)
            return
        at = &s.next


cdef Sub* own_subscribe(Account* a, Span subject, int hears, inbound_fn fn, void* target) noexcept nogil:
    # A subscription of the server's own.
    cdef Span none = span(NULL, 0)
    cdef Sub* s = sub_new(subject, span_c(b"_sys_") if hears & SHARES else none, none)
    if s == NULL:
        return NULL
    s.fn = fn
    s.hears = hears
    s.target = target
    s.account = a
    s.listens = hears & LISTENS != 0
    if (strmap_put(&a.early, s.subject, s) if hears & ANSWERS else sublist_insert(a.subs, s)) != 0:
        sub_free(s)
        return NULL
    account_hold(a)
    if hears & IMPORTS and a.streams != NULL:
        shadows_add(a, s)
    if s.listens:
        watch_changed(a, s, 1)
    return s


cdef void own_unsubscribe(Sub* s) noexcept nogil:
    cdef Account* a = <Account*>s.account
    if s.hears & ANSWERS:
        if strmap_get(&a.early, s.subject) == s:        # else another one has taken its place
            strmap_del(&a.early, s.subject)
        sub_free(s)
        account_release(a)
        return
    shadows_drop(s)
    sublist_remove(a.subs, s)
    if s.listens:
        watch_changed(a, s, -1)
    account_release(a)
