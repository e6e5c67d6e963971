# Opening a directory: crash states of a purge, the blocks in order, torn tails, damage.
#
# A replay derives nothing: a message is entered, a tombstone removes what it names, and in the end all goes that is below
# the first sequence which the markers name. What a limit removed it finds removed, whatever the limits are by now.

cdef int number_add(uint64_t** list, uint64_t* n, uint64_t num) noexcept nogil:
    cdef uint64_t* more
    if n[0] % 64 == 0:
        more = <uint64_t*>realloc(list[0], (n[0] + 64) * 8)
        if more == NULL:
            return ST_NO_MEMORY
        list[0] = more
    list[0][n[0]] = num
    n[0] += 1
    return ST_OK


cdef int list_entry(Opening* o, const char* name, uint64_t** out, uint64_t* n) noexcept nogil:
    cdef Store* s = o.s
    cdef uint64_t num = file_number(name, b".blk")
    cdef char path[4400]
    if num:
        return number_add(out, n, num)
    num = file_number(name, b".jsx")
    if num:
        return number_add(&o.sides, &o.n_sides, num)
    if ends_with(name, b".key") and not s.files.once:
        snprintf(o.err, o.err_cap, "%s/%s: its block is encrypted, and the configuration has no key", s.msgs_dir, name)
        return ST_IO
    if strcmp(name, b"index.db") == 0:
        o.foreign = True
    elif ends_with(name, b".tmp") or ends_with(name, b".new"):
        snprintf(path, sizeof(path), "%s/%s", s.msgs_dir, name)
        s.files.unlink(s.files.ctx, path)
    return ST_OK


cdef int64_t list_blocks(Opening* o, uint64_t** out) noexcept nogil:
    # The block numbers in the directory, ascending; left-overs of rewrites are removed.
    cdef Store* s = o.s
    cdef Bytes names
    cdef const char* name
    cdef uint64_t n = 0
    cdef int rc
    memset(&names, 0, sizeof(names))
    out[0] = NULL
    rc = s.files.names(s.files.ctx, s.msgs_dir, &names)
    if rc < 0:
        bytes_free(&names)
        snprintf(o.err, o.err_cap, "%s: cannot be read: %s", s.msgs_dir, strerror(-rc))
        return ST_IO
    name = name_after(&names, NULL)
    while name != NULL and rc == ST_OK:
        rc = list_entry(o, name, out, &n)
        name = name_after(&names, name)
    bytes_free(&names)
    if rc < 0:
        free(out[0])
        out[0] = NULL
        return rc
    if n:
        qsort(out[0], n, 8, compare_u64)
    return <int64_t>n


cdef int sides_join(Opening* o, uint64_t** nums, int64_t* n) noexcept nogil:
    # Adds the blocks that only a sidecar knows.
    cdef uint64_t count = <uint64_t>n[0], k, was = <uint64_t>n[0]
    cdef uint64_t* list = <uint64_t*>malloc((count + o.n_sides + 1) * 8)
    if list == NULL:
        return ST_NO_MEMORY
    if count:
        memcpy(list, nums[0], count * 8)
    free(nums[0])
    nums[0] = list
    for k in range(o.n_sides):
        if was == 0 or bsearch(&o.sides[k], list, was, 8, compare_u64) == NULL:
            list[count] = o.sides[k]
            count += 1
    qsort(list, count, 8, compare_u64)
    n[0] = <int64_t>count
    return ST_OK


# ---- blocks --------------------------------------------------------------------------------------------------------

cdef int block_aside(Store* s, const Block* b) noexcept nogil:
    # A file without a single record of this stream keeps its bytes under another name. 0 or -errno.
    cdef char path[4300]
    cdef char aside[4300]
    block_path(s, b, ".blk", path, sizeof(path))
    snprintf(aside, sizeof(aside), "%s/damaged-%llu.blk", s.msgs_dir, <unsigned long long>b.num)
    return s.files.rename(s.files.ctx, path, aside)


cdef void tail_cut(Scan* c, int fd) noexcept nogil:
    # Cuts a group that was never finished; what it had is put aside.
    cdef FileOps* f = c.s.files
    cdef char aside[4300]
    cdef uint64_t n = tail_size(c)
    if n:
        tail_path(c.s, c.b.num, aside, sizeof(aside))
        if file_write(f, aside, c.p + c.end, n) < 0:
            c.b.damaged = True      # then it stays where it is
            return
        lost_place(c.s, DAMAGE_TAIL, c.b.num, c.end, n, 0, 0, 0)
    f.truncate(f.ctx, fd, <off_t>c.end)
    c.o.cut = True


cdef void zeros_cut(Store* s, Block* b, uint64_t size) noexcept nogil:
    # A block that is not appended to again ends where its records do: it can be compacted, and no other reader takes the
    # zeros that were written ahead in it for damage.
    if b.used and b.used < size and not b.damaged and b.bytes == BYTES_MAPPED:
        s.files.truncate(s.files.ctx, b.writing.fd, <off_t>b.used)


cdef int scan_open(Opening* o, Block* b, int fd, uint64_t* size) noexcept nogil:
    # The bytes of a block's file, of which single ones may be changed; size: of the file, and then of the block.
    cdef Store* s = o.s
    cdef FileOps* f = s.files
    cdef Opened opened
    cdef int rc
    if is_compressed(f, fd):
        if not compressed_open(f, fd, size[0], 0, &opened):
            snprintf(o.err, o.err_cap, "block %llu: cannot be decompressed: no memory, or it cannot be read",
                     <unsigned long long>b.num)
            return ST_IO
        block_opened(b, &opened)
        size[0] = opened.size
        return ST_OK
    rc = f.map(f.ctx, fd, size[0], True, &b.data)
    b.data_cap = size[0]
    if rc < 0:
        snprintf(o.err, o.err_cap, "block %llu: cannot be mapped: %s", <unsigned long long>b.num, strerror(-rc))
        return ST_IO
    return ST_OK


cdef int block_scan(Opening* o, Block* b, int fd, uint64_t size, bint is_last) noexcept nogil:
    # Reads a block's file from its first byte and enters what it holds.
    cdef Store* s = o.s
    cdef Scan c
    cdef int rc = scan_open(o, b, fd, &size)
    if rc < 0:
        return rc
    is_last = is_last and b.bytes != BYTES_DECODED
    memset(&c, 0, sizeof(c))
    c.s = s
    c.b = b
    c.p = b.data
    c.size = size
    c.is_last = is_last
    c.o = o
    c.mark.whole = o.before.whole
    b.used = size
    rc = scan_block(&c)
    free(c.held)
    free(c.search.removals)
    if rc < 0:
        snprintf(o.err, o.err_cap, "block %llu: no memory for its index", <unsigned long long>b.num)
        return rc
    b.used = c.end
    b.writing.written = c.end
    b.writing.durable = c.end
    if c.aside:
        s.files.sync_all(s.files.ctx, fd)
        s.files.sync_dir(s.files.ctx, s.msgs_dir)
    o.before.whole = c.mark.whole and c.fate != FATE_UNDONE
    if c.fate == FATE_UNDONE or c.fate == FATE_UNSYNCED:
        rc = rest_undo(o, &c, fd)
        if rc < 0:
            return rc
    elif c.good:
        o.before.sealed = c.mark.sealed
        o.before.doubt = c.fate == FATE_BLIND
    elif b.bytes == BYTES_DECODED or not all_zero(b.data, size) and not (c.fate == FATE_CUT and begins_group(&c)):
        return 1
    if b.bytes == BYTES_DECODED:        # nothing is written to its file
        b.damaged = b.damaged or c.fate != FATE_KEPT
        return ST_OK
    if c.fate == FATE_CUT:
        tail_cut(&c, fd)
    if not o.foreign and s.recovery.stale == NULL:   # no cache that is there knows how long the block is
        return block_prove(&c, fd)
    return ST_OK


cdef int block_recover(Opening* o, uint64_t num, bint is_last, bint sided) noexcept nogil:
    # Enters one block, from its sidecar or its bytes.
    cdef Store* s = o.s
    cdef FileOps* f = s.files
    cdef Block* b
    cdef char path[4200]
    cdef int fd, synced, rc = 0
    cdef int64_t size
    if blocks_reserve(s) < 0:
        return ST_NO_MEMORY
    b = block_new(s, num, s.last_seq + 1)
    if b == NULL:
        return ST_NO_MEMORY
    b.writing.file = FILE_OPEN
    block_path(s, b, ".blk", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDWR, 0)
    size = f.size(f.ctx, fd) if fd >= 0 else fd
    if size < 0 and fd != -ENOENT and fd != -EKEYREJECTED:
        snprintf(o.err, o.err_cap, "%s: cannot be opened: %s", path, strerror(<int>-size))
        block_free(b)
        return ST_IO
    if fd == -EKEYREJECTED:
        lost_place(s, DAMAGE_KEY, num, 0, 0, 0, 0, 0)
    o.cut = False
    b.writing.fd = fd
    s.blocks[s.b0 + s.n_blocks] = b
    s.n_blocks += 1
    if sided:
        rc = side_load(s, b, fd, <uint64_t>max(size, <int64_t>0), not o.foreign)
    if rc == 1:
        b.writing.written = b.used
        b.writing.durable = b.used
        o.before.doubt = False
        o.before.whole = False
        o.before.sealed = fd >= 0 and ends_sealed(f, b, fd)
        s.recovery.torn = 0
        return ST_OK
    if rc == 0 and fd == -EKEYREJECTED:
        rc = 1
    if rc == 0 and size > 0:
        rc = block_scan(o, b, fd, <uint64_t>size, is_last)
    elif rc == 0 and size == 0:
        rc = empty_ends(o, b, fd, is_last)
    if rc < 0:
        return rc
    if fd >= 0 and rc == 0 and (not o.synced or o.batches or o.cut):
        # A killed server may have left what it had not synced, and it is served from now on. What is written behind a batch
        # says that that is on disk. What was cut off may not stand before a later block.
        synced = f.datasync(f.ctx, fd)
        if synced < 0:
            snprintf(o.err, o.err_cap, "%s: cannot be synced: %s", path, strerror(-synced))
            return ST_IO
    if rc == 0 and fd < 0:
        hole_wide(s, num)       # only a sidecar is there, and does not say what the block had
        o.before.doubt = True
        block_forget(s, b)
    elif rc == 1:
        if block_aside(s, b) < 0:
            snprintf(o.err, o.err_cap, "%s: damaged, and cannot be put aside", path)
            return ST_IO
        if fd >= 0:
            lost_place(s, DAMAGE_ASIDE, num, 0, <uint64_t>size, 0, 0, 0)
        hole_wide(s, num)
        o.before.doubt = True
        block_forget(s, b)
    elif not is_last and not o.ended and b.data != NULL:
        zeros_cut(s, b, <uint64_t>size)
        block_unmap(b)
        block_fd_close(b)
    return ST_OK


cdef void hole_wide(Store* s, uint64_t num) noexcept nogil:
    # A whole block is gone: whatever is missing up to the next message was in it.
    memset(&s.recovery.hole, 0, sizeof(Damage))
    s.recovery.hole.block = num
    s.recovery.hole.kind = DAMAGE_BLOCK
    s.recovery.hole.first = s.last_seq + 1
    s.recovery.hole.count = GAP_MAX


cdef bint tail_verify(Store* s, Block* b, const uint8_t* p) noexcept nogil:
    # Whether every message of a block that a checkpoint knows is in its bytes as it was.
    cdef uint32_t i = st_first_live(b.off, b.head, b.n)
    cdef Parsed r
    while i < b.n:
        if not slot_fits(s, b, i, p, &r):
            slot_damaged(s, b, i)
            b.damaged = True
        i = st_first_live(b.off, i + 1, b.n)
    return not b.damaged


cdef bint has_side(const Store* s, const Block* b) noexcept nogil:
    # Whether a sidecar says what the block has, though a dictionary that is too short may have kept this start from using it.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef int fd
    block_path(s, b, ".jsx", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd >= 0:
        f.close(f.ctx, fd)
    return fd != -ENOENT


cdef int tail_reopen(Store* s, Block* b) noexcept nogil:
    # A last block with room in it is appended to again: 1, or 0 when it must not be, or an error.
    cdef uint64_t cap = page_up(s.block_size + SLACK)
    cdef uint8_t* region
    if (b.damaged or has_side(s, b) or b.writing.fd < 0 or b.used + SLACK > s.block_size
            or is_compressed(s.files, b.writing.fd)):
        return 0        # b.writing.fd: there was a block behind it, of which nothing could be read
    region = region_new(s, cap)
    if region == NULL:
        return ST_NO_MEMORY
    if s.files.pread(s.files.ctx, b.writing.fd, region, b.used, 0) != <int64_t>b.used:
        region_free(s, region, cap, False)
        return ST_IO
    if not tail_verify(s, b, region):
        region_free(s, region, cap, False)
        return 0
    if b.data != NULL:
        block_unmap(b)
    b.data = region
    b.data_cap = cap
    b.bytes = BYTES_REGION
    block_fd_close(b)
    s.tail = b
    out_push(s, b)
    return 1


cdef int tail_recover(Store* s) noexcept nogil:
    # The last block is appended to again if there is room in it; all others are sealed.
    cdef uint32_t i
    cdef Block* b
    cdef int rc
    empty_leaves(s)
    for i in range(s.n_blocks):
        b = block_i(s, i)
        rc = tail_reopen(s, b) if i + 1 == s.n_blocks else 0
        if rc < 0:
            return rc
        if rc == 1:
            continue
        if b.data != NULL:
            zeros_cut(s, b, b.data_cap)
            block_unmap(b)
        block_fd_close(b)
        b.queue.state = BLOCK_SEALED
        b.writing.file = FILE_CLOSED
        if b.live == 0:
            empty_block(s, b)
    return ST_OK


# ---- what is missing -------------------------------------------------------------------------------------------------

cdef uint64_t suspect_check(Store* s, Block* b) noexcept nogil:
    # A block whose file is not what its sidecar knows: what is not in it is lost. The number of such messages.
    cdef const uint8_t* p = block_data(b)
    cdef uint64_t first = 0, last = 0, count = 0, seq, size
    cdef uint32_t i = st_first_live(b.off, b.head, b.n)
    cdef Parsed r
    while i < b.n:
        if p == NULL or not slot_fits(s, b, i, p, &r):
            seq = seq_at(b, i)
            first = first if count else seq
            last = seq
            count += 1
            size = slot_size(b, i)
            take_out(s, b, i, RM_LIMIT)
            lost_add(s, seq, size)
        i = st_first_live(b.off, i + 1, b.n)
    b.damaged = True
    b.vouched = 1
    lost_place(s, DAMAGE_BLOCK, b.num, 0, b.used, first, last, count)
    return count


cdef void suspects_check(Store* s) noexcept nogil:
    cdef uint32_t i = 0
    cdef Block* b
    cdef char path[4300]
    cdef int rc
    while i < s.n_blocks:
        b = block_i(s, i)
        i += 1
        if not b.suspect:
            continue
        if suspect_check(s, b) == 0 and b.live == 0:       # all that it had is gone by right
            block_path(s, b, ".jsx", path, sizeof(path))
            s.files.unlink(s.files.ctx, path)
        if b.live:
            continue
        rc = block_aside(s, b)
        if rc < 0 and rc != -ENOENT:
            continue
        empties_remove(s, b)
        blocks_take_out(s, b)
        block_free(b)
        i -= 1


cdef int blocks_replay(Opening* o, const uint64_t* nums, int64_t n, uint64_t newest) noexcept nogil:
    # Every block in order, from its sidecar or its bytes; newest: the number of the last one that has a file.
    cdef Store* s = o.s
    cdef int rc = dict_load(s)
    cdef bint sided = rc == 1
    cdef int64_t i
    # A sidecar may still list a message under an id that belongs to another subject since: its removal, which follows,
    # may not take that subject's node away before its first message comes.
    s.recovery.unsettled = sided
    o.nums = nums
    o.n = n
    for i in range(n):
        if rc >= 0 and not o.ended:
            o.at = i
            rc = block_recover(o, nums[i], nums[i] == newest, sided)
            s.next_num = nums[i] + 1
    if sided:
        s.recovery.unsettled = False
        index_settle(&s.x)
    if s.recovery.dict_short:
        dict_drop(s)
        for i in range(s.n_blocks):
            block_i(s, <uint32_t>i).sided = False
    if rc >= 0 and (not o.synced or o.batches):
        rc = s.files.sync_dir(s.files.ctx, s.msgs_dir)      # likewise of their names
        if rc < 0:
            snprintf(o.err, o.err_cap, "%s: cannot be synced (errno %d)", s.msgs_dir, -rc)
            return ST_IO
    if rc >= 0:
        replay_extent(s)
        erasures_end(s)
        suspects_check(s)
        rc = sequences_restore(o)
        cut_finish(s)
    return min(rc, 0)


cdef int store_recover(Opening* o) noexcept nogil:
    cdef Store* s = o.s
    cdef uint64_t* nums = NULL
    cdef uint64_t newest = 0
    cdef int64_t n
    cdef int rc = s.files.prepare(s.files.ctx, s.dir) if s.files.prepare != NULL else 0
    if rc < 0:
        snprintf(o.err, o.err_cap, "%s: its files cannot be made ready: %s", s.dir, strerror(-rc))
        return ST_IO
    rc = finish_purge(s)
    if rc < 0:
        snprintf(o.err, o.err_cap, "%s: an interrupted purge cannot be finished (errno %d)", s.dir, -rc)
        return ST_IO
    if not s.files.is_dir(s.files.ctx, s.msgs_dir):
        rc = s.files.mkdir(s.files.ctx, s.msgs_dir, 0o700)
        if rc < 0:
            snprintf(o.err, o.err_cap, "%s: cannot be made (errno %d)", s.msgs_dir, -rc)
            return ST_IO
        s.files.sync_dir(s.files.ctx, s.dir)
    n = list_blocks(o, &nums)
    if n < 0:
        free(o.sides)
        return <int>n
    rc = reserve_read(s)
    if rc < 0:
        snprintf(o.err, o.err_cap, "%s/sequence.jsr: cannot be read: %s", s.dir, strerror(-rc))
        free(o.sides)
        free(nums)
        return ST_IO
    s.writing.caches_doubt = n > 0 and s.com.sync_interval > 0      # a kill may have come between their removal and its sync
    newest = nums[n - 1] if n else 0
    s.recovery.replaying = True
    rc = checkpoint_load(s, nums, <uint64_t>n)
    if rc == 0 and not o.foreign:
        rc = sides_join(o, &nums, &n)
    if rc == 0:
        rc = blocks_replay(o, nums, n, newest)
    elif rc == 1:
        rc = ST_OK
    free(o.sides)
    if rc == ST_OK:
        rc = tail_recover(s)
    if rc == ST_OK and s.recovery.reserve != RESERVE_KNOWN:
        rc = reserve_anew(s)
        if rc < 0:
            snprintf(o.err, o.err_cap, "%s/sequence.jsr: cannot be written: %s", s.dir, strerror(-rc))
            rc = ST_IO
    if rc != ST_OK or not s.recovery.shorter:
        stale_free(s)
    s.recovery.replaying = False
    free(nums)
    return rc
