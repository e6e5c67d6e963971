# What goes: files and directories that are taken away at once and removed afterwards.
#
# A file system takes milliseconds to remove a large file, and all streams wait for the commit thread. So that takes away its
# name, which is quick and as durable, and the maintenance thread removes it. What is left of it at a crash, the next start
# removes, as whatever has such a name.

cdef enum:
    TRASH_WAITS = 1             # something is to be removed
    TRASH_GOES = 2              # it is being removed
    TRASH_AGAIN = 3             # and more has come


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


cdef void trash_path(const Store* s, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/.del-store", s.dir)


cdef void trash_queue(Committer* c, Store* s) noexcept nogil:
    # With q held.
    s.queue.trash = TRASH_WAITS
    list_push_front(&c.queue.trash, &s.queue.trash_node)
    q_signal(c, &c.chores)


cdef void trash_unlist(Committer* c, Store* s) noexcept nogil:
    # With q held: nobody begins with it.
    list_drop(&s.queue.trash_node)


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
    cdef Store* s = <Store*>list_owner(list_pop(&c.queue.trash), &(<Store*>NULL).queue.trash_node)
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
    while not list_empty(&c.queue.trash) or c.queue.trash_going:
        any = True
        if not list_empty(&c.queue.trash):
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
