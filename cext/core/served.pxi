# Subscriptions of the server's own, and those of them that end with their account.

cdef Sub* own_subscribe(Account* a, Span subject, int hears, int link, inbound_fn fn,
                        void* target) noexcept nogil:
    # A subscription of the server's own; link: where it leads, as Sub.link.
    cdef Span none = span(NULL, 0)
    cdef Sub* s = sub_new(subject, span_c(b"_sys_") if hears & SHARES else none, none)
    if s == NULL:
        return NULL
    s.fn = fn
    s.link = link
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
    interest_changed(a, s, 1)
    return s


cdef void own_unsubscribe(Sub* s) noexcept nogil:
    cdef Account* a = <Account*>s.account
    list_drop(&s.node)                                      # of what its account serves
    if s.hears & ANSWERS:
        if strmap_get(&a.early, s.subject) == s:        # else another one has taken its place
            strmap_del(&a.early, s.subject)
        sub_free(s)
        account_release(a)
        return
    shadows_drop(s)
    sublist_remove(a.subs, s)
    interest_changed(a, s, -1)
    account_release(a)


cdef Sub* account_serve(Account* a, Span subject, int hears, inbound_fn fn) noexcept nogil:
    return serve_link(a, subject, hears, 0, fn)


cdef Sub* serve_link(Account* a, Span subject, int hears, int link, inbound_fn fn) noexcept nogil:
    # As account_serve; link: as of own_subscribe.
    cdef Sub* s
    if a.closed:
        return NULL
    s = own_subscribe(a, subject, hears, link, fn, a)
    if s != NULL:
        list_push_front(&a.served, &s.node)
    return s


cdef void account_stop_serving(Account* a, Span subject) noexcept nogil:
    # Ends the latest account_serve of this subject.
    cdef ListWalk all = list_walk(&a.served)
    cdef Sub* s = sub_at(list_step(&all))
    while s != NULL and not span_eq(s.subject, subject):
        s = sub_at(list_step(&all))
    if s != NULL:
        own_unsubscribe(s)
