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
    list_push_back(&e.accounts, &a.node)
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
    list_remove(&a.node)
    list_push_back(&e.ended, &a.node)


cdef void account_free(Account* a) noexcept nogil:
    if a.told != NULL:
        a.engine.peers.forget(a.engine.peers, a)
    sublist_free(a.subs)
    strmap_free(&a.watches)
    strmap_free(&a.early)
    mappings_free(a.mappings)
    free(<void*>a.domain.p)
    free(a)


cdef void accounts_gc(Engine* e) noexcept nogil:
    cdef ListWalk all = list_walk(&e.ended)
    cdef Account* a = account_step(&all)
    while a != NULL:
        list_remove(&a.node)
        account_free(a)
        a = account_step(&all)
