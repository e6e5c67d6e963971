# The file calls of an environment, on the simulated disk.

cdef enum Call:
    CALL_WRITE = 0
    CALL_SYNC = 1
    CALL_OPEN = 2
    CALL_TRUNCATE = 3
    CALL_RENAME = 4
    CALL_UNLINK = 5
    CALL_MKDIR = 6
    CALL_READ = 7

cdef enum:
    FIRST_FD = 1000
    DIRECT_PAGE = 512
    PAGE_BYTES = 4096


cdef bint is_on(Disk* d) noexcept nogil:
    # Each call begins so: whether there is power. Who looks sees what memory holds all the same.
    turn_point(d)
    return not d.dead or d.calm


cdef int begin(Disk* d, int call) noexcept nogil:
    # Each call that changes something goes on so: 0, or what it fails with.
    if d.calm:
        return 0
    if d.dead:
        return -EIO
    d.calls += 1
    if d.cut_after >= 0:
        if d.cut_after == 0:
            d.dead = True
            return -EIO
        d.cut_after -= 1
    background(d)
    return faulty(d, call)


cdef int faulty(Disk* d, int call) noexcept nogil:
    if d.calm:
        return 0
    if d.after[call] > 0:
        d.after[call] -= 1
    elif d.times[call] > 0:
        d.times[call] -= 1
        return -d.faults[call]
    return 0


cdef Inode* file_of(Disk* d, int fd) noexcept nogil:
    cdef uint32_t i = <uint32_t>(fd - FIRST_FD)
    if fd < FIRST_FD or i >= d.n_fds or d.fds[i].inode == 0:
        return NULL
    return inode_at(d, d.fds[i].inode)


cdef uint32_t lookup(Disk* d, const char* path, uint32_t* folder, char* last) noexcept nogil:
    # The inode of a path, 0 when there is none; its directory (0: neither is there) and its last part.
    cdef const char* end
    cdef size_t n
    cdef Name* name
    cdef uint32_t at = 1
    folder[0] = 0
    last[0] = 0
    while True:
        while path[0] == c'/':
            path += 1
        if path[0] == 0:
            return at
        end = strchr(path, c'/')
        n = <size_t>(end - path) if end != NULL else strlen(path)
        if n >= NAME_MAX:
            fatal("a name is too long")
        memcpy(last, path, n)
        last[n] = 0
        if at == 0 or not inode_at(d, at).is_dir:
            folder[0] = 0
            return 0
        folder[0] = at
        name = names_find(&d.now, at, last)
        at = name.inode if name != NULL else 0
        path += n


cdef int sim_open(void* ctx, const char* path, int flags, int mode) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last[NAME_MAX]
    cdef uint32_t folder, i, inode
    cdef Open* more
    cdef int rc
    if not is_on(d):
        return -EIO
    inode = lookup(d, path, &folder, last)
    if inode == 0 and not flags & O_CREAT:
        return -ENOENT
    rc = begin(d, CALL_OPEN)
    if rc < 0:
        return rc
    if inode == 0 and folder == 0:
        return -ENOENT
    if inode == 0:
        inode = inode_new(d, False)
        d.change += 1
        name_set(d, folder, last, inode)
    elif flags & O_TRUNC:
        file_resize(d, inode_at(d, inode), 0)
    for i in range(d.n_fds):
        if d.fds[i].inode == 0:
            break
    else:
        i = d.n_fds
        more = <Open*>realloc(d.fds, (<size_t>d.n_fds + 1) * sizeof(Open))
        if more == NULL:
            fatal("no memory")
        d.fds = more
        d.n_fds += 1
    d.fds[i].inode = inode
    d.fds[i].direct = False
    d.fds[i].failed = 0
    d.fds[i].any_failed = 0
    return FIRST_FD + <int>i


cdef int sim_close(void* ctx, int fd) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    if not is_on(d):
        return -EIO
    if file_of(d, fd) == NULL:
        fatal("a descriptor is closed that is not open")
    d.fds[fd - FIRST_FD].inode = 0
    return 0


cdef void mappings_refresh(Disk* d, Inode* f) noexcept nogil:
    # Shared mappings show what the file has become.
    cdef uint32_t k
    cdef Mapping* m
    cdef size_t n
    for k in range(d.n_maps):
        m = &d.maps[k]
        if m.own or m.inode == 0 or inode_at(d, m.inode) != f:
            continue
        n = min(m.n, f.now.n)
        if n:
            memcpy(m.p, f.now.data, n)
        memset(m.p + n, 0, m.n - n)


cdef int64_t sim_pwrite(void* ctx, int fd, const void* p, size_t n, off_t off) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Inode* f
    cdef size_t start = <size_t>off, whole = n
    cdef int rc
    if not is_on(d):
        return -EIO
    f = file_of(d, fd)
    if f == NULL or f.is_dir:
        return -EBADF
    if d.fds[fd - FIRST_FD].direct and (off % DIRECT_PAGE or n % DIRECT_PAGE or <size_t>p % DIRECT_PAGE):
        return -EINVAL
    rc = begin(d, CALL_WRITE)
    d.writes += 1
    if rc == 0 and start + n > f.now.n and d.used + <int64_t>(start + n - f.now.n) > d.room:
        rc = -ENOSPC
    if rc < 0:
        n = below(d, n + 1)     # some of it was written, of a process that was killed whole pages
        if d.dead:
            n = max((start + n) // PAGE_BYTES * PAGE_BYTES, start) - start
        if rc == -ENOSPC and start + n > f.now.n:
            n = f.now.n - start if start < f.now.n else 0
    if n:
        if start + n > f.now.n:
            file_resize(d, f, start + n)
        memcpy(f.now.data + start, p, n)
        mark(f, start, start + n)
        f.time = d.env.now
        mappings_refresh(d, f)
    return rc if rc < 0 else <int64_t>whole


cdef int64_t sim_pread(void* ctx, int fd, void* p, size_t n, off_t off) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Inode* f
    cdef size_t start = <size_t>off
    cdef int rc
    if not is_on(d):
        return -EIO
    f = file_of(d, fd)
    if f == NULL or f.is_dir:
        return -EBADF
    rc = faulty(d, CALL_READ)
    if rc < 0:
        return rc
    n = min(n, f.now.n - start) if start < f.now.n else 0
    if n:
        memcpy(p, f.now.data + start, n)
    return <int64_t>n


cdef int sync_file(Disk* d, uint32_t inode) noexcept nogil:
    cdef Inode* f = inode_at(d, inode)
    cdef int rc = begin(d, CALL_SYNC)
    if rc < 0:
        if not d.dead:
            file_lose(d, inode, -rc)
        return rc
    if d.ignores_syncs:
        return 0
    if not f.is_dir:
        file_settle(f)
    if f.is_dir or not d.loose:
        names_settle(d, inode, d.change)
    return 0


cdef int told(int* failed, int rc) noexcept nogil:
    # What a sync says: that it failed, or that an earlier one did elsewhere.
    if rc == 0:
        rc = -failed[0]
    failed[0] = 0
    return rc


cdef int sim_datasync(void* ctx, int fd) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    if not is_on(d):
        return -EIO
    if file_of(d, fd) == NULL:
        return -EBADF
    return told(&d.fds[fd - FIRST_FD].failed, sync_file(d, d.fds[fd - FIRST_FD].inode))


cdef bint failures_untold(const Disk* d) noexcept nogil:
    # Whether a sync failed of which one who has a file open has not heard yet.
    cdef uint32_t i
    for i in range(d.n_fds):
        if d.fds[i].inode and (d.fds[i].failed or d.fds[i].any_failed):
            return True
    return False


cdef int sim_sync_all(void* ctx, int fd) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef uint32_t i
    cdef int rc
    if not is_on(d):
        return -EIO
    if file_of(d, fd) == NULL:
        return -EBADF
    rc = begin(d, CALL_SYNC)
    if rc == 0:
        d.synced_at = d.env.mono
    if rc == 0 and not failures_untold(d):
        d.whole_syncs += 1
        d.writes = 0
    if rc == 0 and not d.ignores_syncs:
        for i in range(d.n_inodes):
            file_settle(&d.inodes[i])
        names_settle(d, 0, d.change)
    elif rc < 0 and not d.dead:
        for i in range(1, d.n_inodes + 1):
            file_lose(d, i, -rc)
    return told(&d.fds[fd - FIRST_FD].any_failed, rc)


cdef int sim_sync_dir(void* ctx, const char* path) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last[NAME_MAX]
    cdef uint32_t folder, inode
    if not is_on(d):
        return -EIO
    inode = lookup(d, path, &folder, last)
    if inode == 0:
        return -ENOENT
    if not inode_at(d, inode).is_dir:
        return -ENOTDIR
    return sync_file(d, inode)


cdef int sim_truncate(void* ctx, int fd, off_t n) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Inode* f
    cdef int rc
    if not is_on(d):
        return -EIO
    f = file_of(d, fd)
    if f == NULL or f.is_dir:
        return -EBADF
    rc = begin(d, CALL_TRUNCATE)
    if rc < 0:
        return rc
    file_resize(d, f, <size_t>n)
    f.time = d.env.now
    mappings_refresh(d, f)
    return 0


cdef int64_t sim_size(void* ctx, int fd) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Inode* f
    if not is_on(d):
        return -EIO
    f = file_of(d, fd)
    return <int64_t>f.now.n if f != NULL else -EBADF


cdef int64_t sim_time(void* ctx, int fd) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Inode* f
    if not is_on(d):
        return -EIO
    f = file_of(d, fd)
    return f.time if f != NULL else -EBADF


cdef int sim_identity(void* ctx, int fd, uint64_t* out) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    if not is_on(d):
        return -EIO
    if file_of(d, fd) == NULL:
        return -EBADF
    out[0] = d.fds[fd - FIRST_FD].inode
    return 0


cdef int sim_set_time(void* ctx, int fd, int64_t time) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Inode* f
    if not is_on(d):
        return -EIO
    f = file_of(d, fd)
    if f == NULL:
        return -EBADF
    f.time = time
    return 0


cdef int sim_direct(void* ctx, int fd, bint on) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    if not is_on(d):
        return -EIO
    if file_of(d, fd) == NULL:
        return -EBADF
    d.fds[fd - FIRST_FD].direct = on
    return 0


cdef int sim_rename(void* ctx, const char* a, const char* b) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last_a[NAME_MAX]
    cdef char last_b[NAME_MAX]
    cdef uint32_t folder_a, folder_b, inode, over
    cdef int rc
    if not is_on(d):
        return -EIO
    inode = lookup(d, a, &folder_a, last_a)
    over = lookup(d, b, &folder_b, last_b)
    if inode == 0 or folder_b == 0:
        return -ENOENT
    if over and inode_at(d, over).is_dir:
        if not inode_at(d, inode).is_dir:
            return -EISDIR
        if not empty(d, over):
            return -ENOTEMPTY
    rc = begin(d, CALL_RENAME)
    if rc < 0:
        return rc
    d.change += 1
    name_set(d, folder_a, last_a, 0)
    name_set(d, folder_b, last_b, inode)
    return 0


cdef bint empty(Disk* d, uint32_t folder) noexcept nogil:
    cdef uint32_t i
    for i in range(d.now.n):
        if d.now.a[i].folder == folder:
            return False
    return True


cdef int sim_unlink(void* ctx, const char* path) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last[NAME_MAX]
    cdef uint32_t folder, inode
    cdef int rc
    if not is_on(d):
        return -EIO
    inode = lookup(d, path, &folder, last)
    if inode == 0:
        return -ENOENT
    if inode_at(d, inode).is_dir:
        return -EISDIR
    rc = begin(d, CALL_UNLINK)
    if rc < 0:
        return rc
    d.change += 1
    name_set(d, folder, last, 0)
    return 0


cdef int sim_mkdir(void* ctx, const char* path, int mode) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last[NAME_MAX]
    cdef uint32_t folder
    cdef int rc
    if not is_on(d):
        return -EIO
    if lookup(d, path, &folder, last):
        return -EEXIST
    if folder == 0:
        return -ENOENT
    rc = begin(d, CALL_MKDIR)
    if rc < 0:
        return rc
    d.change += 1
    name_set(d, folder, last, inode_new(d, True))
    return 0


cdef int sim_rmdir(void* ctx, const char* path) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last[NAME_MAX]
    cdef uint32_t folder, inode
    cdef int rc
    if not is_on(d):
        return -EIO
    inode = lookup(d, path, &folder, last)
    if inode == 0:
        return -ENOENT
    if not inode_at(d, inode).is_dir:
        return -ENOTDIR
    if not empty(d, inode):
        return -ENOTEMPTY
    rc = begin(d, CALL_UNLINK)
    if rc < 0:
        return rc
    d.change += 1
    name_set(d, folder, last, 0)
    return 0


cdef int sim_is_dir(void* ctx, const char* path) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last[NAME_MAX]
    cdef uint32_t folder, inode
    if not is_on(d):
        return 0
    inode = lookup(d, path, &folder, last)
    return inode != 0 and inode_at(d, inode).is_dir


cdef int sim_names(void* ctx, const char* path, Bytes* names) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef char last[NAME_MAX]
    cdef uint32_t folder, inode, i
    if not is_on(d):
        return -EIO
    inode = lookup(d, path, &folder, last)
    if inode == 0:
        return -ENOENT
    if not inode_at(d, inode).is_dir:
        return -ENOTDIR
    for i in range(d.now.n):
        if d.now.a[i].folder == inode and bytes_add(names, d.now.a[i].text, strlen(d.now.a[i].text) + 1) < 0:
            fatal("no memory")
    return 0


# ---- mappings: copies in memory ------------------------------------------------------------------------------------

cdef int sim_map(void* ctx, int fd, size_t n, bint own, uint8_t** out) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Inode* f = NULL
    cdef Mapping* more
    cdef uint8_t* p
    out[0] = NULL
    if not is_on(d):
        return -EIO
    if fd >= 0:
        f = file_of(d, fd)
        if f == NULL:
            return -EBADF
    if n == 0:
        return -EINVAL
    p = <uint8_t*>pages_new(n)
    if d.n_maps == d.cap_maps:
        more = <Mapping*>realloc(d.maps, (<size_t>d.cap_maps * 2 + 16) * sizeof(Mapping))
        if more == NULL:
            fatal("no memory")
        d.maps = more
        d.cap_maps = d.cap_maps * 2 + 16
    d.maps[d.n_maps].p = p
    d.maps[d.n_maps].n = n
    d.maps[d.n_maps].inode = d.fds[fd - FIRST_FD].inode if f != NULL else 0
    d.maps[d.n_maps].own = own
    d.n_maps += 1
    if f != NULL and min(n, f.now.n):
        memcpy(p, f.now.data, min(n, f.now.n))
    out[0] = p
    return 0


cdef int sim_map_over(void* ctx, uint8_t* p, int fd, size_t n) noexcept nogil:
    cdef int64_t rc = sim_pread(ctx, fd, p, n, 0)
    return <int>min(rc, <int64_t>0)


cdef void sim_unmap(void* ctx, uint8_t* p, size_t n) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef uint32_t i
    for i in range(d.n_maps):
        if d.maps[i].p == p:
            if d.maps[i].n != n:
                fatal("a mapping is ended in parts")
            d.n_maps -= 1
            d.maps[i] = d.maps[d.n_maps]
            break
    pages_free(p, n)


cdef void sim_cool(void* ctx, uint8_t* p, size_t n) noexcept nogil:
    pass


cdef bint sim_resident(void* ctx, const uint8_t* p, size_t n) noexcept nogil:
    # With threads something may have to be fetched.
    cdef Disk* d = <Disk*>ctx
    return not d.n_turns or below(d, 2)


cdef void sim_warm(void* ctx, const uint8_t* p, size_t n) noexcept nogil:
    turn_point(<Disk*>ctx)
