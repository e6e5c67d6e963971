# A purge of everything: a directory with the last sequence alone takes the place of the old one, also at a start that finds it
# half done.

cdef uint64_t any_block(FileOps* f, const char* path) noexcept nogil:
    # The number of a block in that directory, 0 when there is none.
    cdef Bytes names
    cdef const char* name
    cdef uint64_t num = 0
    memset(&names, 0, sizeof(names))
    f.names(f.ctx, path, &names)
    name = name_after(&names, NULL)
    while name != NULL and num == 0:
        num = file_number(name, b".blk")
        name = name_after(&names, name)
    bytes_free(&names)
    return num


cdef bint purge_whole(Store* s, const char* fresh) noexcept nogil:
    # Whether the directory that a purge made has its block, and that says which sequence was the last.
    cdef uint64_t num = any_block(s.files, fresh)
    cdef uint64_t key[4]
    cdef char path[4300]
    cdef uint8_t first[REC_MIN]
    cdef Parsed r
    cdef int64_t n
    cdef int fd
    if num == 0:
        return False
    snprintf(path, sizeof(path), "%s/%llu.blk", fresh, <unsigned long long>num)
    fd = s.files.open(s.files.ctx, path, O_RDONLY, 0)
    if fd < 0:
        return False
    n = s.files.pread(s.files.ctx, fd, first, REC_MIN, 0)
    s.files.close(s.files.ctx, fd)
    snprintf(path, sizeof(path), "%s-%llu", s.name, <unsigned long long>num)
    store_key(span(path, <uint32_t>strlen(path)), key)
    return n == REC_MIN and record_parse(first, REC_MIN, &r) and record_good(key, first, &r) and r.raw_seq & TOMB != 0


cdef int finish_purge(Store* s) noexcept nogil:
    # After a crash in the middle of a purge: where msgs has blocks, these are the old ones or already the new one; where it
    # has none, the new directory takes its place when it is whole, else the old one. The purge was not answered yet.
    # 0 or -errno.
    cdef char fresh[4200]
    cdef char old[4200]
    cdef const char* chosen = NULL
    cdef FileOps* f = s.files
    cdef int rc
    snprintf(fresh, sizeof(fresh), "%s/__new_msgs__", s.dir)
    snprintf(old, sizeof(old), "%s/__msgs__", s.dir)
    if any_block(f, s.msgs_dir) == 0:
        if purge_whole(s, fresh):
            chosen = fresh
        elif any_block(f, old):
            chosen = old
    if chosen != NULL:
        tree_remove(f, s.msgs_dir)
        rc = f.rename(f.ctx, chosen, s.msgs_dir)
        if rc < 0:
            return rc
    # A kill leaves names that the disk does not have yet: what is served now is what it has from here on.
    if f.is_dir(f.ctx, fresh) or f.is_dir(f.ctx, old) or chosen != NULL:
        rc = f.sync_dir(f.ctx, s.dir)
        if rc < 0:
            return rc
    tree_remove(f, fresh)
    tree_remove(f, old)
    return 0


cdef int purge_switch(Store* s, Block* tail) noexcept nogil:
    # Replaces the msgs directory by one that holds only the last sequence. 0 or -errno, with the old one in its place.
    #
    # Whatever of this a power cut leaves, finish_purge finds one of the two whole: the new one is on disk with its name
    # before msgs changes, and what an earlier purge left is gone by then.
    cdef FileOps* f = s.files
    cdef char fresh[4200]
    cdef char old[4200]
    cdef uint8_t first[REC_MIN]
    cdef bint made = False
    cdef int rc
    snprintf(fresh, sizeof(fresh), "%s/__new_msgs__", s.dir)
    snprintf(old, sizeof(old), "%s/__msgs__", s.dir)
    placing_wait(s.com, s)
    tree_remove(f, fresh)
    tree_remove(f, old)
    rc = f.mkdir(f.ctx, fresh, 0o700)
    rc = block_fd(s, tail, fresh, &made) if rc == 0 else rc
    if rc == 0:
        bare_write(tail.key, first, st_get64(tail.data + 4), <int64_t>st_get64(tail.data + 12))
        rc = <int>min(f.pwrite(f.ctx, tail.writing.fd, first, REC_MIN, 0), <int64_t>0)
    rc = f.datasync(f.ctx, tail.writing.fd) if rc == 0 else rc
    rc = f.sync_dir(f.ctx, fresh) if rc == 0 else rc
    rc = f.sync_dir(f.ctx, s.dir) if rc == 0 else rc
    rc = f.rename(f.ctx, s.msgs_dir, old) if rc == 0 else rc
    rc = f.rename(f.ctx, fresh, s.msgs_dir) if rc == 0 else rc
    rc = f.sync_dir(f.ctx, s.dir) if rc == 0 else rc
    if rc < 0:
        purge_undo(s, tail, fresh, old)
    else:
        tail.writing.durable = REC_MIN
        tail.writing.safe = REC_MIN
        purge_extent(&s.writing.extent, st_get64(tail.data + 4) & ~TOMB, <int64_t>st_get64(tail.data + 12))
    return rc


cdef void purge_extent(Extent* e, uint64_t last, int64_t last_ts) noexcept nogil:
    # What is known of the stream behind a purge. A truncation before it may not be written any more: nothing else says that
    # sequences are given again.
    e.first = min(e.first, last + 1)
    if e.last > last:
        e.last = last
        e.last_ts = last_ts


cdef void purge_undo(Store* s, Block* tail, const char* fresh, const char* old) noexcept nogil:
    # A purge that failed is refused: nothing is removed, as far as the disk still does what it is asked to.
    cdef FileOps* f = s.files
    block_fd_close(tail)
    tail.writing.file = FILE_NONE
    if f.is_dir(f.ctx, old):
        f.rename(f.ctx, s.msgs_dir, fresh)
        f.rename(f.ctx, old, s.msgs_dir)
        f.sync_dir(f.ctx, s.dir)
    tree_remove(f, fresh)
