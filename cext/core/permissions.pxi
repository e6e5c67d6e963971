# What a user may publish and subscribe: allow and deny lists of subjects, for subscriptions with queues.
# Deny wins. Literal entries are found by hash, patterns are tried one by one.

cdef struct PermEntry:
    Span subject            # the texts follow the struct
    Span queue
    PermEntry* next         # same literal subject, or next pattern

cdef struct PermList:
    bint present
    StrMap literals         # subject -> PermEntry*
    PermEntry* patterns

cdef struct Permissions:
    PermList lists[4]       # PERM_*
    uint32_t refs           # connections, and the makers of these; atomic


cdef Permissions* perms_new() noexcept nogil:
    cdef Permissions* p = <Permissions*>calloc(1, sizeof(Permissions))
    if p != NULL:
        p.refs = 1
    return p


cdef void perms_hold(Permissions* p) noexcept nogil:
    count_held(&p.refs)


cdef void entries_free(PermEntry* e) noexcept nogil:
    cdef PermEntry* after
    while e != NULL:
        after = e.next
        free(e)
        e = after


cdef void perms_release(Permissions* p) noexcept nogil:
    cdef PermList* list
    cdef uint32_t i, j
    if p == NULL or count_released(&p.refs):
        return
    for i in range(4):
        list = &p.lists[i]
        entries_free(list.patterns)
        for j in range(list.literals.cap):
            if list.literals.keys[j] != NULL:
                entries_free(<PermEntry*>list.literals.vals[j])
        strmap_free(&list.literals)
    free(p)


cdef int perms_add(Permissions* p, int which, Span subject, Span queue) noexcept nogil:
    cdef PermList* list
    cdef PermEntry* e
    cdef uint8_t* text
    if which < 0 or which > 3:
        return -1
    list = &p.lists[which]
    e = <PermEntry*>calloc(1, sizeof(PermEntry) + <size_t>subject.n + queue.n)
    if e == NULL:
        return -1
    text = <uint8_t*>(e + 1)
    e.subject = sub_text(&text, subject)
    e.queue = sub_text(&text, queue)
    if subject_is_literal(subject):
        e.next = <PermEntry*>strmap_get(&list.literals, subject)
        if strmap_put(&list.literals, subject, e) < 0:
            free(e)
            return -1
    else:
        e.next = list.patterns
        list.patterns = e
    list.present = True
    return 0


cdef int perms_set_empty_allow(Permissions* p, int which) noexcept nogil:
    if which != PERM_PUB_ALLOW and which != PERM_SUB_ALLOW:
        return -1
    p.lists[which].present = True
    return 0


cdef inline bint queue_fits(const PermEntry* e, Span queue) noexcept nogil:
    return span_eq(e.queue, queue) or subject_matches(e.queue, queue)


cdef inline void entry_counts(const PermEntry* e, Span queue, bint* plain, bint* queued, bint* fits) noexcept nogil:
    if e.queue.n == 0:
        plain[0] = True
    elif queue.n:
        queued[0] = True
        if queue_fits(e, queue):
            fits[0] = True


cdef void list_look(const PermList* list, Span subject, Span queue,
                    bint* plain, bint* queued, bint* fits) noexcept nogil:
    # Among the entries that match the subject: is there one without a queue, is there one with a queue
    # (asked only for a queue), is there one whose queue fits?
    cdef const PermEntry* e
    plain[0] = False
    queued[0] = False
    fits[0] = False
    if list.literals.n:
        e = <const PermEntry*>strmap_get(<StrMap*>&list.literals, subject)
        while e != NULL:
            entry_counts(e, queue, plain, queued, fits)
            e = e.next
    e = list.patterns
    while e != NULL:
        if subject_matches(e.subject, subject):
            entry_counts(e, queue, plain, queued, fits)
        e = e.next


cdef bint perms_can_publish(const Permissions* p, Span subject) noexcept nogil:
    cdef bint plain, queued, fits
    if p.lists[PERM_PUB_ALLOW].present:
        list_look(&p.lists[PERM_PUB_ALLOW], subject, span(NULL, 0), &plain, &queued, &fits)
        if not plain:
            return False
    if p.lists[PERM_PUB_DENY].present:
        list_look(&p.lists[PERM_PUB_DENY], subject, span(NULL, 0), &plain, &queued, &fits)
        if plain:
            return False
    return True


cdef bint is_denied(const Permissions* p, Span subject, Span queue) noexcept nogil:
    cdef bint plain, queued, fits
    if not p.lists[PERM_SUB_DENY].present:
        return False
    list_look(&p.lists[PERM_SUB_DENY], subject, queue, &plain, &queued, &fits)
    return plain or fits


cdef bint perms_list_subscriptions(const Permissions* p) noexcept nogil:
    return p.lists[PERM_SUB_ALLOW].present


cdef bint perms_can_subscribe(const Permissions* p, Span subject, Span queue) noexcept nogil:
    cdef bint plain, queued, fits
    if p.lists[PERM_SUB_ALLOW].present:
        list_look(&p.lists[PERM_SUB_ALLOW], subject, queue, &plain, &queued, &fits)
        # Entries with queues decide for a subscription with a queue, where there are any.
        if not (fits if queued else plain):
            return False
    return not is_denied(p, subject, queue)


cdef bint perms_can_tell(const Permissions* p, Span subject, Span queue) noexcept nogil:
    cdef const PermList* allow = &p.lists[PERM_SUB_ALLOW]
    cdef const PermEntry* e = allow.patterns
    cdef uint32_t i
    if perms_can_subscribe(p, subject, queue):
        return True
    if not allow.present or subject_is_literal(subject) or is_denied(p, subject, queue):
        return False
    for i in range(allow.literals.cap):
        if allow.literals.keys[i] != NULL and subject_matches(subject, span(allow.literals.keys[i], allow.literals.lens[i])):
            return True
    while e != NULL:
        if subjects_overlap(e.subject, subject):
            return True
        e = e.next
    return False


cdef bint perms_must_filter(const Permissions* p, Span subject, Span queue) noexcept nogil:
    # A pattern is let in when an allow entry matches it as if it were a subject, as nats-server does; so `>`
    # comes in by the entry `*`, and a deny entry may lie within it. Both are made good for at delivery.
    cdef const PermEntry* e
    cdef const PermList* deny = &p.lists[PERM_SUB_DENY]
    cdef uint32_t i
    if subject_is_literal(subject):
        return False
    for i in range(deny.literals.cap):
        if deny.literals.keys[i] != NULL and subject_matches(subject, span(deny.literals.keys[i], deny.literals.lens[i])):
            return True
    e = deny.patterns
    while e != NULL:
        if subjects_overlap(e.subject, subject):
            return True
        e = e.next
    if not p.lists[PERM_SUB_ALLOW].present:
        return False
    e = p.lists[PERM_SUB_ALLOW].patterns
    while e != NULL:
        if (e.queue.n == 0 or (queue.n and queue_fits(e, queue))) and subject_covers(e.subject, subject):
            return False
        e = e.next
    return True


cdef bint perms_can_receive(const Permissions* p, Span subject, Span queue) noexcept nogil:
    # A delivery to a subscription that was let in. What entries with queues say of other queues was decided then.
    cdef bint plain, queued, fits
    if p.lists[PERM_SUB_ALLOW].present:
        list_look(&p.lists[PERM_SUB_ALLOW], subject, queue, &plain, &queued, &fits)
        if not plain and not fits:
            return False
    return not is_denied(p, subject, queue)
