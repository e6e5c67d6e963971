# Sidecars: for every sealed block N a file N.jsx with its arrays, so that a start after a kill reads blocks only behind
# them. What the ids in it stand for says the subject dictionary (words.pxi).
#
# A sidecar is a cache, written without sync by the maintenance thread and bound by checksums: to its block's size and last
# 8 bytes, to the dictionary by that one's random name and the number of entries it needs.
#
# They hold what cannot change any more: a message is left out of a sidecar, and an id named anew by a later entry (which
# happens when all messages of the old meaning are gone), only after their removal is on disk.
#
# N.jsx: SideHead · [rel u32 x n] · off u32 x n · sid u32 x n · len u16 x n · pad to 8 · (seq u64 · slot u64) x tombs · checksum

cdef uint64_t SIDE_MAGIC = 0x3453534a534a534a

cdef struct SideHead:
    uint64_t magic
    uint64_t num                # of its block
    uint64_t dict
    uint64_t needs              # entries of the dictionary
    uint64_t size               # of the block file
    uint64_t end                # its last 8 bytes
    uint64_t base
    uint64_t last
    uint64_t group
    int64_t first_ts
    int64_t last_ts
    Extent extent               # by its markers
    uint32_t n
    uint32_t sparse
    uint32_t tombs
    uint32_t ghosts             # messages that had left, but for their bytes

cdef enum:
    SIDE_WINDOW = 98304         # bytes: below what malloc maps, and more than of any record has to be looked at

cdef struct Side:
    # A sidecar in the making.
    Store* s
    Block* b
    uint8_t* p                  # the block's bytes; NULL: they are read by `window`
    uint64_t size
    uint8_t* window             # of an encrypted file, so that no memory is filled with all of it: n bytes from `start` on
    uint64_t start
    uint64_t n
    int fd
    SideHead head
    uint32_t* off
    Bytes tombs
    Bytes words                 # new dictionary entries
    uint32_t n_words


cdef int side_word(Side* w, uint32_t id, Span subject) noexcept nogil:
    # Adds the meaning of an id unless the dictionary has it.
    cdef Store* s = w.s
    cdef uint64_t hash = (<uint64_t>st_hash(0x5bd1e995, subject.p, subject.n) << 32
                          | st_hash(0x27d4eb2f165667c5, subject.p, subject.n)) | 1
    cdef uint16_t n = <uint16_t>subject.n
    if id == 0:
        return 0
    if known_room(s, id) < 0:
        return -1
    if s.keeping.known[id] == hash:
        return 0
    if bytes_add(&w.words, &id, 4) < 0 or bytes_add(&w.words, &n, 2) < 0 or bytes_add(&w.words, subject.p, n) < 0:
        return -1
    s.keeping.known[id] = hash
    w.n_words += 1
    return 0


cdef const uint8_t* side_part(Side* w, uint64_t at, uint64_t need) noexcept nogil:
    # The block's bytes from `at` on, of which so many may be looked at. NULL: they cannot be read.
    cdef FileOps* f = w.s.files
    cdef int64_t n
    if w.window == NULL:
        return w.p + at
    if at < w.start or at + need > w.start + w.n:
        n = f.pread(f.ctx, w.fd, w.window, min(<uint64_t>SIDE_WINDOW, w.size - at), <off_t>at)
        w.start = at
        w.n = <uint64_t>max(n, <int64_t>0)
        if w.n < need:
            return NULL
    return w.window + (at - w.start)


cdef const uint8_t* side_record(Side* w, uint64_t at) noexcept nogil:
    # The record there, of which the lengths and the subject, or the whole marker, may be looked at; NULL as side_part.
    cdef uint64_t left = w.size - at
    cdef const uint8_t* p = side_part(w, at, REC_MIN)
    if p == NULL:
        return NULL
    return side_part(w, at, min(left, max(<uint64_t>HEAD + st_get16(p + 20) + 4, <uint64_t>MARKER)))


cdef int side_walk(Side* w) noexcept nogil:
    # Takes the block's records in file order. The engine may remove messages meanwhile: they are then in or not.
    cdef Parsed r
    cdef Block* b = w.b
    cdef uint64_t at = 0
    cdef uint64_t line[2]
    cdef int64_t i
    cdef uint32_t slot = 0
    cdef const uint8_t* p
    while at + REC_MIN <= w.size:
        p = side_record(w, at)
        if p == NULL or not record_parse(p, w.size - at, &r):
            return -1
        if r.raw_seq & TOMB:
            if r.seq == 0:
                extent_of(p, &r, &w.head.extent)
            else:
                line[0] = r.seq
                line[1] = slot
                if bytes_add(&w.tombs, line, 16) < 0:
                    return -1
                w.head.tombs += 1
        elif not r.raw_seq & ERASED and r.seq:
            i = slot_of(b, r.seq)
            if i >= 0 and b.off[i] == at + 1:
                if side_word(w, b.sid[i], r.subject) < 0:
                    return -1
                w.off[i] = <uint32_t>at + 1
                slot = <uint32_t>i + 1
            else:
                w.head.ghosts += 1
        elif r.size > REC_MIN:
            w.head.ghosts += 1      # its noise may not be on disk yet
        at += r.size
    p = side_part(w, w.size - 8, 8) if at == w.size else NULL
    if p == NULL:
        return -1
    w.head.end = st_get64(p)
    return 0


cdef bint later_sync(Committer* c, Store* s, uint64_t closed, uint64_t last) noexcept nogil:
    # In lazy mode: syncs all blocks up to `last`, as far as they may not be on disk, also those that have left and whose files
    # wait to go: a hole in one would end the stream there. Nothing is written any more to those up to `closed`.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint64_t num = s.keeping.synced + 1
    cdef bint ok = True
    cdef int fd
    if s.keeping.synced == 0:
        fd = f.open(f.ctx, s.dir, O_RDONLY | O_DIRECTORY, 0)
        if fd < 0:
            return False
        ok = sync_said(s, f.sync_all(f.ctx, fd)) == 0
        f.close(f.ctx, fd)
        num = last + 1
    while num <= last and ok:
        snprintf(path, sizeof(path), "%s/%llu.blk", s.msgs_dir, <unsigned long long>num)
        fd = f.open(f.ctx, path, O_RDONLY, 0)
        ok = fd >= 0 or fd == -ENOENT       # gone, or nothing of it is written
        if fd >= 0:
            ok = sync_said(s, f.datasync(f.ctx, fd)) == 0
            f.close(f.ctx, fd)
        num += 1
    ok = ok and f.sync_dir(f.ctx, s.msgs_dir) == 0 and syncs_count(s)
    if ok:
        s.keeping.synced = max(s.keeping.synced, closed)
    return ok


cdef bint removals_wait(Committer* c, Store* s) noexcept nogil:
    # Waits until everything that was removed so far stays gone whatever happens: what says so, or what took its place, is on
    # disk. Without locks, the store busy; False when it cannot be had.
    cdef uint64_t ticket, last, closed
    cdef uint32_t i
    cdef bint done
    env_lock(c.env)
    if s.first_seq != s.shown_first and s.tail != NULL and not s.stopped:
        publish(s)
    ticket = s.shared.ticket
    last = s.next_num - 1
    i = s.n_blocks
    while i and not is_closed(block_i(s, i - 1)):
        i -= 1
    closed = block_i(s, i).num - 1 if i < s.n_blocks else last
    env_unlock(c.env)
    if not c.queue.running and not c.keeper_runs:
        commit_inline(c, 0)
    q_lock(c)
    while s.queue.done_ticket < ticket and s.queue.done_errno == 0 and c.queue.running and not s.stopped:
        q_wait(c, &c.idle, INT64_MAX)
    done = s.queue.done_ticket >= ticket and s.queue.done_errno == 0
    q_unlock(c)
    return done and (c.sync_interval <= 0 or later_sync(c, s, closed, last))


cdef int side_place(Committer* c, Block* b, const char* temp, const char* path) noexcept nogil:
    # Gives a sidecar its name, unless its block has left meanwhile: one without its block says that the block is missing.
    cdef FileOps* f = b.store.files
    cdef bint dead
    cdef int rc
    q_lock(c)
    dead = has_left(b)
    c.queue.placing = NULL if dead else b.store
    q_unlock(c)
    if dead:
        f.unlink(f.ctx, temp)
        return -1
    rc = f.rename(f.ctx, temp, path)
    q_lock(c)
    c.queue.placing = NULL
    q_broadcast(c, &c.idle)
    q_unlock(c)
    return rc


cdef int side_save(Side* w) noexcept nogil:
    cdef Store* s = w.s
    cdef Block* b = w.b
    cdef Bytes out
    cdef char path[4300]
    cdef char temp[4300]
    cdef uint64_t zero = 0, hash
    cdef int64_t rc
    memset(&out, 0, sizeof(out))
    w.head.magic = SIDE_MAGIC
    w.head.num = b.num
    w.head.dict = s.keeping.dict
    w.head.needs = s.keeping.dict_total
    w.head.size = w.size
    w.head.base = b.base
    w.head.last = b.last
    w.head.group = st_load(&s.writing.group)
    w.head.first_ts = b.first_ts
    w.head.last_ts = b.last_ts
    w.head.n = b.n
    w.head.sparse = b.rel != NULL
    rc = bytes_add(&out, &w.head, sizeof(SideHead))
    if b.rel != NULL:
        rc |= bytes_add(&out, b.rel, <size_t>b.n * 4)
    rc |= bytes_add(&out, w.off, <size_t>b.n * 4)
    rc |= bytes_add(&out, b.sid, <size_t>b.n * 4)
    rc |= bytes_add(&out, b.len, <size_t>b.n * 2)
    rc |= bytes_add(&out, &zero, (8 - out.n % 8) % 8)
    rc |= bytes_add(&out, w.tombs.data, w.tombs.n)
    if rc == 0:
        hash = hh64(s.key, out.data, out.n)
        rc = bytes_add(&out, &hash, 8)
    if rc < 0:
        bytes_free(&out)
        return -1
    block_path(s, b, ".jsx", path, sizeof(path))
    block_path(s, b, ".jsx.tmp", temp, sizeof(temp))
    rc = file_write(s.files, temp, out.data, out.n)
    if rc == 0:
        rc = side_place(s.com, b, temp, path)
    bytes_free(&out)
    return 0 if rc >= 0 else -1


cdef bint side_open(Side* w, Opened* o) noexcept nogil:
    # Whether the block's bytes can be read, from the file w.fd or from o.
    cdef FileOps* f = w.s.files
    cdef int64_t size
    if f.once and not is_compressed(f, w.fd):
        size = f.size(f.ctx, w.fd)
        w.size = <uint64_t>max(size, <int64_t>0)
        w.window = <uint8_t*>malloc(SIDE_WINDOW)
        return w.window != NULL and w.size >= w.b.used
    block_open(w.b, o)
    w.p = o.p
    w.size = o.size
    return w.p != NULL


cdef bint side_build(Block* b) noexcept nogil:
    # Writes a sealed block's sidecar. Its arrays stay as long as the block is pinned, and only `off` changes. Whether all that
    # the block has is good and on disk, with all that it relies on.
    cdef Store* s = b.store
    cdef FileOps* f = s.files
    cdef Side w
    cdef Opened o
    cdef char path[4300]
    cdef bint settled = False
    if b.damaged or b.n == 0:
        return False
    dict_check(s)
    memset(&w, 0, sizeof(w))
    w.s = s
    w.b = b
    block_path(s, b, ".blk", path, sizeof(path))
    w.fd = f.open(f.ctx, path, O_RDONLY, 0)
    if w.fd < 0:
        return False
    memset(&o, 0, sizeof(o))
    w.off = <uint32_t*>calloc(b.n, 4)
    # The marker that closed the block, and where its file ends, are not synced: were they gone, the block would look damaged.
    if w.off != NULL and sync_said(s, f.datasync(f.ctx, w.fd)) == 0 and side_open(&w, &o):
        settled = side_walk(&w) == 0 and removals_wait(s.com, s)
        if settled and dict_append(s, &w) == 0:
            side_save(&w)
        elif w.n_words:
            dict_drop(s)
    opened_free(f, &o)
    f.close(f.ctx, w.fd)
    free(w.window)
    free(w.off)
    bytes_free(&w.tombs)
    bytes_free(&w.words)
    return settled
