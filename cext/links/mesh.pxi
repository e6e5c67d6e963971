# The mesh: all links of a server, and what they are told.

cdef void count_for_routes(void* ctx, Sub* s) noexcept nogil:
    routes_interest(<Mesh*>ctx, <Account*>s.account, s, <int>s.weight)


cdef void count_for_gateways(void* ctx, Sub* s) noexcept nogil:
    gateways_interest(<Mesh*>ctx, <Account*>s.account, s, <int>s.weight)


cdef Mesh* mesh_new(Engine* e) noexcept nogil:
    cdef Mesh* mesh = <Mesh*>calloc(1, sizeof(Mesh))
    if mesh == NULL:
        return NULL
    mesh.engine = e
    draft_open(&mesh.line)
    draft_open(&mesh.reply)
    mesh.peers.interest = interest_told
    mesh.peers.forget = interest_forgotten
    e.peers = &mesh.peers
    return mesh


cdef void mesh_count(Mesh* mesh, sub_fn count) noexcept nogil:
    # What is subscribed already.
    cdef ListWalk all = list_walk(&mesh.engine.accounts)
    cdef Account* a = account_step(&all)
    while a != NULL:
        if not a.closed:
            sublist_each(a.subs, count, mesh)
        a = account_step(&all)


cdef void mesh_route(Mesh* mesh, uint32_t places) noexcept nogil:
    mesh.places = places
    mesh.routed = True
    mesh_count(mesh, count_for_routes)


cdef int mesh_gate(Mesh* mesh, const uint8_t* cluster, const uint8_t* server, Span command) noexcept nogil:
    memcpy(mesh.cluster, cluster, MAPPED_HASH)
    memcpy(mesh.server, server, MAPPED_HASH)
    if bytes_add(&mesh.command, command.p, command.n) < 0:
        return -1
    mesh.gated = True
    mesh.peers.answer = mapped_answer
    mesh.peers.clusters = other_clusters
    mesh_count(mesh, count_for_gateways)
    return 0


cdef void mesh_free(Mesh* mesh) noexcept nogil:
    cdef ListWalk all = list_walk(&mesh.engine.accounts)
    cdef Account* a = account_step(&all)
    while a != NULL:
        if a.told != NULL:
            interest_forgotten(&mesh.peers, a)
        a = account_step(&all)
    mesh.engine.peers = NULL
    while not list_empty(&mesh.recent_by_time):
        recent_forget(mesh, recent_at(list_first(&mesh.recent_by_time)))
    u64map_free(&mesh.recent)
    bytes_free(&mesh.command)
    draft_free(&mesh.line)
    draft_free(&mesh.reply)
    origins_free(mesh)
    free(mesh.peers.targets)
    free(mesh.peers.picked)
    free(mesh)


cdef void mesh_resize(Mesh* mesh, uint32_t places) noexcept nogil:
    cdef ListWalk all = list_walk(&mesh.engine.accounts)
    cdef Account* a = account_step(&all)
    mesh.places = places
    while a != NULL:
        if a.told != NULL:
            (<AccountTold*>a.told).place = pool_place(a.name, places)
        a = account_step(&all)


cdef void mesh_unpin(Account* a) noexcept nogil:
    if a.told != NULL:
        (<AccountTold*>a.told).pinned = False


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


cdef Protocol gateway_protocol

gateway_protocol.size = sizeof(GatewayConn)
gateway_protocol.init = link_made
gateway_protocol.end = gateway_ended
gateway_protocol.greet = link_greet
gateway_protocol.open = link_begin
gateway_protocol.feed = gateway_feed
gateway_protocol.deliver = gateway_deliver
gateway_protocol.send = gateway_send
gateway_protocol.keepalive = link_keepalive
gateway_protocol.refuse = client_refuse


cdef const Protocol* routes() noexcept nogil:
    return &route_protocol


cdef const Protocol* leafs() noexcept nogil:
    return &leaf_protocol


cdef const Protocol* gateways() noexcept nogil:
    return &gateway_protocol
