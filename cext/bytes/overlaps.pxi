# Patterns that meet patterns: whether a subject is matched by two of them, and whether one covers another.
# The trie differs from that of patterns.pxi in that a node knows its literal children: a `*` that is searched for meets them all.
#
#      root ── "orders" ── *(star) ── "new"     a node counts the patterns that end here, and those with > behind it

cdef enum Meeting:
    OVERLAPPING     # what has a subject in common with the pattern
    COVERING        # what matches all that the pattern matches
    COVERED         # what matches nothing but what the pattern matches

cdef enum:
    OVERLAP_NONE = 0xFFFFFFFF       # results of a search other than a number
    OVERLAP_LIMIT = 0xFFFFFFFE      # the steps are used up
    OVERLAP_MEMORY = 0xFFFFFFFD
    ALL_BELOW = 0xFFFFFFFF          # in place of a word's number: whatever follows

cdef struct MeetNode:
    MeetNode* parent        # NULL: the root
    MeetNode* star          # the child `*`
    List children           # the literal ones
    ListNode node           # among its siblings
    uint32_t here           # patterns that end with this token,
    uint32_t tail           # and that go on with > alone
    uint32_t first_here     # the lowest number of theirs
    uint32_t first_tail
    uint32_t n_token        # bytes of the token, which follow the node

cdef struct Word:
    const uint8_t* p
    uint32_t n
    uint64_t hash

cdef struct Visit:
    MeetNode* node
    uint32_t at             # the number of the word that comes next

cdef struct MeetTrie:
    MeetNode root
    Table edges             # hash(parent, token) ─► literal child
    Word* words             # of the pattern at hand
    uint32_t n_words, cap_words
    Visit* todo             # of a search
    uint32_t n_todo, cap_todo
    uint64_t steps          # that searches may still take


cdef inline MeetNode* meet_at(const ListNode* n) noexcept nogil:
    return <MeetNode*>list_owner(n, &(<MeetNode*>NULL).node)


cdef inline uint8_t* meet_token(const MeetNode* at) noexcept nogil:
    return <uint8_t*>at + sizeof(MeetNode)


@cython.overflowcheck(False)
cdef inline uint64_t meet_hash(const MeetNode* parent, uint64_t token_hash) noexcept nogil:
    cdef uint64_t z = (token_hash + <uint64_t><size_t>parent) * 0x9e3779b97f4a7c15ULL
    return z ^ (z >> 32)


cdef inline bint word_is(const Word* w, uint8_t c) noexcept nogil:
    return w.n == 1 and w.p[0] == c


cdef inline bint word_is_tail(const MeetTrie* x, uint32_t at) noexcept nogil:
    return at + 1 == x.n_words and word_is(&x.words[at], c'>')


cdef int meet_split(MeetTrie* x, Span pattern) noexcept nogil:
    # Cuts a pattern into words. 1 | 0: a token is empty, so that it meets nothing | -1 no memory.
    cdef Tokens t = tokens_of(pattern)
    x.n_words = 0
    while t.n:
        if array_room(&x.words, &x.cap_words, <uint64_t>x.n_words + 1, sizeof(Word), 16) < 0:
            return -1
        x.words[x.n_words].p = t.p
        x.words[x.n_words].n = t.n
        x.words[x.n_words].hash = table_hash(t.p, t.n)
        x.n_words += 1
        if t.last:
            return 1
        tokens_cut(&t)
    return 0


cdef MeetNode* meet_child(const MeetTrie* x, const MeetNode* parent, const Word* w) noexcept nogil:
    # The literal child of this token, or NULL.
    cdef uint64_t hash
    cdef uint32_t at = 0
    cdef MeetNode* node
    if list_empty(&parent.children):
        return NULL
    hash = meet_hash(parent, w.hash)
    node = <MeetNode*>table_first(&x.edges, hash, &at)
    while node != NULL and not (node.parent == parent and node.n_token == w.n
                                and memcmp(meet_token(node), w.p, w.n) == 0):
        node = <MeetNode*>table_more(&x.edges, hash, &at)
    return node


cdef MeetNode* meet_step(MeetTrie* x, MeetNode* at, const Word* w) noexcept nogil:
    # The child of `at` for the word, made if it is missing. NULL: no memory.
    cdef bint star = word_is(w, c'*')
    cdef MeetNode* child = at.star if star else meet_child(x, at, w)
    if child != NULL:
        return child
    child = <MeetNode*>calloc(1, sizeof(MeetNode) + (0 if star else w.n))
    if child == NULL:
        return NULL
    child.parent = at
    if star:
        at.star = child
        return child
    if table_add(&x.edges, meet_hash(at, w.hash), child) < 0:
        free(child)
        return NULL
    child.n_token = w.n
    memcpy(meet_token(child), w.p, w.n)
    list_push_front(&at.children, &child.node)
    return child


cdef void meet_prune(MeetTrie* x, MeetNode* at) noexcept nogil:
    cdef MeetNode* parent
    while at.parent != NULL and at.here == 0 and at.tail == 0 and at.star == NULL and list_empty(&at.children):
        parent = at.parent
        if parent.star == at:
            parent.star = NULL
        else:
            table_remove(&x.edges, meet_hash(parent, table_hash(meet_token(at), at.n_token)), at)
            list_remove(&at.node)
        free(at)
        at = parent


cdef int meet_add(MeetTrie* x, uint32_t number) noexcept nogil:
    # Adds the pattern whose words were cut. 0 | -1 no memory
    cdef MeetNode* at = &x.root
    cdef MeetNode* child
    cdef uint32_t i
    for i in range(x.n_words):
        if word_is_tail(x, i):
            if at.tail == 0:
                at.first_tail = number
            at.tail += 1
            return 0
        child = meet_step(x, at, &x.words[i])
        if child == NULL:
            meet_prune(x, at)
            return -1
        at = child
    if at.here == 0:
        at.first_here = number
    at.here += 1
    return 0


cdef bint meet_remove(MeetTrie* x) noexcept nogil:
    # Takes back a meet_add of the pattern whose words were cut; False: there was none.
    cdef MeetNode* at = &x.root
    cdef uint32_t i
    for i in range(x.n_words):
        if word_is_tail(x, i):
            if at.tail == 0:
                return False
            at.tail -= 1
            meet_prune(x, at)
            return True
        at = at.star if word_is(&x.words[i], c'*') else meet_child(x, at, &x.words[i])
        if at == NULL:
            return False
    if at.here == 0:
        return False
    at.here -= 1
    meet_prune(x, at)
    return True


cdef inline int meet_later(MeetTrie* x, MeetNode* node, uint32_t at) noexcept nogil:
    # The search goes on from this node, too, if it is one. 0 | -1 no memory
    if node == NULL:
        return 0
    if array_room(&x.todo, &x.cap_todo, <uint64_t>x.n_todo + 1, sizeof(Visit), 64) < 0:
        return -1
    x.todo[x.n_todo].node = node
    x.todo[x.n_todo].at = at
    x.n_todo += 1
    return 0


cdef int meet_spread(MeetTrie* x, const Visit* v, Meeting how) noexcept nogil:
    # Notes all children of the node that the search goes on from. 0 | -1 no memory | -2 no steps are left
    cdef ListWalk children = list_walk(&v.node.children)
    cdef MeetNode* child = meet_at(list_step(&children))
    cdef const Word* w
    cdef uint32_t next = v.at + 1
    if v.at != ALL_BELOW:
        w = &x.words[v.at]
        if word_is_tail(x, v.at):
            if how == COVERING:
                return 0
            next = ALL_BELOW
        elif not word_is(w, c'*'):
            if how != COVERED and meet_later(x, v.node.star, next) < 0:
                return -1
            return meet_later(x, meet_child(x, v.node, w), next)
        elif how == COVERING:
            return meet_later(x, v.node.star, next)
    else:
        next = ALL_BELOW
    while child != NULL:
        if x.steps == 0:
            return -2
        x.steps -= 1
        if meet_later(x, child, next) < 0:
            return -1
        child = meet_at(list_step(&children))
    return meet_later(x, v.node.star, next)


cdef uint32_t meet_search(MeetTrie* x, Meeting how, bint any) noexcept nogil:
    # The lowest number of the patterns that meet the one whose words were cut so; `any`: of one of them.
    cdef uint32_t found = OVERLAP_NONE
    cdef Visit v
    cdef int rc
    x.n_todo = 0
    rc = meet_later(x, &x.root, 0)
    while rc == 0 and x.n_todo:
        if x.steps == 0:
            rc = -2
            break
        x.steps -= 1
        x.n_todo -= 1
        v = x.todo[x.n_todo]
        if v.node.here and (v.at == x.n_words or v.at == ALL_BELOW):
            found = min(found, v.node.first_here)
        if v.at == x.n_words:
            continue
        if v.node.tail and (how != COVERED or v.at == ALL_BELOW or word_is_tail(x, v.at)):
            found = min(found, v.node.first_tail)
        if any and found != OVERLAP_NONE:
            break
        rc = meet_spread(x, &v, how)
    if rc == 0 or found != OVERLAP_NONE:
        return found
    return OVERLAP_MEMORY if rc == -1 else OVERLAP_LIMIT


cdef void meet_free(MeetTrie* x) noexcept nogil:
    # Frees all that the trie holds: it is empty.
    cdef MeetNode* at = &x.root
    cdef MeetNode* up
    while at != NULL:
        if at.star != NULL:
            at = at.star
        elif not list_empty(&at.children):
            at = meet_at(list_first(&at.children))
        else:
            up = at.parent
            if up != NULL:
                if up.star == at:
                    up.star = NULL
                else:
                    list_remove(&at.node)
                free(at)
            at = up
    free(x.edges.a)
    free(x.words)
    free(x.todo)
    memset(x, 0, sizeof(MeetTrie))


cdef struct FirstMeeting:
    uint32_t a, b           # the numbers of two patterns, the lower one first; a is OVERLAP_NONE, or says what failed


cdef FirstMeeting meet_first(MeetTrie* x, const Span* patterns, uint32_t n, uint32_t end) noexcept nogil:
    # The first pattern, in order, before `end` that overlaps with a later one, and the first of those.
    cdef FirstMeeting first
    cdef uint32_t i, found
    cdef int rc
    first.a = OVERLAP_NONE
    first.b = 0
    for i in range(n):
        rc = meet_split(x, patterns[i])
        if rc == 0:
            continue
        found = OVERLAP_MEMORY if rc < 0 else meet_search(x, OVERLAPPING, False)
        if found >= OVERLAP_MEMORY and found != OVERLAP_NONE:
            first.a = found
            break
        if found < first.a:
            first.a = found
            first.b = i
            end = min(end, found)
            if found == 0:
                break
        if i < end and meet_add(x, i) < 0:
            first.a = OVERLAP_MEMORY
            break
    return first


cdef uint32_t meet_first_covered(MeetTrie* x, const Span* patterns, uint32_t n, uint32_t end) noexcept nogil:
    # The first pattern, in order, before `end` that another one covers.
    cdef uint32_t i, found, first = OVERLAP_NONE
    cdef int rc
    for i in range(n):
        rc = meet_split(x, patterns[i])
        if rc == 0:
            continue
        found = OVERLAP_MEMORY if rc < 0 else meet_search(x, COVERED, False)
        if found == OVERLAP_NONE and i < end:
            found = meet_search(x, COVERING, True)
            if found < OVERLAP_MEMORY:
                found = i
        if found >= OVERLAP_MEMORY and found != OVERLAP_NONE:
            return found
        if found < first:
            first = found
            end = min(end, found)
            if found == 0:
                break
        if i < end and meet_add(x, i) < 0:
            return OVERLAP_MEMORY
    return first
