# What an account imports: services, whose requests a subscription of its own takes, and streams, which its subscriptions hear
# by their shadows.

cdef enum:
    # The server that a request came from has sent it through the import already.
    REQUESTERS = HEARS_ALL & ~(1 << KIND_ROUTER | 1 << KIND_GATEWAY)


cdef ServiceImport* service_new(Account* to, Span subject, Span latency) noexcept nogil:
    cdef ServiceImport* s = <ServiceImport*>calloc(1, sizeof(ServiceImport) + <size_t>subject.n + latency.n)
    cdef uint8_t* text
    if s == NULL:
        return NULL
    text = <uint8_t*>(s + 1)
    s.subject = sub_text(&text, subject)
    s.latency = sub_text(&text, latency)
    s.to = to
    return s


cdef StreamImport* stream_import_new(Account* to, Span subject, Span local) noexcept nogil:
    cdef StreamImport* s = <StreamImport*>calloc(1, sizeof(StreamImport) + <size_t>subject.n + local.n)
    cdef uint8_t* text
    if s == NULL:
        return NULL
    text = <uint8_t*>(s + 1)
    s.subject = sub_text(&text, subject)
    s.local = sub_text(&text, local)
    s.to = to
    return s


cdef void services_free(ServiceImport* s) noexcept nogil:
    cdef ServiceImport* after
    while s != NULL:
        after = s.next
        transform_free(s.transform)
        free(s)
        s = after


cdef void stream_imports_free(StreamImport* s) noexcept nogil:
    cdef StreamImport* after
    while s != NULL:
        after = s.next
        transform_free(s.there)
        transform_free(s.back)
        free(s)
        s = after


cdef struct Noted:
    Bytes subs
    Sub* missed             # for want of memory


cdef void note_sub(void* ctx, Sub* s) noexcept nogil:
    cdef Noted* noted = <Noted*>ctx
    if has_imports(s) and bytes_add(&noted.subs, &s, sizeof(Sub*)) < 0:
        noted.missed = s


cdef void note_shadowed(void* ctx, Sub* s) noexcept nogil:
    if has_imports(s) and s.shadow != NULL:
        (<Noted*>ctx).missed = s


cdef void each_importing_sub(Account* a, bint add) noexcept nogil:
    # Gives the subscriptions that imports reach their shadows, or takes them away. An account may import from itself, so they are
    # noted down before its sublist changes.
    cdef Noted noted
    cdef Sub** at
    cdef size_t i
    memset(&noted, 0, sizeof(noted))
    sublist_each(a.subs, note_sub, &noted)
    at = <Sub**>noted.subs.data
    for i in range(noted.subs.n // sizeof(Sub*)):
        if add:
            shadows_add(a, at[i])
        else:
            shadows_drop(at[i])
    bytes_free(&noted.subs)
    while not add and noted.missed != NULL:     # none may stay that leads to what is about to be freed
        noted.missed = NULL
        sublist_each(a.subs, note_shadowed, &noted)
        if noted.missed != NULL:
            shadows_drop(noted.missed)


cdef void account_unlink(Account* a) noexcept nogil:
    # Whatever still waits for replies waits in vain. No message is under way.
    cdef ServiceImport* s = a.services
    cdef StreamImport* t = a.streams
    if s == NULL and t == NULL:
        return
    if t != NULL:
        each_importing_sub(a, False)
    while s != NULL:
        responses_free(a.engine, s)
        if s.sub != NULL:
            own_unsubscribe(s.sub)
        account_release(s.to)
        s = s.next
    while t != NULL:
        account_release(t.to)
        t = t.next
    services_free(a.services)
    stream_imports_free(a.streams)
    a.services = NULL
    a.streams = NULL


cdef void replies_go_on(Account* a, ServiceImport* services, const Span* subjects) noexcept nogil:
    # Requests of imports that there are again keep their replies. They are looked for only where somebody waits.
    cdef ServiceImport* before = a.services
    cdef ServiceImport* s
    cdef const Span* local
    while before != NULL:
        s = services if not list_empty(&before.waiting) and before.sub != NULL else NULL
        local = subjects
        while s != NULL:
            if (s.to == before.to and list_empty(&s.waiting) and s.respond == before.respond
                    and span_eq(local[0], before.sub.subject) and span_eq(s.subject, before.subject)):
                responses_adopt(a.engine, s, before)
                break
            local += 1
            s = s.next
        before = before.next


cdef int account_link(Account* a, ServiceImport* services, const Span* subjects, StreamImport* streams) noexcept nogil:
    cdef ServiceImport* s = services
    cdef StreamImport* t = streams
    cdef int rc = 0
    while s != NULL:
        s.account = a
        s.timer.fn = responses_expire
        s.timer.owner = s
        s = s.next
    if not a.closed:
        replies_go_on(a, services, subjects)
    account_unlink(a)
    if a.closed:
        services_free(services)
        stream_imports_free(streams)
        return 0
    a.services = services
    a.streams = streams
    a.api_imported = False
    s = services
    while s != NULL:
        account_hold(s.to)
        a.api_imported = a.api_imported or subject_covers(subjects[0], span_c(b"$JS.API.INFO"))
        s.sub = own_subscribe(a, subjects[0], REQUESTERS | LISTENS, LINK_SERVICE, NULL, s)
        if s.sub == NULL:
            rc = -1
        subjects += 1
        s = s.next
    while t != NULL:
        account_hold(t.to)
        t = t.next
    if streams != NULL:
        each_importing_sub(a, True)
    if rc < 0:
        account_unlink(a)
    return rc
