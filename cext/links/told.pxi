# Interest that other servers are told of: counted for each subject and queue group of an account, and for routes for each
# cluster of leaf nodes, so that each is told once. Other clusters are told by each server of what the whole cluster wants.

cdef uint64_t told_hash(Span subject, Span queue, Span origin) noexcept nogil:
    cdef uint64_t hash = table_hash(subject.p, subject.n) * 31 + table_hash(queue.p, queue.n)
    return hash * 31 + table_hash(origin.p, origin.n) if origin.n else hash


cdef bint told_is(const Told* told, Span subject, Span queue, Span origin) noexcept nogil:
    return span_eq(told.subject, subject) and span_eq(told.queue, queue) and span_eq(told.origin, origin)


cdef Told* told_find(const Table* t, Span subject, Span queue, Span origin, uint64_t hash) noexcept nogil:
    cdef uint32_t at = 0
    cdef Told* found = <Told*>table_first(t, hash, &at)
    while found != NULL and not told_is(found, subject, queue, origin):
        found = <Told*>table_more(t, hash, &at)
    return found


cdef Span told_text(uint8_t** at, Span given) noexcept nogil:
    cdef Span copy = span(at[0], given.n)
    if given.n:
        memcpy(at[0], given.p, given.n)
        at[0] += given.n
    return copy


cdef Told* told_new(Table* t, Span subject, Span queue, Span origin, uint64_t hash) noexcept nogil:
    cdef Told* made = <Told*>calloc(1, sizeof(Told) + <size_t>subject.n + queue.n + origin.n)
    cdef uint8_t* text
    if made == NULL:
        return NULL
    text = <uint8_t*>(made + 1)
    made.subject = told_text(&text, subject)
    made.queue = told_text(&text, queue)
    made.origin = told_text(&text, origin)
    made.hash = hash
    if table_add(t, hash, made) != 0:
        free(made)
        return NULL
    return made


cdef Told* told_count(Table* t, Span subject, Span queue, Span origin, int delta, bint* tell) noexcept nogil:
    # Counts members that have come or gone. NULL: there is nothing to count, or no memory, and then other servers hear of it
    # with the next change. tell: whether they are to hear of it now.
    cdef uint64_t hash = told_hash(subject, queue, origin), before
    cdef Told* told = told_find(t, subject, queue, origin, hash)
    if told == NULL and delta > 0:
        told = told_new(t, subject, queue, origin, hash)
    if told == NULL:
        return NULL
    before = told.n
    told.n = told.n + delta if delta > 0 or told.n > <uint64_t>-delta else 0
    tell[0] = queue.n or before == 0 or told.n == 0
    return told


cdef void told_settle(Table* t, Told* told) noexcept nogil:
    # Forgets what nobody listens to any more.
    if told.n == 0:
        table_remove(t, told.hash, told)
        free(told)


cdef void told_free(Table* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.cap):
        free(t.a[i].item)
    free(t.a)
    memset(t, 0, sizeof(Table))


cdef void add_interest(Draft* d, const Told* told, bint listens) noexcept nogil:
    # subject [queue members], or of what is over subject [queue]; and CRLF.
    draft_add(d, told.subject.p, told.subject.n)
    if told.queue.n:
        draft_byte(d, c' ')
        draft_add(d, told.queue.p, told.queue.n)
        if listens:
            draft_byte(d, c' ')
            add_number(d, told.n)
    draft_add(d, b"\r\n", 2)


# ---- of an account ---------------------------------------------------------------------------------------

cdef AccountTold* account_told(Mesh* mesh, Account* a) noexcept nogil:
    # NULL: no memory.
    cdef AccountTold* t = <AccountTold*>a.told
    if t == NULL:
        t = <AccountTold*>calloc(1, sizeof(AccountTold))
        if t == NULL:
            return NULL
        t.place = pool_place(a.name, mesh.places)
        a.told = t
    return t


cdef uint32_t pool_place(Span account, uint32_t places) noexcept nogil:
    # FNV-1a of its name, 32 bits, as all servers reckon it.
    cdef uint32_t h = 2166136261, i
    for i in range(account.n):
        h = (h ^ account.p[i]) * 16777619
    return h % places if places > 1 else 0


cdef void interest_told(Peers* p, Account* a, Sub* s, int delta) noexcept nogil:
    # Peers.interest
    cdef Mesh* mesh = <Mesh*>p
    cdef AccountTold* t
    if mesh.routed:
        routes_interest(mesh, a, s, delta)
    if mesh.gated:
        gateways_interest(mesh, a, s, delta)
    t = <AccountTold*>a.told
    if t != NULL and not list_empty(&t.leafs):
        leafs_interest(t, s, delta)


cdef void interest_forgotten(Peers* p, Account* a) noexcept nogil:
    # Peers.forget
    cdef AccountTold* t = <AccountTold*>a.told
    told_free(&t.interest)
    told_free(&t.cluster)
    free(<void*>t.loop.p)
    free(t)
    a.told = NULL


# ---- what routes are told --------------------------------------------------------------------------------

cdef inline bint is_of_an_asset(Span subject) noexcept nogil:
    # Whether a stream or a consumer serves there alone, for clients of all servers of the cluster; archives on their way, too.
    return (span_starts(subject, b"$JS.ACK.", 8) or span_starts(subject, b"$JS.FC.", 7)
            or span_starts(subject, b"$JS.API.CONSUMER.MSG.NEXT.", 26)
            or span_starts(subject, b"$JS.API.DIRECT.GET.", 19) or span_starts(subject, b"$JS.SNAPSHOT.", 13))


cdef inline bint is_own(const Sub* s) noexcept nogil:
    # This server's, or of a leaf node of it, and not another server's. Of the server's own neither a request's way into another
    # account, whose own interest counts, nor what every server offers each account, but what a stream or a consumer does;
    # services of the system account are asked by their servers' ids, or all together.
    if s.client != NULL:
        return s.client.kind == KIND_LEAF or s.client.kind <= KIND_CLIENT
    return s.link != LINK_SERVICE and (s.listens or (<Account*>s.account).system or is_of_an_asset(s.subject))


cdef void routes_interest(Mesh* mesh, Account* a, Sub* s, int delta) noexcept nogil:
    cdef AccountTold* t
    cdef Told* told
    cdef bint tell = False
    if not is_own(s):
        return
    t = account_told(mesh, a)
    if t == NULL:
        return
    told = told_count(&t.interest, s.subject, s.queue, origin_name(mesh, s.origin), delta, &tell)
    if told == NULL:
        return
    if tell:
        routes_tell(mesh, a, t, told)
    told_settle(&t.interest, told)


cdef inline bint carries(const RouteConn* r, const Account* a, const AccountTold* t) noexcept nogil:
    if r.terms.account != NULL:
        return r.terms.account == a
    return not r.terms.pooled or (not t.pinned and r.terms.place == t.place)


cdef inline bint may_tell(const Permissions* p, const Told* told) noexcept nogil:
    return p == NULL or perms_can_publish(p, told.subject)


cdef void tell_interest(RouteConn* r, const Account* a, const Told* told) noexcept nogil:
    if may_tell(r.link.conn.base.perms, told):
        tell(r, a, told, told.n > 0)


cdef void tell(RouteConn* r, const Account* a, const Told* told, bint listens) noexcept nogil:
    # RS+ [account] subject [queue members], or RS- [account] subject [queue]; of a leaf node LS+ and LS- with its cluster
    # first, for servers that understand these.
    cdef Draft* d = &r.link.mesh.line
    if told.origin.n and not r.terms.origins:
        return
    d.n = 0
    draft_byte(d, c'L' if told.origin.n else c'R')
    draft_add(d, b"S+ " if listens else b"S- ", 3)
    if told.origin.n:
        add_word(d, told.origin)
    if r.terms.account == NULL:
        add_word(d, a.name)
    add_interest(d, told, listens)
    client_draft(&r.link.conn.base, d)


cdef void routes_tell(Mesh* mesh, Account* a, const AccountTold* t, const Told* told) noexcept nogil:
    cdef ListNode* at = list_first(&mesh.open)
    cdef RouteConn* r
    while at != NULL:
        r = <RouteConn*>list_owner(at, &(<LinkConn*>NULL).node)
        if carries(r, a, t):
            tell_interest(r, a, told)
        at = list_next(&mesh.open, at)


cdef void tell_account(RouteConn* r, Account* a) noexcept nogil:
    # All of its interest.
    cdef AccountTold* t = <AccountTold*>a.told
    cdef uint32_t i
    if t == NULL or not carries(r, a, t):
        return
    for i in range(t.interest.cap):
        if t.interest.a[i].item != NULL:
            tell_interest(r, a, <const Told*>t.interest.a[i].item)


cdef void tell_difference(RouteConn* r, Account* a, const Permissions* before) noexcept nogil:
    # What interest of an account it may be told of now and might not before, and the other way round.
    cdef AccountTold* t = <AccountTold*>a.told
    cdef const Told* told
    cdef uint32_t i
    cdef bint may
    if t == NULL or not carries(r, a, t):
        return
    for i in range(t.interest.cap):
        told = <const Told*>t.interest.a[i].item
        if told != NULL:
            may = may_tell(r.link.conn.base.perms, told)
            if may != may_tell(before, told):
                tell(r, a, told, may)


# ---- what leaf nodes and hubs are told -------------------------------------------------------------------

cdef inline bint is_loop(Span subject) noexcept nogil:
    # What finds loops of leaf nodes.
    return span_starts(subject, b"$LDS.", 5)


cdef bint leaf_hears_of(const LeafConn* leaf, const Sub* s) noexcept nogil:
    # Whether the subscription counts for what the other side is told. A hub hears of what is here and of leaf nodes of this
    # server: other servers of this cluster tell it of their own.
    cdef const Client* c = &leaf.link.conn.base
    cdef const Client* of = s.client
    if of == c or not s.hears & 1 << c.kind or s.hears & ANSWERS or (s.origin and s.origin == c.origin):
        return False
    if is_loop(s.subject):
        return True
    if of != NULL and of.kind >= KIND_LEAF and (leaf.isolated or (c.kind == KIND_HUB and of.kind == KIND_HUB)):
        return False
    return c.perms == NULL or perms_can_tell(c.perms, s.subject, s.queue)


cdef void leaf_tell(LeafConn* leaf, const Told* told) noexcept nogil:
    # LS+ subject [queue members], or LS- subject [queue].
    cdef Draft* d = &leaf.link.mesh.line
    d.n = 0
    draft_add(d, b"LS+ " if told.n else b"LS- ", 4)
    add_interest(d, told, told.n > 0)
    client_draft(&leaf.link.conn.base, d)


cdef void leaf_interest(LeafConn* leaf, Span subject, Span queue, int delta) noexcept nogil:
    cdef bint tell = False
    cdef Told* told = told_count(&leaf.told, subject, queue, span(NULL, 0), delta, &tell)
    if told == NULL:
        return
    if tell and leaf.link.state == LINK_RUNS:
        leaf_tell(leaf, told)
    told_settle(&leaf.told, told)


cdef void leafs_interest(AccountTold* t, Sub* s, int delta) noexcept nogil:
    cdef ListNode* at = list_first(&t.leafs)
    cdef LeafConn* leaf
    while at != NULL:
        leaf = <LeafConn*>list_owner(at, &(<LeafConn*>NULL).beside)
        if leaf_hears_of(leaf, s):
            leaf_interest(leaf, s.subject, s.queue, delta)
        at = list_next(&t.leafs, at)


cdef void count_for_leaf(void* ctx, Sub* s) noexcept nogil:
    cdef LeafConn* leaf = <LeafConn*>ctx
    if leaf_hears_of(leaf, s):
        leaf_interest(leaf, s.subject, s.queue, <int>s.weight)


cdef void leaf_tell_all(LeafConn* leaf) noexcept nogil:
    cdef uint32_t i
    for i in range(leaf.told.cap):
        if leaf.told.a[i].item != NULL:
            leaf_tell(leaf, <const Told*>leaf.told.a[i].item)


# ---- what gateways are told ------------------------------------------------------------------------------

cdef inline bint is_of_cluster(const Sub* s) noexcept nogil:
    return is_own(s) or (s.client != NULL and s.client.kind == KIND_ROUTER)


cdef void gateway_says(GatewayConn* g, const char* verb, Span args) noexcept nogil:
    cdef Draft* d = &g.link.mesh.line
    d.n = 0
    draft_add(d, verb, strlen(verb))
    draft_add(d, args.p, args.n)
    draft_add(d, b"\r\n", 2)
    client_draft(&g.link.conn.base, d)


cdef void gateway_command(GatewayConn* g, const Account* a, uint8_t command) noexcept nogil:
    # INFO {...,"gateway_cmd":2,"gateway_cmd_payload":"<account in base64>"}
    cdef Mesh* mesh = g.link.mesh
    cdef Draft* d = &mesh.line
    cdef uint8_t digits[64]
    cdef uint32_t at = 0, n
    d.n = 0
    draft_add(d, mesh.command.data, mesh.command.n)
    draft_byte(d, command)
    draft_add(d, b",\"gateway_cmd_payload\":\"", 24)
    while at < a.name.n:
        n = min(a.name.n - at, <uint32_t>48)
        draft_add(d, digits, put_base64(digits, span(a.name.p + at, n)))
        at += n
    draft_add(d, b"\"} \r\n", 5)
    client_draft(&g.link.conn.base, d)


cdef void gateway_told(GatewayConn* g, const Account* a, const Told* told) noexcept nogil:
    # RS+ account subject [queue 1], or RS- account subject [queue].
    cdef Draft* d = &g.link.mesh.line
    d.n = 0
    draft_add(d, b"RS+ " if told.n else b"RS- ", 4)
    add_word(d, a.name)
    draft_add(d, told.subject.p, told.subject.n)
    if told.queue.n:
        draft_byte(d, c' ')
        draft_add(d, told.queue.p, told.queue.n)
        if told.n:
            draft_add(d, b" 1", 2)
    draft_add(d, b"\r\n", 2)
    client_draft(&g.link.conn.base, d)


cdef void gateway_tell_some(GatewayConn* g, const Account* a, const AccountTold* t, bint queues) noexcept nogil:
    # All interest of an account, of queue groups or the rest.
    cdef const Told* told
    cdef uint32_t i
    for i in range(t.cluster.cap):
        told = <const Told*>t.cluster.a[i].item
        if told != NULL and (told.queue.n > 0) == queues:
            gateway_told(g, a, told)


cdef void gateway_begin(GatewayConn* g, const Account* a, const AccountTold* t) noexcept nogil:
    # From now on the other side sends what it is told of alone.
    gateway_command(g, a, c'2')
    gateway_tell_some(g, a, t, False)
    gateway_command(g, a, c'3')


cdef void gateway_tell(GatewayConn* g) noexcept nogil:
    # Queue groups of all accounts first, as nats-server does.
    cdef Mesh* mesh = g.link.mesh
    cdef ListWalk all = list_walk(&mesh.engine.accounts)
    cdef Account* a = account_step(&all)
    cdef AccountTold* t
    while a != NULL:
        if not a.closed and a.told != NULL:
            gateway_tell_some(g, a, <AccountTold*>a.told, True)
        a = account_step(&all)
    all = list_walk(&mesh.engine.accounts)
    a = account_step(&all)
    while a != NULL:
        t = NULL if a.closed else account_told(mesh, a)
        if t != NULL and t.begun:
            gateway_begin(g, a, t)
        elif t != NULL:
            account_begin(mesh, a, t)
        a = account_step(&all)


cdef void account_begin(Mesh* mesh, const Account* a, AccountTold* t) noexcept nogil:
    # All who are connected hear of the account's interest from now on, and who comes later then.
    cdef ListNode* at = list_first(&mesh.inbound)
    cdef GatewayConn* g
    t.begun = True
    while at != NULL:
        g = <GatewayConn*>list_owner(at, &(<LinkConn*>NULL).node)
        at = list_next(&mesh.inbound, at)
        gateway_begin(g, a, t)


cdef void gateways_interest(Mesh* mesh, Account* a, Sub* s, int delta) noexcept nogil:
    cdef AccountTold* t
    cdef Told* told
    cdef ListNode* at
    cdef bint tell = False
    if not is_of_cluster(s):
        return
    recent_note(mesh, s, delta)
    t = account_told(mesh, a)
    if t == NULL:
        return
    told = told_count(&t.cluster, s.subject, s.queue, span(NULL, 0), delta, &tell)
    if told == NULL:
        return
    if told.n == 0 or (delta > 0 and told.n == <uint64_t>delta):
        at = list_first(&mesh.inbound)
        if not t.begun:
            account_begin(mesh, a, t)
            if told.queue.n == 0:
                at = NULL
        while at != NULL:
            gateway_told(<GatewayConn*>list_owner(at, &(<LinkConn*>NULL).node), a, told)
            at = list_next(&mesh.inbound, at)
    told_settle(&t.cluster, told)


# ---- what other clusters may not know of yet -------------------------------------------------------------

cdef enum:
    RECENT_NS = 2000000000      # how long a subscription counts as recent
    RECENT_MAX = 262144


cdef inline Recent* recent_at(const ListNode* n) noexcept nogil:
    return <Recent*>list_owner(n, &(<Recent*>NULL).node)


cdef void recent_forget(Mesh* mesh, Recent* r) noexcept nogil:
    u64map_del(&mesh.recent, <uint64_t>r.sub)
    list_remove(&r.node)
    free(r)


cdef void recents_expire(Mesh* mesh) noexcept nogil:
    cdef Recent* r
    while not list_empty(&mesh.recent_by_time):
        r = recent_at(list_first(&mesh.recent_by_time))
        if r.until > mesh.engine.env.mono and mesh.recent.n <= RECENT_MAX:
            return
        recent_forget(mesh, r)


cdef void recent_note(Mesh* mesh, Sub* s, int delta) noexcept nogil:
    # A subscription has begun or ended. Without memory replies to it wait for its interest to be told.
    cdef uint64_t found
    cdef Recent* r
    recents_expire(mesh)
    if u64map_get(&mesh.recent, <uint64_t>s, &found):
        if s.closed:
            recent_forget(mesh, <Recent*>found)
        return
    if delta <= 0 or s.closed:
        return
    r = <Recent*>calloc(1, sizeof(Recent))
    if r == NULL:
        return
    r.sub = s
    r.until = mesh.engine.env.mono + RECENT_NS
    if u64map_put(&mesh.recent, <uint64_t>s, <uint64_t>r) != 0:
        free(r)
        return
    list_push_back(&mesh.recent_by_time, &r.node)


cdef bint is_recent(Mesh* mesh, Account* a, Span subject) noexcept nogil:
    # Whether somebody has begun to listen there so lately that other clusters may not know of it yet.
    cdef const Match* found
    cdef uint64_t r
    cdef uint32_t i, j
    cdef bint recent = False
    recents_expire(mesh)
    if mesh.recent.n == 0:
        return False
    found = sublist_match(a.subs, subject)
    if found == NULL:
        return False
    for i in range(found.n_plain):
        recent = recent or u64map_get(&mesh.recent, <uint64_t>found.plain[i], &r)
    for i in range(found.n_groups):
        for j in range(found.groups[i].near):
            recent = recent or u64map_get(&mesh.recent, <uint64_t>found.groups[i].subs[j], &r)
    match_done(a.subs, found)
    return recent
