# What a stream subscribes to: its subjects, and direct gets.

cdef void unsubscribe_all(Env* env, void** subs, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        if subs[i] != NULL:
            env.out.unsubscribe(env.out.ctx, subs[i])
            subs[i] = NULL


cdef bint subscribe_all(Stream* s, const Span* subjects, uint32_t n, void** subs) noexcept nogil:
    # Handles of these subjects; False: nothing is subscribed.
    cdef uint32_t i
    for i in range(n):
        subs[i] = s.env.out.subscribe(s.env.out.ctx, s.account, subjects[i], HEARS_ALL | LISTENS, publish_inbound, s)
        if subs[i] == NULL:
            unsubscribe_all(s.env, subs, i)
            return False
    return True


cdef bint subjects_replace(Stream* s, const StreamConfig* new) noexcept nogil:
    # Of an active stream: those that both lists begin and end with stay subscribed, as of a long list most do. Of the
    # rest first the new ones: nothing is missed between. False: everything is as it was.
    cdef const StreamConfig* old = &s.cfg
    cdef uint32_t least = min(s.n_subs, new.n_subjects), head = 0, tail = 0, added, gone
    cdef void** subs = <void**>calloc(<size_t>new.n_subjects + 1, sizeof(void*))
    if subs == NULL:
        return False
    while head < least and span_eq(old.subjects[head], new.subjects[head]):
        head += 1
    while tail < least - head and span_eq(old.subjects[s.n_subs - tail - 1], new.subjects[new.n_subjects - tail - 1]):
        tail += 1
    added = new.n_subjects - head - tail
    gone = s.n_subs - head - tail
    if not subscribe_all(s, &new.subjects[head], added, &subs[head]):
        free(subs)
        return False
    unsubscribe_all(s.env, &s.subs[head], gone)
    memcpy(subs, s.subs, head * sizeof(void*))
    memcpy(&subs[head + added], &s.subs[head + gone], tail * sizeof(void*))
    free(s.subs)
    s.subs = subs
    s.n_subs = new.n_subjects
    return True


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
