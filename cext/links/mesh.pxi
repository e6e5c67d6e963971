# The mesh: the routes of a server, and what all of them are told.

cdef void count_sub(void* ctx, Sub* s) noexcept nogil:
    interest_told(<Peers*>ctx, <Account*>s.account, s, 1)


cdef Mesh* mesh_new(Engine* e, uint32_t places) noexcept nogil:
    cdef Mesh* mesh = <Mesh*>calloc(1, sizeof(Mesh))
    cdef ListWalk all = list_walk(&e.accounts)
    cdef Account* a = account_step(&all)
    if mesh == NULL:
        return NULL
    mesh.engine = e
    mesh.places = places
    draft_open(&mesh.line)
    mesh.peers.interest = interest_told
    mesh.peers.forget = interest_forgotten
    e.peers = &mesh.peers
    while a != NULL:
        if not a.closed:
            sublist_each(a.subs, count_sub, &mesh.peers)
        a = account_step(&all)
    return mesh


cdef void mesh_free(Mesh* mesh) noexcept nogil:
    cdef ListWalk all = list_walk(&mesh.engine.accounts)
    cdef Account* a = account_step(&all)
    while a != NULL:
        if a.told != NULL:
            interest_forgotten(&mesh.peers, a)
        a = account_step(&all)
    mesh.engine.peers = NULL
    draft_free(&mesh.line)
    strmap_free(&mesh.origins)
    free(mesh.peers.targets)
    free(mesh.peers.picked)
    free(mesh)


cdef int mesh_pin(Mesh* mesh, Account* a) noexcept nogil:
    cdef AccountTold* t = account_told(mesh, a)
    if t == NULL:
        return -1
    t.pinned = True
    return 0


cdef Protocol route_protocol

route_protocol.size = sizeof(RouteConn)
route_protocol.init = route_made
route_protocol.end = route_ended
route_protocol.greet = route_greet
route_protocol.open = route_begin
route_protocol.feed = route_feed
route_protocol.deliver = route_deliver
route_protocol.send = route_send
route_protocol.keepalive = route_keepalive
route_protocol.refuse = client_refuse


cdef const Protocol* routes() noexcept nogil:
    return &route_protocol
