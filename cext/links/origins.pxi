# The clusters of leaf nodes: numbers for their names, so that routing compares no texts.

cdef enum:
    ORIGINS_MAX = 65536
    ORIGIN_NAME_MAX = 255       # bytes


cdef uint32_t origin_number(Mesh* mesh, Span name) noexcept nogil:
    # 0: it has none, or there are too many to be told apart, or its name is too long: that one counts as this cluster.
    cdef uint64_t known
    cdef uint8_t* text
    cdef Span copy
    if name.n == 0 or name.n > ORIGIN_NAME_MAX:
        return 0
    known = <uint64_t>strmap_get(&mesh.origins, name)
    if known or mesh.origins.n >= ORIGINS_MAX:
        return <uint32_t>known
    text = <uint8_t*>malloc(name.n)
    if text == NULL:
        return 0
    memcpy(text, name.p, name.n)
    copy = span(text, name.n)
    known = mesh.origins.n + 1
    if bytes_reserve(&mesh.names, sizeof(Span)) != 0 or strmap_put(&mesh.origins, name, <void*>known) != 0:
        free(text)
        return 0
    bytes_add(&mesh.names, &copy, sizeof(Span))
    return mesh.origins.n


cdef Span origin_name(const Mesh* mesh, uint32_t number) noexcept nogil:
    return (<const Span*>mesh.names.data)[number - 1] if number else span(NULL, 0)


cdef void origins_free(Mesh* mesh) noexcept nogil:
    cdef uint32_t i
    for i in range(mesh.origins.n):
        free(<void*>origin_name(mesh, i + 1).p)
    bytes_free(&mesh.names)
    strmap_free(&mesh.origins)
