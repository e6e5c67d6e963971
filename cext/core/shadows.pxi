# Shadows: subscriptions in the account that exports a stream, for those of an account that imports it.

cdef bint draft_overlap(Span a, Span b, Draft* d) noexcept nogil:
    # The pattern of the subjects that both match; False: there are none.
    cdef Tokens x = tokens_of(a), y = tokens_of(b)
    while True:
        if x.n == 0 or y.n == 0:
            return False
        if is_tail(&x):
            draft_add(d, y.p, b.p + b.n - y.p)
            return True
        if is_tail(&y):
            draft_add(d, x.p, a.p + a.n - x.p)
            return True
        if is_star(&x):
            draft_add(d, y.p, y.n)
        elif is_star(&y) or same_token(&x, &y):
            draft_add(d, x.p, x.n)
        else:
            return False
        if x.last or y.last:
            return x.last and y.last
        draft_byte(d, c'.')
        tokens_cut(&x)
        tokens_cut(&y)


cdef void shadow_add(Sub* s, StreamImport* of, Span subject) noexcept nogil:
    # Without memory there is none, and its messages are not heard.
    cdef Sub* shadow = sub_new(subject, s.queue, s.sid)
    if shadow == NULL:
        return
    shadow.link = LINK_SHADOW
    shadow.shadow = s
    shadow.target = of
    shadow.account = of.to
    shadow.hears = s.hears
    shadow.weight = s.weight
    shadow.listens = True
    if sublist_insert(of.to.subs, shadow) != 0:
        sub_free(shadow)
        return
    shadow.next_shadow = s.shadow
    s.shadow = shadow
    interest_changed(of.to, shadow, 1)


cdef void shadows_add(Account* a, Sub* s) noexcept nogil:
    cdef StreamImport* of = a.streams
    cdef Draft overlap, subject
    while of != NULL:
        draft_open(&overlap)
        draft_open(&subject)
        if not of.to.closed and draft_overlap(s.subject, of.local, &overlap):
            if subject_covers(draft_span(&overlap), of.local) or of.is_literal:
                draft_add(&subject, of.subject.p, of.subject.n)
            elif of.back == NULL:
                draft_add(&subject, overlap.p, overlap.n)
            else:
                transform_apply(of.back, &a.engine.env, draft_span(&overlap), &subject)
            if not overlap.failed and not subject.failed:
                shadow_add(s, of, draft_span(&subject))
        draft_free(&overlap)
        draft_free(&subject)
        of = of.next


cdef void shadows_drop(Sub* s) noexcept nogil:
    cdef Sub* shadow
    while s.shadow != NULL:
        shadow = s.shadow
        s.shadow = shadow.next_shadow
        sublist_remove((<Account*>shadow.account).subs, shadow)
        interest_changed(<Account*>shadow.account, shadow, -1)
