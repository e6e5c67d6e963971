# The subject dictionary subjects.jsd: what the ids in the sidecars stand for. An id stands for what its latest entry says.
#
# magic u64 · name u64, then chunks: bytes u32 · entries u32 · checksum u64 · entries (id u32 · length u16 · text)
# The checksum covers the name, the two numbers before it and the entries. An entry of id 0 stands for entries that another
# of the same id made void and that were left out: its text is their number, u64. They count as if they were there, for
# sidecars ask for a number of entries.
#
# It is a cache, written without sync by the maintenance thread. If it has less than a sidecar asks for, or another size than
# it should have, words were lost, and another dictionary begins: with other words in their places it would be believed.

cdef uint64_t DICT_MAGIC = 0x3244534a534a534a

cdef enum:
    DICT_ROOM = 1048576         # bytes up to which void entries stay
    DICT_CHUNK = 1048576


cdef void dict_path(const Store* s, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/subjects.jsd", s.dir)


# ---- writing (maintenance thread) ------------------------------------------------------------------------------

cdef int known_room(Store* s, uint32_t id) noexcept nogil:
    cdef uint32_t cap
    cdef uint64_t* p
    if id < s.keeping.n_known:
        return 0
    cap = max(id + 1, s.keeping.n_known * 2)
    p = <uint64_t*>realloc(s.keeping.known, <size_t>cap * 8)
    if p == NULL:
        return -1
    memset(p + s.keeping.n_known, 0, <size_t>(cap - s.keeping.n_known) * 8)
    s.keeping.known = p
    s.keeping.n_known = cap
    return 0


cdef uint64_t dict_hash(const uint64_t* key, uint64_t dict, uint64_t numbers, const uint8_t* p,
                        uint64_t n) noexcept nogil:
    # The checksum of a chunk whose first 8 bytes are `numbers`.
    cdef HHState h
    cdef uint64_t head[2]
    head[0] = dict
    head[1] = numbers
    hh_init(&h, key)
    hh_update(&h, <const uint8_t*>head, 16)
    hh_update(&h, p, n)
    return hh_final(&h)


cdef void dict_drop(Store* s) noexcept nogil:
    # Words may be missing from the dictionary: the next sidecar begins another, and those so far mean nothing then.
    s.keeping.dict = 0
    s.keeping.n_known = 0
    free(s.keeping.known)
    s.keeping.known = NULL


cdef int dict_append(Store* s, Side* w) noexcept nogil:
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint64_t head[2]
    cdef int fd
    cdef int64_t rc = 0
    if w.n_words == 0 and s.keeping.dict:
        return 0
    dict_path(s, path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDWR | O_CREAT, 0o600)
    if fd < 0:
        return fd
    if s.keeping.dict == 0:
        while s.keeping.dict == 0:
            s.env.system.random(s.env.system.ctx, &s.keeping.dict, 8)
        s.keeping.dict_total = 0
        s.keeping.dict_size = 16
        head[0] = DICT_MAGIC
        head[1] = s.keeping.dict
        rc = f.truncate(f.ctx, fd, 0)
        if rc >= 0:
            rc = f.pwrite(f.ctx, fd, head, 16, 0)
    if rc >= 0:
        rc = dict_put(s, fd, &w.words, w.n_words, &s.keeping.dict_size)
    f.close(f.ctx, fd)
    if rc < 0:
        return -1
    s.keeping.dict_total += w.n_words
    return 0


cdef int dict_put(Store* s, int fd, Bytes* entries, uint32_t n, uint64_t* at) noexcept nogil:
    # Writes a chunk of n entries at a place of the file, which becomes the one behind it; the entries are used up.
    cdef FileOps* f = s.files
    cdef uint64_t head[2]
    cdef int64_t rc
    head[0] = entries.n | <uint64_t>n << 32
    head[1] = dict_hash(s.key, s.keeping.dict, head[0], entries.data, entries.n)
    rc = f.pwrite(f.ctx, fd, head, 16, <off_t>at[0])
    if rc >= 0:
        rc = f.pwrite(f.ctx, fd, entries.data, entries.n, <off_t>(at[0] + 16))
    at[0] += 16 + entries.n
    entries.n = 0
    return 0 if rc >= 0 else -1


cdef int dict_rewrite(Store* s, int fd, const Word* words, uint64_t n, const uint64_t* latest, uint64_t* size) noexcept nogil:
    # Writes a dictionary with the entries that are not void, and says how many are left out.
    cdef FileOps* f = s.files
    cdef uint64_t head[2]
    cdef uint64_t k, left = s.keeping.dict_total
    cdef uint32_t id = 0, some = 1
    cdef uint16_t len = 8
    cdef Bytes out
    cdef int rc = 0
    memset(&out, 0, sizeof(out))
    for k in range(n):
        left -= latest[words[k].id] == k + 1
    head[0] = DICT_MAGIC
    head[1] = s.keeping.dict
    if f.pwrite(f.ctx, fd, head, 16, 0) < 0:
        return -1
    size[0] = 16
    if bytes_add(&out, &id, 4) < 0 or bytes_add(&out, &len, 2) < 0 or bytes_add(&out, &left, 8) < 0:
        rc = -1
    for k in range(n):
        if rc < 0 or latest[words[k].id] != k + 1:
            continue
        if out.n > DICT_CHUNK:
            rc = dict_put(s, fd, &out, some, size)
            some = 0
        if (bytes_add(&out, &words[k].id, 4) < 0 or bytes_add(&out, &words[k].len, 2) < 0
                or bytes_add(&out, words[k].text, words[k].len) < 0):
            rc = -1
        some += 1
    if rc == 0 and some:
        rc = dict_put(s, fd, &out, some, size)
    bytes_free(&out)
    return rc


cdef void dict_compact(Store* s) noexcept nogil:
    # Leaves out what is void. What fails leaves the dictionary as it is, and is tried again when that is larger.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef char temp[4400]
    cdef uint64_t size = 0, good, k
    cdef uint64_t* latest = NULL
    cdef uint32_t top = 0
    cdef Word* words = NULL
    cdef uint8_t* p
    cdef size_t mapped
    cdef int64_t n = -1
    cdef int fd = -1, rc = -1
    s.keeping.dict_limit = 2 * s.keeping.dict_size
    dict_path(s, path, sizeof(path))
    snprintf(temp, sizeof(temp), "%s.tmp", path)
    p = file_read(f, path, &size)
    mapped = <size_t>size
    if p == NULL:
        return
    if size >= 16 and st_get64(p) == DICT_MAGIC and st_get64(p + 8) == s.keeping.dict:
        n = dict_parse(s.key, p, size, &words, &good)
    if n > 0 and words_count(words, <uint64_t>n) == s.keeping.dict_total:
        for k in range(<uint64_t>n):
            top = max(top, words[k].id)
        latest = <uint64_t*>calloc(<size_t>top + 1, 8)
    if latest != NULL:
        for k in range(<uint64_t>n):
            latest[words[k].id] = k + 1 if words[k].id else 0
        fd = file_new(f, temp)
        if fd >= 0:
            rc = dict_rewrite(s, fd, words, <uint64_t>n, latest, &size)
            f.close(f.ctx, fd)
        if rc == 0 and f.rename(f.ctx, temp, path) >= 0:
            s.keeping.dict_size = size
            s.keeping.dict_limit = 2 * size
        elif fd >= 0:
            f.unlink(f.ctx, temp)
    free(latest)
    free(words)
    pages_free(p, mapped)


cdef void dict_check(Store* s) noexcept nogil:
    # Before a sidecar is made: whether the dictionary is what was written, and not mostly void.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef int64_t size = -1
    cdef int fd
    if s.keeping.dict == 0:
        return
    dict_path(s, path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd >= 0:
        size = f.size(f.ctx, fd)
        f.close(f.ctx, fd)
    if size < 0 or <uint64_t>size != s.keeping.dict_size:
        dict_drop(s)
    elif s.keeping.dict_size > max(<uint64_t>DICT_ROOM, s.keeping.dict_limit):
        dict_compact(s)


# ---- reading (opening) --------------------------------------------------------------------------------------------

cdef struct Word:
    uint32_t id
    uint16_t len
    const uint8_t* text


cdef int64_t dict_parse(const uint64_t* key, const uint8_t* p, uint64_t size, Word** out, uint64_t* good) noexcept nogil:
    # The entries of all whole chunks, in order; their number, or ST_NO_MEMORY. `good`: the bytes they take.
    cdef uint64_t at = 16, n = 0, cap = 0, end, bytes
    cdef uint32_t count, i
    cdef Word* words = NULL
    cdef Word* more
    out[0] = NULL
    good[0] = at
    while at + 16 <= size:
        bytes = st_get32(p + at)
        count = st_get32(p + at + 4)
        end = at + 16 + bytes
        if (end > size or <uint64_t>count * 6 > bytes
                or st_get64(p + at + 8) != dict_hash(key, st_get64(p + 8), st_get64(p + at), p + at + 16, bytes)):
            break
        if n + count > cap:
            cap = (n + count) * 2
            more = <Word*>realloc(words, cap * sizeof(Word))
            if more == NULL:
                free(words)
                return ST_NO_MEMORY
            words = more
        at += 16
        for i in range(count):
            if at + 6 > end or at + 6 + st_get16(p + at + 4) > end:
                break
            words[n + i].id = st_get32(p + at)
            words[n + i].len = st_get16(p + at + 4)
            words[n + i].text = p + at + 6
            at += 6 + words[n + i].len
        if at != end:
            break       # its entries do not fill it
        n += count
        good[0] = at
    out[0] = words
    return <int64_t>n


cdef uint64_t words_count(const Word* words, uint64_t n) noexcept nogil:
    # Entries, with those that were left out.
    cdef uint64_t k, count = 0
    for k in range(n):
        count += st_get64(words[k].text) if words[k].id == 0 and words[k].len == 8 else 1
    return count


cdef int64_t dict_words(const uint8_t* p, uint64_t size, Span name, uint64_t* dict,
                        int (*visit)(void* ctx, uint32_t id, Span text) noexcept nogil, void* ctx) noexcept nogil:
    cdef uint64_t key[4]
    cdef uint64_t good
    cdef int64_t n, i
    cdef Word* words = NULL
    if size < 16 or st_get64(p) != DICT_MAGIC:
        return ST_DAMAGED
    dict[0] = st_get64(p + 8)
    store_key(name, key)
    n = dict_parse(key, p, size, &words, &good)
    for i in range(n):
        if words[i].id and visit(ctx, words[i].id, span(words[i].text, words[i].len)) != 0:
            n = ST_NO_MEMORY
            break
    if n > 0:
        n = <int64_t>words_count(words, <uint64_t>n)
    free(words)
    return n


cdef int dict_place(Store* s, const Word* words, uint64_t n) noexcept nogil:
    # Gives every subject its id again: shorter ones first, so that a prefix stands before what is below it; of several
    # ids for one subject, and of several subjects for one id, the latest.
    cdef uint32_t top = 0, len, id
    cdef uint64_t k, total = 0
    cdef uint64_t* latest
    cdef uint64_t* order
    cdef uint64_t* starts = <uint64_t*>calloc(65537, 8)
    cdef Index* x = &s.x
    cdef int rc = ST_OK
    for k in range(n):
        top = max(top, words[k].id)
    latest = <uint64_t*>calloc(<size_t>top + 1, 8)
    order = <uint64_t*>malloc((n + 1) * 8)
    if starts == NULL or latest == NULL or order == NULL or top > (1 << 28) or index_reserve(x, top) < 0:
        free(starts)
        free(latest)
        free(order)
        return ST_NO_MEMORY
    for k in range(n):
        latest[words[k].id] = k + 1
        starts[words[k].len + 1] += 1
    for len in range(65536):
        starts[len + 1] += starts[len]
    for k in range(n):
        order[starts[words[k].len]] = k
        starts[words[k].len] += 1
    # starts[len] is now the end of that length's entries; go through each length backwards.
    for len in range(1, 65536):
        if rc < 0:
            break
        total = starts[len]
        while total > starts[len - 1]:
            total -= 1
            k = order[total]
            id = words[k].id
            if latest[id] != k + 1 or id == 0:
                continue
            rc = index_place(x, id, span(words[k].text, words[k].len))
            if rc < 0:
                break
    free(starts)
    free(latest)
    free(order)
    return rc


cdef int dict_load(Store* s) noexcept nogil:
    # 1 when there is a dictionary (sidecars may be used), 0 when not, or an error.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef int rc
    cdef uint64_t size
    cdef int64_t n
    cdef uint8_t* p
    cdef Word* words = NULL
    dict_path(s, path, sizeof(path))
    p = file_read(f, path, &size)
    if p == NULL:
        return 0
    if size < 16 or st_get64(p) != DICT_MAGIC:
        pages_free(p, <size_t>size)
        return 0
    s.keeping.dict = st_get64(p + 8)
    n = dict_parse(s.key, p, size, &words, &s.keeping.dict_size)
    s.keeping.dict_total = words_count(words, <uint64_t>n) if n > 0 else 0
    rc = dict_place(s, words, <uint64_t>n) if n > 0 else <int>n
    free(words)
    pages_free(p, <size_t>size)
    return 1 if rc == ST_OK else rc
