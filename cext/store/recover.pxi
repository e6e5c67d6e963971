# Opening a directory: crash states of a purge, the blocks in order, torn tails, damage.
#
# Every record is replayed as it happened: a message is entered and the limits are applied at once, a tombstone removes
# what it names. So what limits had removed before a crash is removed again, in the same order.

cdef struct Opening:
    Store* s
    char* err
    size_t err_cap


cdef bint ends_with(const char* name, const char* suffix) noexcept nogil:
    cdef size_t n = strlen(name), k = strlen(suffix)
    return n >= k and memcmp(name + n - k, suffix, k) == 0


cdef uint64_t block_number(const char* name) noexcept nogil:
    """N of "N.blk", else 0."""
    cdef uint64_t n = 0
    cdef size_t i = 0
    while c'0' <= name[i] <= c'9' and i < 18:
        n = n * 10 + <uint64_t> (name[i] - c'0')
        i += 1
    return n if i and memcmp(name + i, b".blk", min(strlen(name + i) + 1, <size_t> 5)) == 0 else 0


cdef void tree_remove(FileOps* f, const char* path) noexcept nogil:
    """A directory of plain files."""
    cdef char name[4400]
    cdef DIR* d = opendir(path)
    cdef dirent* e
    if d == NULL:
        return
    while True:
        e = readdir(d)
        if e == NULL:
            break
        if e.d_name[0] == c'.' and (e.d_name[1] == 0 or (e.d_name[1] == c'.' and e.d_name[2] == 0)):
            continue
        snprintf(name, sizeof(name), "%s/%s", path, e.d_name)
        f.unlink(f.ctx, name)
    closedir(d)
    c_rmdir(path)


cdef bint has_block(const char* path) noexcept nogil:
    cdef DIR* d = opendir(path)
    cdef dirent* e
    cdef bint found = False
    if d == NULL:
        return False
    while not found:
        e = readdir(d)
        if e == NULL:
            break
        found = block_number(e.d_name) != 0
    closedir(d)
    return found


cdef int finish_purge(Store* s) noexcept nogil:
    """Brings a purge that a crash cut short to its end."""
    cdef char fresh[4200]
    cdef char old[4200]
    cdef FileOps* f = s.files
    snprintf(fresh, sizeof(fresh), "%s/__new_msgs__", s.dir)
    snprintf(old, sizeof(old), "%s/__msgs__", s.dir)
    if has_block(fresh):
        tree_remove(f, s.msgs_dir)
        if f.rename(f.ctx, fresh, s.msgs_dir) < 0:
            return ST_IO
        f.sync_dir(f.ctx, s.dir)
    else:
        tree_remove(f, fresh)
    tree_remove(f, old)
    return ST_OK


cdef int compare_numbers(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t*> a)[0], y = (<const uint64_t*> b)[0]
    return (x > y) - (x < y)


cdef int64_t list_blocks(Opening* o, uint64_t** out) noexcept nogil:
    """The block numbers in the directory, ascending; left-overs of rewrites are removed."""
    cdef Store* s = o.s
    cdef DIR* d = opendir(s.msgs_dir)
    cdef dirent* e
    cdef uint64_t n = 0, cap = 0, num
    cdef uint64_t* list = NULL
    cdef uint64_t* more
    cdef char path[4400]
    out[0] = NULL
    if d == NULL:
        snprintf(o.err, o.err_cap, "%s: cannot be read (errno %d)", s.msgs_dir, errno)
        return ST_IO
    while True:
        e = readdir(d)
        if e == NULL:
            break
        num = block_number(e.d_name)
        if num:
            if n == cap:
                cap = cap * 2 + 16
                more = <uint64_t*> realloc(list, cap * 8)
                if more == NULL:
                    free(list)
                    closedir(d)
                    return ST_NO_MEMORY
                list = more
            list[n] = num
            n += 1
        elif ends_with(e.d_name, b".key"):
            snprintf(o.err, o.err_cap, "%s/%s: encrypted blocks are not supported", s.msgs_dir, e.d_name)
            free(list)
            closedir(d)
            return ST_IO
        elif ends_with(e.d_name, b".tmp") or ends_with(e.d_name, b".new"):
            snprintf(path, sizeof(path), "%s/%s", s.msgs_dir, e.d_name)
            s.files.unlink(s.files.ctx, path)
    closedir(d)
    if n:
        qsort(list, n, 8, compare_numbers)
    out[0] = list
    return <int64_t> n


# ---- one block's bytes -----------------------------------------------------------------------------------------

cdef struct Scan:
    # Reading a block from its first byte to the end of what is good.
    Store* s
    Block* b
    const uint8_t* p
    uint64_t size
    bint is_last
    uint64_t at
    uint64_t group              # where the current group starts
    uint32_t in_group
    bint erased                 # one of the group's records was overwritten
    bint synced                 # a marker of a synced group was seen
    bint marked
    HHState digest
    uint64_t end                # of what is kept
    bint cut                    # what is behind end is torn, not damage


cdef bint all_zero(const uint8_t* p, uint64_t n) noexcept nogil:
    return n == 0 or (p[0] == 0 and memcmp(p, p + 1, n - 1) == 0)


cdef uint64_t next_good(Scan* c, uint64_t at) noexcept nogil:
    """Where the next record starts whose checksum fits; size when there is none."""
    cdef Parsed r
    while at + REC_MIN <= c.size:
        if st_get32(c.p + at) and record_parse(c.p + at, c.size - at, &r) and record_good(c.b.key, c.p + at, &r):
            return at
        at += 1
    return c.size


cdef uint64_t durable_mark(Scan* c, uint64_t at) noexcept nogil:
    """The highest offset that a marker behind `at` says was on disk before its group was written."""
    cdef Parsed r
    cdef Mark m
    cdef uint64_t mark = 0
    while at < c.size:
        if record_parse(c.p + at, c.size - at, &r) and record_good(c.b.key, c.p + at, &r):
            if marker_read(c.p + at, &r, &m):
                mark = max(mark, m.durable)
            at += r.size
        else:
            at = next_good(c, at + 1)
    return mark


cdef bint scan_bad(Scan* c) noexcept nogil:
    """At bytes that are no record: whether to go on behind them."""
    cdef uint64_t next
    if all_zero(c.p + c.at, c.size - c.at):
        return False        # preallocated
    next = next_good(c, c.at + 1)
    if c.is_last and (next == c.size or (c.synced and durable_mark(c, next) <= c.at)):
        c.cut = True        # of a group that was never acked
        return False
    c.s.damage += 1
    c.b.damaged = True
    if next == c.size:
        c.end = c.size
        return False
    c.at = next
    c.group = UINT64_MAX
    return True


cdef bint scan_mark(Scan* c, const Parsed* r) noexcept nogil:
    """Whether this is a marker; does the digest of the lengths before it fit?"""
    cdef Mark m
    if not marker_read(c.p + c.at, r, &m):
        return False
    c.marked = True
    c.synced = c.synced or not m.flags & MARK_LAZY
    c.s.group = max(c.s.group, m.group)
    if m.start == c.group and m.count == c.in_group and not c.erased and m.digest != hh_final(&c.digest):
        c.s.damage += 1
        c.b.damaged = True
    c.group = c.at + r.size
    c.in_group = 0
    c.erased = False
    digest_init(&c.digest, c.s.key)
    return True


cdef void replay_limits(Store* s, const Limits* limits, int64_t at) noexcept nogil:
    """Other limits from here on: what the old ones had removed by then goes first."""
    cdef int64_t now = s.env.now
    if memcmp(&s.limits, limits, sizeof(Limits)) == 0:
        return
    s.env.now = at
    age_trim(s, 0xffffffffU)
    s.limits = limits[0]
    limits_apply(s)
    s.env.now = now


cdef int scan_record(Scan* c, const Parsed* r) noexcept nogil:
    cdef Store* s = c.s
    cdef Block* b = c.b
    cdef int64_t id
    cdef Limits limits
    digest_add(&c.digest, c.p + c.at, r)
    c.in_group += 1
    if r.raw_seq & TOMB:
        if r.seq == 0:
            if limits_read(c.p + c.at, r, &limits):
                replay_limits(s, &limits, r.ts)
            return ST_OK
        b.tombs += 1
        b.tomb_min = min(b.tomb_min, r.seq)
        take_seq(s, r.seq, RM_DELETE)
        if r.seq > s.last_seq:
            skip_to(s, b, r.seq)
        return ST_OK
    if r.raw_seq & ERASED:
        c.erased = True
    if r.seq == 0 or r.seq <= s.last_seq:
        return ST_OK
    if r.raw_seq & ERASED:
        skip_to(s, b, r.seq)
        return ST_OK
    if b.n == 0:
        b.base = r.seq
        b.last = r.seq - 1
    id = index_intern(&s.x, r.subject)
    if id < 0:
        return <int> id
    if block_room(b, r.seq) != ST_OK:
        return ST_NO_MEMORY
    count_in(s, b, r.seq, r.ts, <uint32_t> c.at, <uint32_t> id, r.size)
    keep_limits(s, <uint32_t> id)
    return ST_OK


cdef void skip_to(Store* s, Block* b, uint64_t seq) noexcept nogil:
    """A sequence that is used and has no message."""
    if b.n == 0 and b.last < b.base:
        b.base = max(b.base, s.last_seq + 1)
    b.last = max(b.last, seq)
    s.last_seq = max(s.last_seq, seq)
    if s.msgs == 0:
        s.first_seq = s.last_seq + 1


cdef int scan_block(Scan* c) noexcept nogil:
    cdef Parsed r
    cdef int rc
    digest_init(&c.digest, c.s.key)
    while c.at + REC_MIN <= c.size:
        if not record_parse(c.p + c.at, c.size - c.at, &r) or not record_good(c.b.key, c.p + c.at, &r):
            if not scan_bad(c):
                return ST_OK
            continue
        if r.raw_seq == TOMB and scan_mark(c, &r):
            pass
        else:
            rc = scan_record(c, &r)
            if rc < 0:
                return rc
        c.at += r.size
        c.end = c.at
    if c.at < c.size:
        scan_bad(c)
    return ST_OK


cdef int block_recover(Opening* o, uint64_t num, bint is_last, bint sided) noexcept nogil:
    """Reads one block file from its first byte and enters what it holds."""
    cdef Store* s = o.s
    cdef FileOps* f = s.files
    cdef Block* b
    cdef Scan c
    cdef char path[4200]
    cdef int fd, rc
    cdef int64_t size
    if blocks_reserve(s) < 0:
        return ST_NO_MEMORY
    b = block_new(s, num, s.last_seq + 1)
    if b == NULL:
        return ST_NO_MEMORY
    b.created = True
    block_path(s, b, ".blk", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDWR, 0)
    size = f.size(f.ctx, fd) if fd >= 0 else fd
    if size < 0:
        snprintf(o.err, o.err_cap, "%s: cannot be opened (errno %d)", path, <int> -size)
        block_free(b)
        return ST_IO
    b.fd = fd
    s.blocks[s.b0 + s.n_blocks] = b
    s.n_blocks += 1
    if size == 0:
        return ST_OK
    if sided:
        rc = side_load(s, b, fd, <uint64_t> size)
        if rc < 0:
            return rc
        if rc == 1:
            b.written = b.used
            b.durable = b.used
            return ST_OK
    b.data = <uint8_t*> st_map(fd, <size_t> size, False)
    b.data_cap = <uint64_t> size
    if b.data == NULL:
        snprintf(o.err, o.err_cap, "%s: cannot be mapped (errno %d)", path, errno)
        return ST_IO
    if size >= 4 and memcmp(b.data, b"cmp", 3) == 0 and b.data[3] <= 2:
        snprintf(o.err, o.err_cap, "%s: compressed blocks are not supported", path)
        return ST_IO
    memset(&c, 0, sizeof(c))
    c.s = s
    c.b = b
    c.p = b.data
    c.size = <uint64_t> size
    c.is_last = is_last
    b.used = <uint64_t> size
    rc = scan_block(&c)
    if rc < 0:
        snprintf(o.err, o.err_cap, "%s: no memory for its index", path)
        return rc
    b.used = c.end
    b.written = c.end
    b.durable = c.end
    b.open_group = c.in_group > 0
    if c.cut and is_last:
        f.truncate(f.ctx, fd, <off_t> c.end)
    if not is_last:
        st_unmap(b.data, b.data_cap)
        b.data = NULL
        block_fd_close(b)
    return ST_OK


cdef int tail_recover(Store* s) noexcept nogil:
    """The last block is appended to again if there is room in it; all others are sealed."""
    cdef uint32_t i
    cdef Block* b
    cdef uint8_t* region
    for i in range(s.n_blocks):
        b = block_i(s, i)
        if i + 1 < s.n_blocks or b.damaged or b.sided or b.used + SLACK > s.block_size:
            if b.data != NULL and not b.region:
                st_unmap(b.data, b.data_cap)
                b.data = NULL
            block_fd_close(b)
            b.sealed = True
            b.closed = True
            if b.live == 0:
                empty_block(s, b)
            continue
        region = region_new(s, page_up(s.block_size + SLACK))
        if region == NULL:
            return ST_NO_MEMORY
        if s.files.pread(s.files.ctx, b.fd, region, b.used, 0) != <int64_t> b.used:
            region_free(s, region, page_up(s.block_size + SLACK), False)
            return ST_IO
        if b.data != NULL:
            st_unmap(b.data, b.data_cap)
        b.data = region
        b.data_cap = page_up(s.block_size + SLACK)
        b.region = True
        s.tail = b
        out_push(s, b)
    return ST_OK


cdef int blocks_replay(Opening* o, const uint64_t* nums, int64_t n) noexcept nogil:
    """Every block in order, from its sidecar or its bytes."""
    cdef Store* s = o.s
    cdef int rc = dict_load(s)
    cdef bint sided = rc == 1
    cdef int64_t i
    # A sidecar may still list a message under an id that belongs to another subject since: its removal, which follows,
    # may not take that subject's node away before its first message comes.
    s.unsettled = sided
    for i in range(n):
        if rc >= 0:
            rc = block_recover(o, nums[i], i + 1 == n, sided)
            s.next_num = nums[i] + 1
    if sided:
        s.unsettled = False
        index_settle(&s.x)
    return min(rc, 0)


cdef int store_recover(Opening* o) noexcept nogil:
    cdef Store* s = o.s
    cdef uint64_t* nums = NULL
    cdef int64_t n
    cdef int rc = ST_OK
    cdef Limits limits = s.limits
    if finish_purge(s) < 0:
        snprintf(o.err, o.err_cap, "%s: an interrupted purge cannot be finished (errno %d)", s.dir, errno)
        return ST_IO
    if not st_is_dir(s.msgs_dir):
        if c_mkdir(s.msgs_dir, 0o700) < 0:
            snprintf(o.err, o.err_cap, "%s: cannot be made (errno %d)", s.msgs_dir, errno)
            return ST_IO
        s.files.sync_dir(s.files.ctx, s.dir)
    n = list_blocks(o, &nums)
    if n < 0:
        return <int> n
    s.replaying = True
    rc = checkpoint_load(s, nums, <uint64_t> n)
    if rc == 0:
        rc = blocks_replay(o, nums, n)
    elif rc == 1:
        rc = ST_OK
    if rc == ST_OK:
        s.limits = limits
        limits_apply(s)
        rc = tail_recover(s)
    s.replaying = False
    free(nums)
    return rc
