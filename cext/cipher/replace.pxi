# A file that a copy under another key replaces.
#
# Of a block two names change. The copy waits as X.blk.new, its key as X.key.redo: once the latter name is on disk the step is
# taken, and a start finishes it. The block's name changes first, so a copy that still waits belongs to the key that does.

cdef int dir_sync_of(FileOps* f, const char* path) noexcept nogil:
    cdef char dir[PATH_ROOM]
    cdef const char* end = strrchr(path, c'/')
    if end == NULL:
        return -EINVAL
    snprintf(dir, sizeof(dir), "%.*s", <int>(end - path), path)
    return f.sync_dir(f.ctx, dir)


cdef int redo_note(Encrypted* e, const char* copy, const char* path) noexcept nogil:
    # The copy as X.blk.new, and its key's name on disk: from here on the step is taken. 0 | -errno
    cdef FileOps* f = e.inner
    cdef char waits[PATH_ROOM]
    cdef char temp[PATH_ROOM]
    cdef char redo[PATH_ROOM]
    cdef int rc = 0
    snprintf(waits, sizeof(waits), "%s.new", path)
    key_path(path, b".tmp", temp)
    key_path(path, b".redo", redo)
    if strcmp(copy, waits):
        rc = f.rename(f.ctx, copy, waits)
    rc = dir_sync_of(f, path) if rc == 0 else rc
    rc = f.rename(f.ctx, temp, redo) if rc == 0 else rc
    return dir_sync_of(f, path) if rc == 0 else rc


cdef int redo_drop(Encrypted* e, const char* path, int rc) noexcept nogil:
    # A step that could not be taken must not be taken by a start: by then the old file may have more. Where that is not known
    # to be on disk the next write replaces the file in any case. rc
    cdef FileOps* f = e.inner
    cdef FileState* s
    cdef char name[PATH_ROOM]
    key_path(path, b".redo", name)
    f.unlink(f.ctx, name)
    snprintf(name, sizeof(name), "%s.new", path)
    f.unlink(f.ctx, name)
    if dir_sync_of(f, path) < 0:
        e.system.lock(e.system.ctx, &e.mutex)
        s = state_find(e, path)
        if s != NULL:
            s.ours = False
        e.system.unlock(e.system.ctx, &e.mutex)
    return rc


cdef FileState* place_begin(Encrypted* e, const char* path, FileState* t) noexcept nogil:
    # t is about to get the name of this file: who opens it from now on gets the one or the other. What is there, held; NULL:
    # no memory
    cdef FileState* s
    e.system.lock(e.system.ctx, &e.mutex)
    s = state_find(e, path)
    if s != NULL:
        state_hold(e, s)
    else:
        s = state_new(e, path, t.form)
    if s != NULL:
        s.heir = t
    e.system.unlock(e.system.ctx, &e.mutex)
    return s


cdef void place_end(Encrypted* e, const char* path, FileState* s, FileState* t, bint placed, bint follow) noexcept nogil:
    e.system.lock(e.system.ctx, &e.mutex)
    s.heir = NULL
    e.places += 1
    if placed and follow:
        state_hold(e, t)
        s.copy = t
    if placed or s.id == 0:
        state_unname(e, s)
    if placed:
        state_name(e, t, path)
    state_let(e, s)
    e.system.unlock(e.system.ctx, &e.mutex)


cdef int file_place(Encrypted* e, const char* copy, const char* path, FileState* t, bint follow) noexcept nogil:
    # The copy, whose state is held, takes the name of a file. follow: who reads that goes on in the copy. 0 | -errno
    cdef FileOps* f = e.inner
    cdef int was = encrypted_open(&e.ops, path, O_RDONLY, 0)    # so that its identity is known
    cdef FileState* s = place_begin(e, path, t)
    cdef int rc = -ENOMEM
    if s != NULL:
        rc = f.rename(f.ctx, copy, path)
        place_end(e, path, s, t, rc == 0, follow)
    if was >= 0:
        encrypted_close(&e.ops, was)
    return rc


cdef int block_place(Encrypted* e, const char* copy, const char* path, FileState* t, bint follow) noexcept nogil:
    # The same of a block, where the copy's key is X.key.tmp.
    cdef FileOps* f = e.inner
    cdef char key[PATH_ROOM]
    cdef char waits[PATH_ROOM]
    cdef char redo[PATH_ROOM]
    cdef int rc = redo_note(e, copy, path)
    snprintf(waits, sizeof(waits), "%s.new", path)
    rc = file_place(e, waits, path, t, follow) if rc == 0 else rc
    if rc < 0:
        return redo_drop(e, path, rc)
    key_path(path, b"", key)
    key_path(path, b".redo", redo)
    # Where the key does not get its name a start gives it that; until then its state stays known.
    e.system.lock(e.system.ctx, &e.mutex)
    state_hold(e, t)
    e.system.unlock(e.system.ctx, &e.mutex)
    if dir_sync_of(f, path) == 0 and f.rename(f.ctx, redo, key) == 0:
        dir_sync_of(f, path)
        e.system.lock(e.system.ctx, &e.mutex)
        state_let(e, t)
        e.system.unlock(e.system.ctx, &e.mutex)
    return 0


cdef FileState* copy_begin(Encrypted* e, const char* path, FileForm form, const char* copy, int* fd) noexcept nogil:
    # A copy under a new key, without a byte of its text. Its state, held, and a descriptor | NULL, and -errno
    cdef FileOps* f = e.inner
    cdef uint8_t head[SHEET_HEAD_MAX]
    cdef FileState* t
    cdef CryptKey key
    cdef uint64_t id = 0
    cdef int64_t rc
    if form == FORM_BLOCK:
        rc = key_make(e, path, b".tmp", &key)
    else:
        rc = sheet_new(e, path, &key, head)
    fd[0] = file_new(f, copy) if rc == 0 else <int>rc
    if fd[0] < 0:
        return NULL
    rc = f.identity(f.ctx, fd[0], &id)
    if rc == 0 and form == FORM_SHEET:
        rc = f.pwrite(f.ctx, fd[0], head, sheet_head(&key), 0)
    e.system.lock(e.system.ctx, &e.mutex)
    state_forget(e, copy)
    t = state_new(e, copy, form) if rc >= 0 else NULL
    if t != NULL:
        t.id = id
        t.key = key
        t.keyed = True
        t.ours = True
    e.system.unlock(e.system.ctx, &e.mutex)
    if t == NULL:
        f.close(f.ctx, fd[0])
        fd[0] = <int>rc if rc < 0 else -ENOMEM
    return t


cdef int64_t text_whole(Encrypted* e, const OpenFile* o, uint64_t least, uint8_t** out) noexcept nogil:
    # The whole text of a file, in memory of at least so many bytes and one. Its bytes | -errno
    cdef FileOps* f = e.inner
    cdef uint64_t head = head_of(o.state)
    cdef int64_t had = f.size(f.ctx, o.real), rc = 0
    out[0] = NULL
    if had < 0:
        return had
    had = max(had - <int64_t>head, <int64_t>0)
    out[0] = <uint8_t*>pages_new(max(<uint64_t>had, least) + 1)
    if out[0] == NULL:
        return -ENOMEM
    if had and o.state.keyed:
        rc = text_get(e, o.real, &o.state.key, head, out[0], <size_t>had, 0)
    if rc < 0:
        pages_free(out[0], max(<uint64_t>had, least) + 1)
        out[0] = NULL
        return rc
    return had


cdef int file_renew(Encrypted* e, OpenFile* o, const uint8_t* p, size_t n, uint64_t at) noexcept nogil:
    # Puts n bytes at `at` of the text, all under a new key. 0 | -errno
    cdef FileOps* f = e.inner
    cdef FileState* s = o.state
    cdef FileState* t
    cdef char path[PATH_ROOM]
    cdef char copy[PATH_ROOM + 8]
    cdef uint64_t total
    cdef uint8_t* text
    cdef int64_t rc = text_whole(e, o, at + n, &text)
    cdef int fd
    if rc < 0:
        return <int>rc
    total = max(<uint64_t>rc, at + n)
    if n:
        memcpy(text + at, p, n)
    state_path(e, s, path)
    snprintf(copy, sizeof(copy), "%s.new", path)
    t = copy_begin(e, path, s.form, copy, &fd)
    rc = fd
    if t != NULL:
        t.high = total
        rc = text_put(e, fd, &t.key, head_of(t), text, total, 0)
        rc = f.datasync(f.ctx, fd) if rc >= 0 else rc
        if rc >= 0 and s.form == FORM_BLOCK:
            rc = block_place(e, copy, path, t, True)
        elif rc >= 0:
            rc = file_place(e, copy, path, t, True)
            rc = dir_sync_of(f, path) if rc == 0 else rc
    pages_free(text, total + 1)
    if rc < 0:
        if t != NULL:
            f.close(f.ctx, fd)
            e.system.lock(e.system.ctx, &e.mutex)
            state_let(e, t)
            e.system.unlock(e.system.ctx, &e.mutex)
        return <int>rc
    e.system.lock(e.system.ctx, &e.mutex)
    o.state = t
    state_let(e, s)
    e.system.unlock(e.system.ctx, &e.mutex)
    if o.real != o.fd:
        f.close(f.ctx, o.real)
    o.real = fd
    return 0


cdef int redo_finish(Encrypted* e, const char* dir, const char* name) noexcept nogil:
    # X.key.redo: the copy takes the block's name, if it has not yet, then this one the key's. 0 | -errno
    cdef FileOps* f = e.inner
    cdef char block[PATH_ROOM]
    cdef char copy[PATH_ROOM + 8]
    cdef char redo[PATH_ROOM]
    cdef char key[PATH_ROOM]
    cdef int n = <int>(strlen(name) - strlen(b".key.redo"))
    cdef int rc
    if (snprintf(redo, sizeof(redo), "%s/%s", dir, name) >= <int>sizeof(redo)
            or snprintf(block, sizeof(block), "%s/%.*s.blk", dir, n, name) >= <int>sizeof(block)
            or snprintf(key, sizeof(key), "%s/%.*s.key", dir, n, name) >= <int>sizeof(key)):
        return -ENAMETOOLONG
    snprintf(copy, sizeof(copy), "%s.new", block)
    rc = f.rename(f.ctx, copy, block)
    if rc == 0 or rc == -ENOENT:
        rc = f.sync_dir(f.ctx, dir)
    rc = f.rename(f.ctx, redo, key) if rc == 0 else rc
    return f.sync_dir(f.ctx, dir) if rc == 0 else rc


cdef int redos_finish(Encrypted* e, const char* stream, const char* folder) noexcept nogil:
    # In one folder of the stream. 0 | -errno
    cdef FileOps* f = e.inner
    cdef char dir[PATH_ROOM]
    cdef Bytes names
    cdef const char* name
    cdef int rc = 0
    snprintf(dir, sizeof(dir), "%s/%s", stream, folder)
    if not f.is_dir(f.ctx, dir):
        return 0
    memset(&names, 0, sizeof(names))
    rc = min(f.names(f.ctx, dir, &names), 0)
    name = name_after(&names, NULL)
    while rc == 0 and name != NULL:
        if path_ends(name, strlen(name), b".key.redo"):
            rc = redo_finish(e, dir, name)
        name = name_after(&names, name)
    bytes_free(&names)
    return rc


cdef uint64_t last_block(const Bytes* names) noexcept nogil:
    # Its number, 0: there is none.
    cdef const char* name = name_after(names, NULL)
    cdef uint64_t last = 0, n
    cdef size_t i
    while name != NULL:
        n = 0
        i = 0
        while c'0' <= name[i] <= c'9' and i < 18:
            n = n * 10 + <uint64_t>(name[i] - c'0')
            i += 1
        if i and strcmp(name + i, b".blk") == 0:
            last = max(last, n)
        name = name_after(names, name)
    return last


cdef int keyless_aside(Encrypted* e, const char* stream) noexcept nogil:
    # Of the last block a power cut may take the key, whose name is on disk before the first ack of what is in the block. What
    # nobody can read any more is put aside. 0 | -errno
    cdef FileOps* f = e.inner
    cdef char dir[PATH_ROOM]
    cdef char block[PATH_ROOM + 32]
    cdef char aside[PATH_ROOM + 48]
    cdef CryptKey key
    cdef Bytes names
    cdef uint64_t last
    cdef bint old
    cdef int rc
    snprintf(dir, sizeof(dir), "%s/msgs", stream)
    if not f.is_dir(f.ctx, dir):
        return 0
    memset(&names, 0, sizeof(names))
    rc = min(f.names(f.ctx, dir, &names), 0)
    last = last_block(&names)
    bytes_free(&names)
    if rc < 0 or last == 0:
        return rc
    snprintf(block, sizeof(block), "%s/%llu.blk", dir, <unsigned long long>last)
    if key_read(e, block, b"", &key, &old) != -ENOKEY:
        return 0
    rc = blank_at(e, block)
    if rc:
        return min(rc, 0)
    snprintf(aside, sizeof(aside), "%s/damaged-%llu.blk", dir, <unsigned long long>last)
    rc = f.rename(f.ctx, block, aside)
    return f.sync_dir(f.ctx, dir) if rc == 0 else rc


cdef int is_old(Encrypted* e, const char* path, FileForm form) noexcept nogil:
    # Whether a file is in clear, or its key is not of what the server has now: 1, 0 or -errno
    cdef FileOps* f = e.inner
    cdef CryptKey key
    cdef bint old = False
    cdef int fd, rc
    if form == FORM_BLOCK:
        rc = key_read(e, path, b"", &key, &old)
        if (rc == -ENOKEY or rc == -EKEYREJECTED) and (blank_at(e, path) == 1 or key_damaged(e, path)):
            return 0            # who opens the block deals with that
        return 1 if rc == -ENOKEY else rc if rc < 0 else old
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd < 0:
        return fd
    rc = sheet_read(e, fd, path, &key, &old)
    f.close(f.ctx, fd)
    return rc if rc <= 0 else old


cdef int file_convert(Encrypted* e, const char* dir, const char* name) noexcept nogil:
    # An old file is replaced by a copy under a new key. 0 | -errno
    cdef char path[PATH_ROOM]
    cdef FileForm form
    cdef int fd, rc
    if snprintf(path, sizeof(path) - 32, "%s/%s", dir, name) >= <int>sizeof(path) - 32:
        return -ENAMETOOLONG
    form = form_of(path)
    if form == FORM_CLEAR or form == FORM_SEALED or path_ends(path, strlen(path), b".tmp"):
        return 0
    rc = is_old(e, path, form)
    if rc <= 0:
        return rc if not is_aside(path) else 0      # nobody reads that one any more
    fd = encrypted_open(&e.ops, path, O_RDWR, 0)
    if fd < 0:
        return fd if not is_aside(path) else 0
    rc = 0
    if not open_find(e, fd).state.ours:         # a blank block was given a key by that
        rc = file_renew(e, open_find(e, fd), NULL, 0, 0)
    encrypted_close(&e.ops, fd)
    return rc


cdef int files_convert(Encrypted* e, const char* dir) noexcept nogil:
    # Those in one folder. 0 | -errno
    cdef FileOps* f = e.inner
    cdef Bytes names
    cdef const char* name
    cdef int rc
    if not f.is_dir(f.ctx, dir):
        return 0
    memset(&names, 0, sizeof(names))
    rc = min(f.names(f.ctx, dir, &names), 0)
    name = name_after(&names, NULL)
    while rc == 0 and name != NULL:
        rc = file_convert(e, dir, name)
        name = name_after(&names, name)
    bytes_free(&names)
    return rc


cdef int encrypted_prepare(void* ctx, const char* dir) noexcept nogil:
    # Blocks change before the stream's own key does, so a start after a crash goes on.
    cdef Encrypted* e = <Encrypted*>ctx
    cdef char folder[PATH_ROOM]
    cdef int rc
    e.system.lock(e.system.ctx, &e.mutex)
    states_drop(e, dir)         # it may be another folder than the one of that name before
    e.system.unlock(e.system.ctx, &e.mutex)
    rc = redos_finish(e, dir, b"msgs")
    if rc == 0 and not is_plain(e, dir):
        rc = keyless_aside(e, dir)
    rc = redos_finish(e, dir, b"__msgs__") if rc == 0 else rc
    rc = redos_finish(e, dir, b"__new_msgs__") if rc == 0 else rc
    snprintf(folder, sizeof(folder), "%s/msgs", dir)
    rc = files_convert(e, folder) if rc == 0 else rc
    return files_convert(e, dir) if rc == 0 else rc
