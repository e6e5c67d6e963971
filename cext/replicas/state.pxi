# The state of a stream in a snapshot, in nats-server's form: its counts, and its deleted sequences.

cdef enum:
    STATE_MAGIC = 42
    STATE_VERSION = 1
    STATE_SOURCES = 2           # nats-server 2.15 adds the stream's sources, which this server skips
    HOLES_SET = 22              # first byte of a set of deleted sequences
    HOLES_SET_VERSION = 2
    HOLES_RUN = 33              # first byte of a run of them
    SET_BITS = SET_WORDS * 64   # sequences of a node of a set
    SET_NODE = 8 + SET_WORDS * 8 + 2        # bytes of a node
    FEW_RUNS = 24               # of a node: fewer are shorter as runs than as a set
    LONG_RUN = 256              # sequences from which on a run is written as a run


# ---- reading -----------------------------------------------------------------------------------------------------------

cdef bint state_json_get(Span text, StateHead* out) noexcept nogil:
    # The JSON form of servers before 2.10.
    cdef JsonReader r
    cdef JsonItem key, val
    cdef int more
    cdef bint good = True
    json_open(&r, text)
    if not json_enter_object(&r):
        return False
    more = json_next_member(&r, &key, &val)
    while more > 0 and good:
        if json_key_is(&key, b"messages"):
            good = json_uint(&val, &out.msgs)
        elif json_key_is(&key, b"bytes"):
            good = json_uint(&val, &out.bytes)
        elif json_key_is(&key, b"first_seq"):
            good = json_uint(&val, &out.first)
        elif json_key_is(&key, b"last_seq"):
            good = json_uint(&val, &out.last)
        elif json_key_is(&key, b"clfs"):
            good = json_uint(&val, &out.refused)
        elif json_key_is(&key, b"deleted") and val.kind == JSON_ARRAY:
            out.holes = val.text
        more = json_next_member(&r, &key, &val)
    out.json = True
    return good and more == 0 and json_at_end(&r)


cdef bint sources_pass(Span* s) noexcept nogil:
    # Skips the sources: {name, sequence, identity} each.
    cdef uint64_t n, size, seq
    if not get_uv(s, &n):
        return False
    while n:
        n -= 1
        if not get_uv(s, &size) or size > s.n:
            return False
        s.p += size
        s.n -= <uint32_t>size
        if not get_uv(s, &seq) or not get_uv(s, &size) or size > s.n:
            return False
        s.p += size
        s.n -= <uint32_t>size
    return True


cdef bint state_head_get(Span state, StateHead* out) noexcept nogil:
    cdef uint8_t head[2]
    cdef uint64_t deleted
    memset(out, 0, sizeof(StateHead))
    if state.n and state.p[0] == <uint8_t>b"{":
        return state_json_get(state, out) and out.first <= out.last + 1
    if not get_bytes(&state, head, 2) or head[0] != STATE_MAGIC or not STATE_VERSION <= head[1] <= STATE_SOURCES:
        return False
    if not (get_uv(&state, &out.msgs) and get_uv(&state, &out.bytes) and get_uv(&state, &out.first)
            and get_uv(&state, &out.last) and get_uv(&state, &out.refused) and get_uv(&state, &deleted)):
        return False
    if head[1] == STATE_SOURCES and not sources_pass(&state):
        return False
    out.holes = state if deleted else span(NULL, 0)
    return out.last < UINT64_MAX and out.first <= out.last + 1


cdef void holes_begin(HoleWalk* w, const StateHead* head) noexcept nogil:
    w.rest = head.holes
    w.json = head.json
    w.nodes = 0
    w.at = SET_BITS
    if w.json and w.rest.n:
        w.rest.p += 1               # the bracket
        w.rest.n -= 1


cdef int holes_json_next(HoleWalk* w, uint64_t* first, uint64_t* count) noexcept nogil:
    cdef uint64_t v = 0
    cdef bint digits = False
    while w.rest.n and not (digits and not <uint8_t>b"0" <= w.rest.p[0] <= <uint8_t>b"9"):
        if <uint8_t>b"0" <= w.rest.p[0] <= <uint8_t>b"9":
            v = v * 10 + (w.rest.p[0] - <uint8_t>b"0")
            digits = True
        w.rest.p += 1
        w.rest.n -= 1
    first[0] = v
    count[0] = 1
    return digits


cdef bint set_bit(const uint64_t* bits, uint32_t i) noexcept nogil:
    return bits[i >> 6] >> (i & 63) & 1


cdef uint32_t set_run(const uint64_t* bits, uint32_t* at) noexcept nogil:
    # The next run of set bits: at: its first bit, SET_BITS if there is none; returns its end.
    cdef uint32_t i = at[0]
    while i < SET_BITS and not set_bit(bits, i):
        i = (i | 63) + 1 if bits[i >> 6] >> (i & 63) == 0 else i + 1
    at[0] = i
    while i < SET_BITS and set_bit(bits, i):
        i += 1
    return i


cdef int holes_set_next(HoleWalk* w, uint64_t* first, uint64_t* count) noexcept nogil:
    # The next run in the present node. 0: no more in it.
    cdef uint32_t start = w.at
    if start >= SET_BITS:
        return 0
    w.at = set_run(w.bits, &start)
    first[0] = w.base + start
    count[0] = w.at - start
    return count[0] != 0


cdef bint holes_node(HoleWalk* w) noexcept nogil:
    # Reads the next node of the set. False: damaged.
    cdef uint16_t height
    if not (get_bytes(&w.rest, &w.base, 8) and get_bytes(&w.rest, w.bits, sizeof(w.bits)) and get_bytes(&w.rest, &height, 2)):
        return False
    w.nodes -= 1
    w.at = 0
    return True


cdef int holes_next(HoleWalk* w, uint64_t* first, uint64_t* count) noexcept nogil:
    cdef uint8_t kind
    cdef uint32_t sizes[2]
    if w.json:
        return holes_json_next(w, first, count)
    while True:
        if holes_set_next(w, first, count):
            return 1
        if w.nodes:
            if not holes_node(w):
                return -1
            continue
        if not get_bytes(&w.rest, &kind, 1):
            return 0
        if kind == HOLES_RUN:
            return 1 if get_uv(&w.rest, first) and get_uv(&w.rest, count) else -1
        if kind != HOLES_SET or not get_bytes(&w.rest, &kind, 1) or kind != HOLES_SET_VERSION:
            return -1
        if not get_bytes(&w.rest, sizes, sizeof(sizes)) or sizes[0] > w.rest.n // SET_NODE:
            return -1
        w.nodes = sizes[0]


cdef bint stream_state_refused(Span state, uint64_t* refused) noexcept nogil:
    cdef StateHead head
    cdef HoleWalk w
    cdef uint64_t first, count
    cdef int more = 1
    if not state_head_get(state, &head):
        return False
    holes_begin(&w, &head)
    while more == 1:
        more = holes_next(&w, &first, &count)
    refused[0] = head.refused
    return more == 0


# ---- writing -----------------------------------------------------------------------------------------------------------

cdef struct HoleNode:
    # Deleted sequences that are not written yet.
    Bytes* out
    uint64_t base               # first sequence of the node; 0: no node
    uint32_t n                  # how many
    uint32_t runs
    uint64_t bits[SET_WORDS]


cdef int put_numbers(Bytes* out, const uint64_t* v, uint32_t n) noexcept nogil:
    cdef uint8_t number[10]
    cdef uint32_t i
    for i in range(n):
        if bytes_add(out, number, put_uv(number, v[i])) < 0:
            return ST_NO_MEMORY
    return ST_OK


cdef int put_run(Bytes* out, uint64_t first, uint64_t count) noexcept nogil:
    cdef uint8_t kind = HOLES_RUN
    cdef uint64_t run[2]
    run[0], run[1] = first, count
    return ST_NO_MEMORY if bytes_add(out, &kind, 1) < 0 else put_numbers(out, run, 2)


cdef int node_put_runs(const HoleNode* node) noexcept nogil:
    cdef uint32_t at = 0, end
    cdef int rc = ST_OK
    while rc == ST_OK:
        end = set_run(node.bits, &at)
        if at == end:
            break
        rc = put_run(node.out, node.base + at, end - at)
        at = end
    return rc


cdef int node_put(HoleNode* node) noexcept nogil:
    # Writes the node as runs, or as a set of one node, and empties it.
    cdef uint8_t kind[2]
    cdef uint32_t sizes[2]
    cdef uint16_t height = 1
    cdef int rc = ST_OK
    kind[0], kind[1] = HOLES_SET, HOLES_SET_VERSION
    sizes[0], sizes[1] = 1, node.n
    if node.runs < FEW_RUNS:
        rc = node_put_runs(node)
    elif (bytes_add(node.out, kind, 2) < 0 or bytes_add(node.out, sizes, sizeof(sizes)) < 0
            or bytes_add(node.out, &node.base, 8) < 0 or bytes_add(node.out, node.bits, sizeof(node.bits)) < 0
            or bytes_add(node.out, &height, 2) < 0):
        rc = ST_NO_MEMORY
    node.n = node.runs = 0
    memset(node.bits, 0, sizeof(node.bits))
    return rc


cdef int node_add(HoleNode* node, uint64_t first, uint64_t count) noexcept nogil:
    # Adds a run behind all earlier ones.
    cdef uint64_t base
    cdef uint32_t i
    cdef int rc = ST_OK
    if count >= LONG_RUN:
        rc = node_put(node)
        return rc if rc < 0 else put_run(node.out, first, count)
    node.runs += 1
    while count and rc == ST_OK:
        base = first // SET_BITS * SET_BITS
        if base != node.base:
            rc = node_put(node)
            node.base = base
            node.runs = 1
        i = <uint32_t>(first - base)
        node.bits[i >> 6] |= <uint64_t>1 << (i & 63)
        node.n += 1
        first += 1
        count -= 1
    return rc


cdef int holes_put(Stream* s, Bytes* out) noexcept nogil:
    cdef HoleNode node
    cdef StoreState state
    cdef uint64_t first = 0, end
    cdef int rc = ST_OK
    memset(&node, 0, sizeof(HoleNode))
    node.out = out
    store_state(s.store, &state)
    while rc == ST_OK and store_deleted(s.store, first, &first, 1):
        end = store_next_seq(s.store, NULL, first)
        if end == 0:
            end = state.last_seq + 1
        rc = node_add(&node, first, end - first)
        first = end
    return rc if rc < 0 else node_put(&node)


cdef int stream_state_put(Stream* s, Bytes* out) noexcept nogil:
    cdef StoreState state
    cdef uint8_t kind[2]
    cdef uint64_t figures[6]
    cdef int rc
    store_state(s.store, &state)
    kind[0], kind[1] = STATE_MAGIC, STATE_VERSION
    figures[0], figures[1], figures[2], figures[3] = state.msgs, state.bytes, state.first_seq, state.last_seq
    figures[4] = member_refused(s)
    figures[5] = state.num_deleted
    if bytes_add(out, kind, 2) < 0:
        return ST_NO_MEMORY
    rc = put_numbers(out, figures, 6)
    return rc if rc < 0 or state.num_deleted == 0 else holes_put(s, out)
