# What a stream subscribes to: its subjects, and direct gets.

cdef void unsubscribe_all(Env* env, void** subs, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        if subs[i] != NULL:
            env.out.unsubscribe(env.out.ctx, subs[i])
            subs[i] = NULL


cdef void** subscribe_all(Stream* s, const StreamConfig* cfg) noexcept nogil:
    # Handles of all subjects, or NULL and nothing subscribed.
    cdef void** subs = <void**>calloc(cfg.n_subjects + 1, sizeof(void*))
    cdef uint32_t i
    if subs == NULL:
        return NULL
    for i in range(cfg.n_subjects):
        subs[i] = s.env.out.subscribe(s.env.out.ctx, s.account, cfg.subjects[i], HEARS_ALL | LISTENS,
                                      publish_inbound, s)
        if subs[i] == NULL:
            unsubscribe_all(s.env, subs, i)
            free(subs)
            return NULL
    return subs


cdef int subscribe_direct(Stream* s, Span name, void** subs) noexcept nogil:
    # Of the direct gets of a stream of this name one that serves them takes each: a mirror serves its origin's, too.
    cdef Bytes b
    cdef int rc = -1
    memset(&b, 0, sizeof(Bytes))
    if add_text(&b, b"$JS.API.DIRECT.GET.") == 0 and add_span(&b, name) == 0 and add_text(&b, b".>") == 0:
        subs[0] = s.env.out.subscribe(s.env.out.ctx, s.account, span(b.data, <uint32_t>b.n - 2),
                                      HEARS_REQUESTS | SHARES, direct_inbound, s)
        subs[1] = s.env.out.subscribe(s.env.out.ctx, s.account, span(b.data, <uint32_t>b.n),
                                      HEARS_REQUESTS | SHARES, direct_subject_inbound, s)
        rc = 0 if subs[0] != NULL and subs[1] != NULL else -1
    bytes_free(&b)
    if rc < 0:
        unsubscribe_all(s.env, subs, 2)
    return rc
