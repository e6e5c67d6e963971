# Descriptors, and what is known of the files behind them.

cdef int key_found(Encrypted* e, const char* path, int fd, FileState* s) noexcept nogil:
    # What its key file, or the head of the file, says of a file that is there, into s. 0 | -errno
    cdef bint old
    cdef int rc
    s.high = UINT64_MAX
    if s.form == FORM_SHEET:
        rc = sheet_read(e, fd, path, &s.key, &old)
        s.keyed = rc == 1
        return min(rc, 0)
    s.keyed = True
    rc = key_read(e, path, key_suffix(path), &s.key, &old)
    if rc == 0 or rc != -ENOKEY and rc != -EKEYREJECTED:
        return rc
    if is_blank(e, fd) == 1:        # only a start meets one: a crash came between the names of both
        rc = key_give(e, path, &s.key)
        s.ours = rc == 0
        s.high = 0
        return rc
    if rc == -ENOKEY and block_plain(e, path):
        s.key.kind = CIPHER_NONE
        return 0
    return -EKEYREJECTED            # prepare has seen that the server has the right key


cdef bint has_opened(Encrypted* e, const char* dir, const char* block, uint32_t* others) noexcept nogil:
    # Whether the key of another block in the folder opens; others: there are so many that were looked at.
    cdef FileOps* f = e.inner
    cdef char path[PATH_ROOM]
    cdef Bytes names
    cdef const char* name
    cdef CryptKey key
    cdef bint old, opened = False
    memset(&names, 0, sizeof(names))
    others[0] = 0
    if f.names(f.ctx, dir, &names) >= 0:
        name = name_after(&names, NULL)
        while not opened and name != NULL:
            if (path_ends(name, strlen(name), b".blk") and not is_aside(name) and strcmp(name, block_name(block))
                    and snprintf(path, sizeof(path) - 32, "%s/%s", dir, name) < <int>sizeof(path) - 32):
                others[0] += 1
                opened = key_read(e, path, b"", &key, &old) == 0
            name = name_after(&names, name)
    bytes_free(&names)
    return opened


cdef bint key_damaged(Encrypted* e, const char* block) noexcept nogil:
    # Of a block whose key is not there or does not open: whether that file is damaged, rather than the server's key another one.
    # The stream's own key opens, and so does one of its other blocks, if it has any.
    cdef char dir[PATH_ROOM]
    cdef char index[PATH_ROOM + 16]
    cdef size_t end = strlen(block)
    cdef CryptKey key
    cdef uint32_t others
    part_of(block, &end)
    snprintf(dir, sizeof(dir), "%.*s", <int>end, block)
    snprintf(index, sizeof(index), "%s/index.db", dir)
    return whole_key(e, index, &key) == 0 and (has_opened(e, dir, block, &others) or others == 0)


cdef bint block_plain(Encrypted* e, const char* path) noexcept nogil:
    # Whether a block without a key is of a stream that may have such.
    cdef char dir[PATH_ROOM]
    cdef size_t end = strlen(path)
    part_of(path, &end)
    part_of(path, &end)
    snprintf(dir, sizeof(dir), "%.*s", <int>end, path)
    return is_plain(e, dir)


cdef FileState* state_at(Encrypted* e, const char* path, uint64_t id, uint64_t places, bint* strange) noexcept nogil:
    # With the mutex: what is known of the file of that name and identity, held. strange: another one has the name by now.
    # places: as they were before the file was opened
    cdef FileState* s = state_find(e, path)
    strange[0] = False
    if s != NULL and s.id != id:
        if s.heir == NULL and e.places == places:       # the folder was replaced, which happens without us
            state_lost(e, s)
            return NULL
        strange[0] = s.heir == NULL or s.heir.id != id
        s = s.heir if not strange[0] else NULL
    if s != NULL:
        state_hold(e, s)
    return s


cdef int state_open(Encrypted* e, const char* path, int fd, FileForm form, uint64_t places, FileState** out) noexcept nogil:
    # What is known of an open file, held. 0; 1: its name passed to another one meanwhile; -errno
    cdef FileOps* f = e.inner
    cdef FileState found
    cdef uint64_t id = 0
    cdef bint strange
    cdef int rc = f.identity(f.ctx, fd, &id)
    if rc < 0:
        return rc
    e.system.lock(e.system.ctx, &e.mutex)
    out[0] = state_at(e, path, id, places, &strange)
    e.system.unlock(e.system.ctx, &e.mutex)
    if out[0] != NULL or strange:
        return strange
    memset(&found, 0, sizeof(found))
    found.form = form
    rc = key_found(e, path, fd, &found)
    if rc < 0:
        return rc
    e.system.lock(e.system.ctx, &e.mutex)
    if e.places != places:
        rc = 1
    elif state_find(e, path) != NULL:
        out[0] = state_at(e, path, id, places, &strange)
        rc = out[0] == NULL
    else:
        out[0] = state_new(e, path, form)
        rc = 0 if out[0] != NULL else -ENOMEM
        if rc == 0:
            out[0].id = id
            out[0].key = found.key
            out[0].keyed = found.keyed
            out[0].ours = found.ours
            out[0].high = found.high
    e.system.unlock(e.system.ctx, &e.mutex)
    return rc


cdef int open_add(Encrypted* e, int fd, FileState* s, Whole* whole) noexcept nogil:
    # With the mutex: one of both is the descriptor's from now on. 0, or -ENOMEM: s is let go
    cdef OpenFile** opens = e.opens
    cdef uint32_t n = e.n_opens
    cdef OpenFile* o = <OpenFile*>calloc(1, sizeof(OpenFile))
    if o != NULL and <uint32_t>fd >= n:
        n = (<uint32_t>fd + 1) * 2
        opens = <OpenFile**>realloc(e.opens, n * sizeof(void*))
        if opens != NULL:
            memset(opens + e.n_opens, 0, (n - e.n_opens) * sizeof(void*))
            e.opens = opens
            e.n_opens = n
    if o == NULL or opens == NULL:
        free(o)
        if s != NULL:
            state_let(e, s)
        return -ENOMEM
    o.fd = fd
    o.real = fd
    o.state = s
    o.whole = whole
    e.opens[fd] = o
    return 0


cdef int open_there(Encrypted* e, const char* path, int flags, int mode, FileForm form) noexcept nogil:
    # A file that is there. A descriptor | -errno
    cdef FileOps* f = e.inner
    cdef FileState* s = NULL
    cdef uint64_t places
    cdef int fd, rc
    for _ in range(OPEN_TRIES):
        e.system.lock(e.system.ctx, &e.mutex)
        places = e.places
        e.system.unlock(e.system.ctx, &e.mutex)
        fd = f.open(f.ctx, path, flags & ~(O_CREAT | O_TRUNC), mode)
        if fd < 0:
            return fd
        rc = state_open(e, path, fd, form, places, &s)
        if rc == 0:
            e.system.lock(e.system.ctx, &e.mutex)
            rc = open_add(e, fd, s, NULL)
            e.system.unlock(e.system.ctx, &e.mutex)
        if rc == 0:
            return fd
        f.close(f.ctx, fd)
        if rc < 0:
            return rc
    return -EAGAIN


cdef int open_new(Encrypted* e, const char* path, int flags, int mode, FileForm form) noexcept nogil:
    # A file without a byte, under a new key. A descriptor | -errno
    cdef FileOps* f = e.inner
    cdef FileState* s
    cdef CryptKey key
    cdef uint64_t id = 0
    cdef bint copies
    cdef int fd, rc = 0
    memset(&key, 0, sizeof(key))
    if form == FORM_BLOCK:
        copies = path_ends(path, strlen(path), b".tmp")
        rc = key_make(e, path, b".tmp", &key) if copies else key_give(e, path, &key)
    fd = f.open(f.ctx, path, flags, mode) if rc == 0 else rc
    if fd < 0:
        return fd
    rc = f.identity(f.ctx, fd, &id)
    e.system.lock(e.system.ctx, &e.mutex)
    state_forget(e, path)
    e.places += 1
    s = state_new(e, path, form) if rc == 0 else NULL
    if s != NULL:
        s.id = id
        s.key = key
        s.keyed = form == FORM_BLOCK
        s.ours = True
        rc = open_add(e, fd, s, NULL)
    e.system.unlock(e.system.ctx, &e.mutex)
    if s == NULL or rc < 0:
        f.close(f.ctx, fd)
        return rc if rc < 0 else -ENOMEM
    return fd


cdef FileState* newest_copy(Encrypted* e, const OpenFile* o, char* path) noexcept nogil:
    # The file that copies left in the place of the one that was opened, held, and its path; NULL: that one still, or none has
    # its name any more.
    cdef FileState* t = o.state
    e.system.lock(e.system.ctx, &e.mutex)
    while t.copy != NULL:
        t = t.copy
    if t == o.state or t.path[0] == 0:
        t = NULL
    else:
        state_hold(e, t)
        snprintf(path, PATH_ROOM, "%s", t.path)
    e.system.unlock(e.system.ctx, &e.mutex)
    return t


cdef int open_fresh(Encrypted* e, OpenFile* o) noexcept nogil:
    # Where a copy took the file's place since: that. 0 | -errno
    cdef FileOps* f = e.inner
    cdef char path[PATH_ROOM]
    cdef FileState* t
    cdef FileState* drop
    cdef uint64_t id = 0
    cdef int fd
    if o.state.copy == NULL:
        return 0
    for _ in range(OPEN_TRIES):
        t = newest_copy(e, o, path)
        if t == NULL:
            return 0
        fd = f.open(f.ctx, path, O_RDWR, 0)
        if fd >= 0 and f.identity(f.ctx, fd, &id) < 0:
            id = 0
        drop = t
        if fd >= 0 and id == t.id:
            drop = o.state
        e.system.lock(e.system.ctx, &e.mutex)
        if drop != t:
            o.state = t
        state_let(e, drop)
        e.system.unlock(e.system.ctx, &e.mutex)
        if drop != t:
            if o.real != o.fd:
                f.close(f.ctx, o.real)
            o.real = fd
            return 0
        if fd >= 0:
            f.close(f.ctx, fd)
        elif fd != -ENOENT:
            return fd
    return -EAGAIN
