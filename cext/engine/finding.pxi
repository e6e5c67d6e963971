# Looks for subscriptions, in pieces: so many of them cost one hold of the engine lock.

cdef enum:
    SUBS_PIECE = 1000           # subscriptions and places of a sublist that a piece looks at

cdef enum SubFit:
    FIT_ALL
    FIT_MATCHING                # a message on the subject would come there
    FIT_WITHIN                  # the subject, a pattern, covers it
    FIT_OVERLAPPING


cdef struct SubSearch:
    # Which subscriptions are looked for, and how far that has come.
    Inbox* box
    Account* only               # NULL: in all accounts
    SubFit fit
    Span subject
    bint clients                # those of clients and leaf nodes alone
    bint grouped                # those of this queue group alone
    Span queue
    const U64Map* cids          # those of these connections alone; NULL: of all
    uint64_t skip               # of those found, so many are left out, and then so many told
    uint64_t most
    uint64_t total              # found
    uint32_t account            # where the search stands
    SubCursor cursor


cdef bint sub_fits(const SubSearch* w, const Sub* s) noexcept nogil:
    cdef uint64_t ignored
    if w.clients and (s.client == NULL or (s.client.kind != KIND_CLIENT and s.client.kind != KIND_LEAF)):
        return False
    if w.cids != NULL and (s.client == NULL or not u64map_get(w.cids, s.client.cid, &ignored)):
        return False
    if w.grouped and (s.queue.n == 0 or not span_eq(s.queue, w.queue)):
        return False
    if w.fit == FIT_MATCHING:
        return subject_matches(s.subject, w.subject)
    if w.fit == FIT_WITHIN:
        return subject_covers(w.subject, s.subject)
    return w.fit == FIT_ALL or subjects_overlap(s.subject, w.subject)


cdef void sub_found(void* search, Sub* s) noexcept nogil:
    cdef SubSearch* w = <SubSearch*>search
    cdef Span texts[3]
    cdef int64_t num[4]
    if not sub_fits(w, s):
        return
    w.total += 1
    if w.total <= w.skip or w.total - w.skip > w.most:
        return
    texts[0] = s.subject
    texts[1] = s.queue
    texts[2] = s.sid
    num[0] = w.account
    num[1] = <int64_t>s.delivered
    num[2] = <int64_t>s.max
    num[3] = s.client == NULL
    inbox_put(w.box, ITEM_SUB, s.client.cid if s.client != NULL else 0, texts, 3, num, 4)


cdef bint subs_find(Engine* e, SubSearch* w) noexcept nogil:
    # A piece; whether that was the last one. Accounts stand in the order of their ids, which none gets again.
    cdef int64_t room = SUBS_PIECE
    cdef ListWalk accounts = list_walk(&e.accounts)
    cdef Account* a = w.only if w.only != NULL else account_step(&accounts)
    while a != NULL and w.only == NULL and a.id < w.account:
        a = account_step(&accounts)
    while a != NULL:
        if a.id != w.account:
            memset(&w.cursor, 0, sizeof(SubCursor))
            w.account = a.id
        if room <= 0 or not sublist_some(a.subs, &w.cursor, &room, sub_found, w):
            return False
        if w.only != NULL:
            return True
        memset(&w.cursor, 0, sizeof(SubCursor))
        w.account = a.id + 1
        room -= 1
        a = account_step(&accounts)
    return True
