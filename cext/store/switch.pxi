# A purge of everything: a directory with the last sequence alone takes the place of the old one, also at a start that finds it
# half done.

cdef void tree_remove(FileOps* f, const char* path) noexcept nogil:
    # A directory of plain files.
    cdef char full[4400]
    cdef Bytes names
    cdef const char* name = NULL
    memset(&names, 0, sizeof(names))
    if f.names(f.ctx, path, &names) == 0:
        name = name_after(&names, NULL)
        while name != NULL:
            snprintf(full, sizeof(full), "%s/%s", path, name)
            f.unlink(f.ctx, full)
            name = name_after(&names, name)
        f.rmdir(f.ctx, path)
    bytes_free(&names)


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
        rc = <int>min(f.pwrite(f.ctx, tail.fd, first, REC_MIN, 0), <int64_t>0)
    rc = f.datasync(f.ctx, tail.fd) if rc == 0 else rc
    rc = f.sync_dir(f.ctx, fresh) if rc == 0 else rc
    rc = f.sync_dir(f.ctx, s.dir) if rc == 0 else rc
    rc = f.rename(f.ctx, s.msgs_dir, old) if rc == 0 else rc
    rc = f.rename(f.ctx, fresh, s.msgs_dir) if rc == 0 else rc
    rc = f.sync_dir(f.ctx, s.dir) if rc == 0 else rc
    if rc < 0:
        purge_undo(s, tail, fresh, old)
    else:
        tail.durable = REC_MIN
        tail.safe = REC_MIN
    return rc


cdef void purge_undo(Store* s, Block* tail, const char* fresh, const char* old) noexcept nogil:
    # A purge that failed is refused: nothing is removed, as far as the disk still does what it is asked to.
    cdef FileOps* f = s.files
    block_fd_close(tail)
    tail.created = False
    if f.is_dir(f.ctx, old):
        f.rename(f.ctx, s.msgs_dir, fresh)
        f.rename(f.ctx, old, s.msgs_dir)
        f.sync_dir(f.ctx, s.dir)
    tree_remove(f, fresh)


# ---- what goes ------------------------------------------------------------------------------------------------------
# A file system takes milliseconds to remove a large file, and all streams wait for the commit thread. So that takes away its
# name, which is quick and as durable, and the maintenance thread removes it. What is left of it at a crash, the next start
# removes, as whatever has such a name.

cdef enum:
    TRASH_WAITS = 1             # something is to be removed
    TRASH_GOES = 2              # it is being removed
    TRASH_AGAIN = 3             # and more has come
    TRASH_FROM = 1048576        # bytes of a file; a smaller one goes at once


cdef void trash_path(const Store* s, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/.del-store", s.dir)


cdef bint trash_put(Store* s, const char* path) noexcept nogil:
    # A file, or a directory of plain files, is gone under its name, as after unlink or rmdir. False: it is still there, and
    # has to go at once: where there is no room, or no maintenance thread, or that does not know the store yet or any more.
    cdef Committer* c = s.com
    cdef char trash[4200]
    cdef char to[4300]
    cdef int rc
    if not c.keeper_runs or st_load(&c.shared.full) or s.recovery.replaying or s.stopped:
        return False
    trash_path(s, trash, sizeof(trash))
    s.writing.trashed += 1
    snprintf(to, sizeof(to), "%s/%llu", trash, <unsigned long long>s.writing.trashed)
    rc = s.files.rename(s.files.ctx, path, to)
    if rc == -ENOENT:
        s.files.mkdir(s.files.ctx, trash, 0o700)
        rc = s.files.rename(s.files.ctx, path, to)
    if rc < 0:
        return False
    q_lock(c)
    if s.queue.trash == TRASH_GOES:
        s.queue.trash = TRASH_AGAIN
    elif s.queue.trash == 0:
        trash_queue(c, s)
    q_unlock(c)
    return True


cdef void trash_queue(Committer* c, Store* s) noexcept nogil:
    # With q held.
    s.queue.trash = TRASH_WAITS
    s.queue.next_trash = c.queue.trash
    c.queue.trash = s
    q_signal(c, &c.chores)


cdef void trash_unlist(Committer* c, Store* s) noexcept nogil:
    # With q held: nobody begins with it.
    cdef Store** at = &c.queue.trash
    while at[0] != NULL and at[0] != s:
        at = &at[0].queue.next_trash
    if at[0] == s:
        at[0] = s.queue.next_trash


cdef void trash_empty(Store* s) noexcept nogil:
    cdef FileOps* f = s.files
    cdef char trash[4200]
    cdef char full[4400]
    cdef Bytes names
    cdef const char* name = NULL
    memset(&names, 0, sizeof(names))
    trash_path(s, trash, sizeof(trash))
    if f.names(f.ctx, trash, &names) == 0:
        name = name_after(&names, NULL)
    while name != NULL:
        snprintf(full, sizeof(full), "%s/%s", trash, name)
        if f.unlink(f.ctx, full) == -EISDIR:
            tree_remove(f, full)
        name = name_after(&names, name)
    bytes_free(&names)


cdef void trash_go(Committer* c) noexcept nogil:
    # With q held, which is let go meanwhile: of the first of the list.
    cdef Store* s = c.queue.trash
    c.queue.trash = s.queue.next_trash
    s.queue.trash = TRASH_GOES
    s.queue.busy += 1
    c.queue.trash_going += 1
    q_unlock(c)
    trash_empty(s)
    q_lock(c)
    c.queue.trash_going -= 1
    s.queue.busy -= 1
    if s.queue.trash == TRASH_AGAIN:
        trash_queue(c, s)
    else:
        s.queue.trash = 0
    q_broadcast(c, &c.idle)


cdef bint trash_give(Committer* c, int64_t rc) noexcept nogil:
    # The commit thread, when there is no room: whether there is more now.
    cdef bint any = False
    if rc != -ENOSPC:
        return False
    q_lock(c)
    while c.queue.trash != NULL or c.queue.trash_going:
        any = True
        if c.queue.trash != NULL:
            trash_go(c)
        else:
            q_wait(c, &c.idle, INT64_MAX)
    q_unlock(c)
    return any


cdef void trash_end(Store* s) noexcept nogil:
    # When no thread knows the store any more.
    cdef char trash[4200]
    if s.writing.trashed:
        trash_empty(s)
        trash_path(s, trash, sizeof(trash))
        s.files.rmdir(s.files.ctx, trash)
