# The table of file operations: plain files for its users.

cdef int encrypted_open(void* ctx, const char* path, int flags, int mode) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef FileForm form = form_of(path)
    cdef int fd
    if form == FORM_CLEAR:
        return f.open(f.ctx, path, flags, mode)
    if strlen(path) + 32 > PATH_ROOM:
        return -ENAMETOOLONG
    if form == FORM_SEALED:
        return whole_open(e, path, flags, mode)
    fd = open_there(e, path, flags, mode, form) if not flags & O_TRUNC else -ENOENT
    if fd == -ENOENT and flags & O_CREAT:
        return open_new(e, path, flags, mode, form)
    return fd


cdef int encrypted_close(void* ctx, int fd) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef OpenFile* o = NULL
    e.system.lock(e.system.ctx, &e.mutex)
    if 0 <= fd < <int>e.n_opens:
        o = e.opens[fd]
        e.opens[fd] = NULL
    if o != NULL and o.state != NULL:
        state_let(e, o.state)
    e.system.unlock(e.system.ctx, &e.mutex)
    if o != NULL and o.real != fd:
        f.close(f.ctx, o.real)
    if o != NULL:
        whole_free(o.whole)
    free(o)
    return f.close(f.ctx, fd)


cdef int64_t encrypted_pwrite(void* ctx, int fd, const void* p, size_t n, off_t at) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef OpenFile* o = open_find(e, fd)
    cdef FileState* s
    cdef Whole* w = whole_find(e, fd) if o == NULL else NULL
    cdef int64_t rc
    cdef bint behind
    if w != NULL:
        return whole_write(e, w, fd, <const uint8_t*>p, n, at)
    if o == NULL:
        return f.pwrite(f.ctx, fd, p, n, at)
    if at < 0 or n > <size_t>(INT64_MAX - at):
        return -EINVAL
    rc = open_fresh(e, o)
    if rc < 0:
        return rc
    s = o.state
    if not s.keyed and s.ours:
        rc = sheet_begin(e, o)
        if rc < 0:
            return rc
    e.system.lock(e.system.ctx, &e.mutex)
    behind = s.keyed and s.ours and <uint64_t>at >= s.high
    e.system.unlock(e.system.ctx, &e.mutex)
    if behind:
        return text_append(e, o, <const uint8_t*>p, n, <uint64_t>at)
    if s.path[0] == 0:                  # no file has its name any more, so nobody will read it
        return <int64_t>n
    rc = text_same(e, o, <const uint8_t*>p, n, <uint64_t>at)
    if rc:
        return rc
    rc = file_renew(e, o, <const uint8_t*>p, n, <uint64_t>at)
    return <int64_t>n if rc == 0 else rc


cdef int64_t zeros_drop(Encrypted* e, const OpenFile* o) noexcept nogil:
    # Of a file that was written ahead, with nothing but zeros, before it had a key. Behind a text that ends within a sector they
    # would be taken for a part of it. 0 | -errno
    cdef FileOps* f = e.inner
    cdef uint64_t head = head_of(o.state)
    cdef int64_t size = f.size(f.ctx, o.real)
    return f.truncate(f.ctx, o.real, <off_t>head) if size > <int64_t>head else min(size, <int64_t>0)


cdef int64_t text_append(Encrypted* e, OpenFile* o, const uint8_t* p, size_t n, uint64_t at) noexcept nogil:
    # What stands behind all that was written with the key. n | -errno
    cdef FileOps* f = e.inner
    cdef FileState* s = o.state
    cdef uint64_t was, head = head_of(s)
    cdef int64_t rc, size
    e.system.lock(e.system.ctx, &e.mutex)
    was = s.high
    s.high = at + n                     # whether it gets there or not
    e.system.unlock(e.system.ctx, &e.mutex)
    rc = zeros_drop(e, o) if was == 0 else 0
    rc = text_put(e, o.real, &s.key, head, p, n, at) if rc == 0 else rc
    if rc == -ENOSPC or rc == -EDQUOT:
        # Of what is behind the end of the file nothing was written: where there is room again the same file goes on.
        size = f.size(f.ctx, o.real) - <int64_t>head
        e.system.lock(e.system.ctx, &e.mutex)
        if 0 <= size <= <int64_t>s.high:
            s.high = max(was, <uint64_t>size)
        e.system.unlock(e.system.ctx, &e.mutex)
    return rc


cdef int64_t text_same(Encrypted* e, OpenFile* o, const uint8_t* p, size_t n, uint64_t at) noexcept nogil:
    # Where what is written begins with what stands there, up to the end of the file, the rest goes behind that. n | -errno; 0:
    # it is something else
    cdef FileOps* f = e.inner
    cdef FileState* s = o.state
    cdef uint64_t head = head_of(s), same
    cdef int64_t rc
    cdef uint8_t* had
    if not s.keyed or not s.ours or f.size(f.ctx, o.real) != <int64_t>(head + s.high) or at >= s.high:
        return 0
    same = min(<uint64_t>n, s.high - at)
    had = <uint8_t*>malloc(same)
    if had == NULL:
        return -ENOMEM
    rc = text_get(e, o.real, &s.key, head, had, same, at)
    rc = rc if rc < 0 else rc == <int64_t>same and memcmp(had, p, same) == 0
    free(had)
    if rc <= 0:
        return rc
    if same < n:
        rc = text_append(e, o, p + same, n - same, at + same)
    else:
        # What a failed sync took for written is written again.
        rc = text_put(e, o.real, &s.key, head, p, n, at)
    return rc if rc < 0 else <int64_t>n


cdef int sheet_begin(Encrypted* e, OpenFile* o) noexcept nogil:
    # What is in front of a sheet without a byte. 0 | -errno
    cdef FileOps* f = e.inner
    cdef FileState* s = o.state
    cdef uint8_t head[SHEET_HEAD_MAX]
    cdef char path[PATH_ROOM]
    cdef CryptKey key
    cdef int64_t rc
    state_path(e, s, path)
    rc = sheet_new(e, path, &key, head)
    rc = f.pwrite(f.ctx, o.real, head, sheet_head(&key), 0) if rc == 0 else rc
    if rc < 0:
        return <int>rc
    e.system.lock(e.system.ctx, &e.mutex)
    s.key = key
    s.keyed = True
    s.high = 0
    e.system.unlock(e.system.ctx, &e.mutex)
    return 0


cdef int64_t encrypted_pread(void* ctx, int fd, void* p, size_t n, off_t at) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef OpenFile* o = open_find(e, fd)
    cdef Whole* w = whole_find(e, fd) if o == NULL else NULL
    cdef int rc
    if w != NULL and at >= 0:
        n = min(n, w.text.n - min(<size_t>at, w.text.n))
        memcpy(p, w.text.data + min(<size_t>at, w.text.n), n)
        return <int64_t>n
    if o == NULL:
        return f.pread(f.ctx, fd, p, n, at)
    if at < 0 or n > <size_t>(INT64_MAX - at):
        return -EINVAL
    rc = open_fresh(e, o)
    if rc < 0:
        return rc
    if not o.state.keyed:
        return 0
    return text_get(e, o.real, &o.state.key, head_of(o.state), <uint8_t*>p, n, <uint64_t>at)


cdef int real_of(Encrypted* e, int fd) noexcept nogil:
    # A descriptor | -errno
    cdef OpenFile* o = open_find(e, fd)
    cdef int rc = open_fresh(e, o) if o != NULL else 0
    return rc if rc < 0 else o.real if o != NULL else fd


cdef int encrypted_datasync(void* ctx, int fd) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    cdef int real = real_of(<Encrypted*>ctx, fd)
    return f.datasync(f.ctx, real) if real >= 0 else real


cdef int encrypted_sync_all(void* ctx, int fd) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    return f.sync_all(f.ctx, fd)


cdef int encrypted_truncate(void* ctx, int fd, off_t n) noexcept nogil:
    # What is written there next is written under another key: `high` stays.
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef OpenFile* o = open_find(e, fd)
    cdef int rc
    if o == NULL:
        return f.truncate(f.ctx, fd, n)
    rc = open_fresh(e, o)
    if rc < 0 or not o.state.keyed:
        return rc
    return f.truncate(f.ctx, o.real, <off_t>head_of(o.state) + n)


cdef int64_t encrypted_size(void* ctx, int fd) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef OpenFile* o = open_find(e, fd)
    cdef Whole* w = whole_find(e, fd) if o == NULL else NULL
    cdef int64_t n, head
    cdef int rc
    if w != NULL:
        return <int64_t>w.text.n
    if o == NULL:
        return f.size(f.ctx, fd)
    rc = open_fresh(e, o)
    if rc < 0:
        return rc
    head = <int64_t>head_of(o.state)
    n = f.size(f.ctx, o.real)
    return n if n < 0 else max(n - head, <int64_t>0)


cdef int64_t encrypted_time(void* ctx, int fd) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    cdef int real = real_of(<Encrypted*>ctx, fd)
    return f.time(f.ctx, real) if real >= 0 else real


cdef int encrypted_identity(void* ctx, int fd, uint64_t* out) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    cdef int real = real_of(<Encrypted*>ctx, fd)
    return f.identity(f.ctx, real, out) if real >= 0 else real


cdef int encrypted_set_time(void* ctx, int fd, int64_t time) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    cdef int real = real_of(<Encrypted*>ctx, fd)
    return f.set_time(f.ctx, real, time) if real >= 0 else real


cdef int encrypted_direct(void* ctx, int fd, bint on) noexcept nogil:
    # The zeros that fill a page would be a part of the text.
    return -EINVAL if on else 0


cdef int unread_move(Encrypted* e, const char* a, const char* b) noexcept nogil:
    # A block that cannot be opened, and its key, get other names. 0 | -errno
    cdef FileOps* f = e.inner
    cdef char key[PATH_ROOM]
    cdef char to[PATH_ROOM]
    cdef int rc = f.rename(f.ctx, a, b)
    if rc < 0:
        return rc
    key_path(a, b"", key)
    key_path(b, b"", to)
    f.rename(f.ctx, key, to)
    e.system.lock(e.system.ctx, &e.mutex)
    e.places += 1
    state_forget(e, a)
    state_forget(e, b)
    e.system.unlock(e.system.ctx, &e.mutex)
    return 0


cdef int rename_known(Encrypted* e, const char* a, const char* b, FileForm form) noexcept nogil:
    # Of files of one form. 0 | -errno
    cdef FileOps* f = e.inner
    cdef char key[PATH_ROOM]
    cdef char to[PATH_ROOM]
    cdef int fd = encrypted_open(&e.ops, a, O_RDONLY, 0)        # so that it is known
    cdef FileState* t
    cdef int rc
    if fd == -EKEYREJECTED and form == FORM_BLOCK:
        return unread_move(e, a, b)
    if fd < 0:
        return fd
    t = open_find(e, fd).state
    if form == FORM_BLOCK and path_ends(a, strlen(a), b".tmp"):
        rc = block_place(e, a, b, t, False)
    else:
        rc = file_place(e, a, b, t, False)
        if rc == 0 and form == FORM_BLOCK:
            key_path(a, b"", key)
            key_path(b, b"", to)
            f.rename(f.ctx, key, to)
    encrypted_close(&e.ops, fd)
    return rc


cdef int encrypted_rename(void* ctx, const char* a, const char* b) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef FileForm form = form_of(a)
    cdef char key[PATH_ROOM]
    cdef int rc
    if (form == FORM_BLOCK or form == FORM_SHEET) and form == form_of(b):
        return rename_known(e, a, b, form)
    rc = f.rename(f.ctx, a, b)
    if rc < 0:
        return rc
    e.system.lock(e.system.ctx, &e.mutex)
    e.places += 1
    state_forget(e, a)
    state_forget(e, b)
    if form == FORM_CLEAR:
        states_move(e, a, b)
    e.system.unlock(e.system.ctx, &e.mutex)
    if form == FORM_BLOCK:
        key_path(a, b"", key)
        f.unlink(f.ctx, key)
    return rc


cdef void states_list(Encrypted* e, Bytes* out) noexcept nogil:
    # With the mutex: without memory some are left out.
    cdef uint32_t i
    for i in range(e.states.cap):
        if e.states.keys[i] != NULL:
            bytes_add(out, &e.states.vals[i], sizeof(void*))


cdef void states_drop(Encrypted* e, const char* dir) noexcept nogil:
    # With the mutex: of what is in a folder nothing is known any more.
    cdef size_t n = strlen(dir)
    cdef FileState* s
    cdef uint64_t at = 0
    cdef Bytes found
    memset(&found, 0, sizeof(found))
    states_list(e, &found)
    while at < found.n:
        memcpy(&s, found.data + at, sizeof(s))
        at += sizeof(s)
        if strncmp(s.path, dir, n) == 0 and s.path[n] == c'/':
            state_lost(e, s)
    bytes_free(&found)


cdef void states_move(Encrypted* e, const char* a, const char* b) noexcept nogil:
    # With the mutex: a folder has another name. What had stood under that one is gone.
    cdef size_t n_a = strlen(a)
    cdef char path[PATH_ROOM]
    cdef FileState* s
    cdef uint64_t at = 0
    cdef Bytes found
    states_drop(e, b)
    memset(&found, 0, sizeof(found))
    states_list(e, &found)
    while at < found.n:
        memcpy(&s, found.data + at, sizeof(s))
        at += sizeof(s)
        if strncmp(s.path, a, n_a) == 0 and s.path[n_a] == c'/':
            snprintf(path, sizeof(path), "%s%s", b, s.path + n_a)
            state_name(e, s, path)
    bytes_free(&found)


cdef int encrypted_unlink(void* ctx, const char* path) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef char key[PATH_ROOM]
    cdef FileForm form = form_of(path)
    cdef FileState* s
    cdef int rc
    if form == FORM_CLEAR or form == FORM_SEALED:
        return f.unlink(f.ctx, path)
    e.system.lock(e.system.ctx, &e.mutex)
    s = state_find(e, path)
    if s != NULL:
        state_hold(e, s)
    e.system.unlock(e.system.ctx, &e.mutex)
    rc = f.unlink(f.ctx, path)
    e.system.lock(e.system.ctx, &e.mutex)
    e.places += 1
    if s != NULL:
        if rc == 0:
            state_unname(e, s)
        state_let(e, s)
    e.system.unlock(e.system.ctx, &e.mutex)
    if rc == 0 and form == FORM_BLOCK:
        key_path(path, key_suffix(path), key)
        f.unlink(f.ctx, key)
    return rc


cdef int encrypted_mkdir(void* ctx, const char* path, int mode) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    return f.mkdir(f.ctx, path, mode)


cdef int encrypted_rmdir(void* ctx, const char* path) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    return f.rmdir(f.ctx, path)


cdef int encrypted_sync_dir(void* ctx, const char* path) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    return f.sync_dir(f.ctx, path)


cdef int encrypted_is_dir(void* ctx, const char* path) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    return f.is_dir(f.ctx, path)


cdef int encrypted_names(void* ctx, const char* path, Bytes* names) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    return f.names(f.ctx, path, names)


cdef int encrypted_map(void* ctx, int fd, size_t n, bint own, uint8_t** out) noexcept nogil:
    # Memory of ours with the plain text.
    cdef Encrypted* e = <Encrypted*>ctx
    cdef FileOps* f = e.inner
    cdef OpenFile* o = open_find(e, fd) if fd >= 0 else NULL
    cdef uint8_t* p
    cdef int64_t rc
    if o == NULL:
        return f.map(f.ctx, fd, n, own, out)
    out[0] = NULL
    p = <uint8_t*>pages_new(n)
    if p == NULL:
        return -ENOMEM
    rc = encrypted_pread(ctx, fd, p, n, 0)
    if rc < 0:
        pages_free(p, n)
        return <int>rc
    out[0] = p
    return 0


cdef int encrypted_map_over(void* ctx, uint8_t* p, int fd, size_t n) noexcept nogil:
    return -EINVAL


cdef void encrypted_unmap(void* ctx, uint8_t* p, size_t n) noexcept nogil:
    cdef FileOps* f = (<Encrypted*>ctx).inner
    f.unmap(f.ctx, p, n)


cdef void encrypted_cool(void* ctx, uint8_t* p, size_t n) noexcept nogil:
    pass            # nothing else has these bytes


cdef bint encrypted_resident(void* ctx, const uint8_t* p, size_t n) noexcept nogil:
    return True


cdef void encrypted_warm(void* ctx, const uint8_t* p, size_t n) noexcept nogil:
    pass


cdef void table_fill(FileOps* f) noexcept nogil:
    f.open = encrypted_open
    f.close = encrypted_close
    f.pwrite = encrypted_pwrite
    f.pread = encrypted_pread
    f.datasync = encrypted_datasync
    f.sync_all = encrypted_sync_all
    f.truncate = encrypted_truncate
    f.size = encrypted_size
    f.time = encrypted_time
    f.identity = encrypted_identity
    f.set_time = encrypted_set_time
    f.direct = encrypted_direct
    f.rename = encrypted_rename
    f.unlink = encrypted_unlink
    f.mkdir = encrypted_mkdir
    f.rmdir = encrypted_rmdir
    f.sync_dir = encrypted_sync_dir
    f.is_dir = encrypted_is_dir
    f.names = encrypted_names
    f.map = encrypted_map
    f.map_over = encrypted_map_over
    f.unmap = encrypted_unmap
    f.cool = encrypted_cool
    f.resident = encrypted_resident
    f.warm = encrypted_warm
    f.once = True
    f.prepare = encrypted_prepare


cdef Encrypted* encrypted_new(FileOps* inner, System* system, CipherKind kind, Span secret, Span before) noexcept nogil:
    cdef Encrypted* e = <Encrypted*>calloc(1, sizeof(Encrypted))
    if e == NULL:
        return NULL
    mutex_init(&e.mutex)
    e.inner = inner
    e.system = system
    e.kind = kind
    table_fill(&e.ops)
    e.ops.ctx = e
    if bytes_add(&e.secret, secret.p, secret.n) < 0 or bytes_add(&e.before, before.p, before.n) < 0:
        encrypted_free(e)
        return NULL
    return e


cdef void encrypted_free(Encrypted* e) noexcept nogil:
    while not list_empty(&e.idle):
        state_lost(e, <FileState*>list_owner(list_first(&e.idle), &(<FileState*>NULL).idle))
    strmap_free(&e.states)
    free(e.opens)
    bytes_free(&e.secret)
    bytes_free(&e.before)
    mutex_free(&e.mutex)
    free(e)


cdef FileOps* encrypted_files(Encrypted* e) noexcept nogil:
    return &e.ops
