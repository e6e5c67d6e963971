# The mesh: all links of a server, and what they are told.

cdef void count_for_routes(void* ctx, Sub* s) noexcept nogil:
    routes_interest(<Mesh*>ctx, <Account*>s.account, s, <int>s.weight)


cdef Mesh* mesh_new(Engine* e) noexcept nogil:
    cdef Mesh* mesh = <Mesh*>calloc(1, sizeof(Mesh))
    if mesh == NULL:
        return NULL
    mesh.engine = e
    draft_open(&mesh.line)
    mesh.peers.interest = interest_told
    mesh.peers.forget = interest_forgotten
    e.peers = &mesh.peers
    return mesh


cdef void mesh_route(Mesh* mesh, uint32_t places) noexcept nogil:
    cdef ListWalk all = list_walk(&mesh.engine.accounts)
    cdef Account* a = account_step(&all)
    mesh.places = places
    mesh.routed = True
    while a != NULL:
        if not a.closed:
            sublist_each(a.subs, count_for_routes, mesh)
        a = account_step(&all)


cdef void mesh_free(Mesh* mesh) noexcept nogil:
    cdef ListWalk all = list_walk(&mesh.engine.accounts)
    cdef Account* a = account_step(&all)
    while a != NULL:
        if a.told != NULL:
            interest_forgotten(&mesh.peers, a)
        a = account_step(&all)
    mesh.engine.peers = NULL
    draft_free(&mesh.line)
    origins_free(mesh)
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
route_protocol.init = link_made
route_protocol.end = route_ended
route_protocol.greet = link_greet
route_protocol.open = link_begin
route_protocol.feed = route_feed
route_protocol.deliver = route_deliver
route_protocol.send = route_send
route_protocol.keepalive = link_keepalive
route_protocol.refuse = client_refuse


cdef Protocol leaf_protocol

leaf_protocol.size = sizeof(LeafConn)
leaf_protocol.init = link_made
leaf_protocol.end = leaf_ended
leaf_protocol.greet = link_greet
leaf_protocol.open = link_begin
leaf_protocol.feed = leaf_feed
leaf_protocol.deliver = leaf_deliver
leaf_protocol.send = leaf_send
leaf_protocol.keepalive = link_keepalive
leaf_protocol.refuse = client_refuse


cdef const Protocol* routes() noexcept nogil:
    return &route_protocol


cdef const Protocol* leafs() noexcept nogil:
    return &leaf_protocol
