# What a journal holds is brought into its files: at a start, after a sync that failed, and by the tools.
#
# Each write stands in its file already, but for what a power cut took: so doing it again changes nothing else, and being
# broken off in the middle of it does no harm. A file that is not there was removed, and is not made again.

cdef enum:
    ASIDE_MAX = 4                # segments that stay aside, damaged or outdated; the oldest goes for one more
    ASIDE_N = 5

cdef const char* ASIDE = "kept-"

cdef struct Redo:
    FileOps* files
    const char* root            # what the paths are below
    uint8_t* maps[2]            # the segments, in the order of their use
    uint64_t sizes[2]
    uint32_t n
    Entry* entries
    uint64_t n_entries
    uint64_t cap_entries
    JournalReport* report

cdef struct RedoKey:
    uint64_t hash               # of the path
    uint32_t at                 # in Redo.entries


cdef int compare_redo(const void* a, const void* b) noexcept nogil:
    cdef const RedoKey* x = <const RedoKey*>a
    cdef const RedoKey* y = <const RedoKey*>b
    if x.hash != y.hash:
        return 1 if x.hash > y.hash else -1
    return (x.at > y.at) - (x.at < y.at)


cdef void redo_free(Redo* d) noexcept nogil:
    cdef uint32_t i
    for i in range(d.n):
        pages_free(d.maps[i], d.sizes[i])
    free(d.entries)


cdef int redo_entries(Redo* d, const uint8_t* p, uint32_t size) noexcept nogil:
    # Those of one frame. 0 or -errno.
    cdef uint64_t at = FRAME_HEAD, n
    cdef Entry* more
    cdef Entry e
    while at < size:
        if not entry_get(p + at, size - at, &e, &n):
            d.report.damaged = True     # the checksum fits: another version's
            return 0
        at += n
        if d.n_entries == d.cap_entries:
            more = <Entry*>realloc(d.entries, (d.cap_entries * 2 + 256) * sizeof(Entry))
            if more == NULL:
                return -ENOMEM
            d.entries = more
            d.cap_entries = d.cap_entries * 2 + 256
        d.entries[d.n_entries] = e
        d.n_entries += 1
    return 0


cdef int redo_segment(Redo* d, const uint8_t* p, uint64_t n) noexcept nogil:
    # Every whole frame of one segment. What comes behind a place that is none, and is one, shows that the place was damaged.
    cdef uint64_t use, number, expected = 0, at = PAGE
    cdef uint64_t key[4]
    cdef uint64_t version = segment_begins(p, n, &use, key)
    cdef uint32_t size = 0
    cdef int rc = 0
    if version == 0:
        return 0
    if version != JOURNAL_VERSION:
        return -EPROTONOSUPPORT
    while at < n and rc == 0:
        if not frame_at(p + at, n - at, key, &size, &number) or number < expected:
            at += PAGE
            continue
        d.report.damaged = d.report.damaged or number > expected
        expected = number + 1
        d.report.frames += 1
        rc = redo_entries(d, p + at, size)
        at += page_up(size)
    return rc


cdef int redo_load(Redo* d, const char* dir) noexcept nogil:
    # The segments that there are, in the order of their use. 0 or -errno.
    cdef char path[JOURNAL_PATH + 8]
    cdef uint64_t use[2]
    cdef uint64_t key[4]
    cdef uint32_t i
    cdef int rc
    for i in range(2):
        snprintf(path, sizeof(path), "%s/%u", dir, <unsigned int>(i + 1))
        rc = file_load(d.files, path, &d.maps[d.n], &d.sizes[d.n])
        if rc < 0 and rc != -ENOENT:
            return rc
        if d.maps[d.n] == NULL:
            continue
        use[d.n] = 0
        segment_begins(d.maps[d.n], d.sizes[d.n], &use[d.n], key)
        d.report.uses[i] = use[d.n]
        d.n += 1
    if d.n == 2 and use[0] > use[1]:
        d.maps[0], d.maps[1] = d.maps[1], d.maps[0]
        d.sizes[0], d.sizes[1] = d.sizes[1], d.sizes[0]
    return 0


cdef uint64_t keys_upto(const RedoKey* keys, uint64_t n, uint64_t hash) noexcept nogil:
    # How many of the keys have that hash or a lower one.
    cdef uint64_t lo = 0, hi = n, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if keys[mid].hash <= hash:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef uint64_t forgotten_upto(const Redo* d, const RedoKey* keys, uint64_t n, Span path) noexcept nogil:
    # How many of the entries count no more for that file: it, or a directory above it, was to be forgotten behind them.
    cdef const Entry* e
    cdef uint64_t upto = 0, hash, i
    cdef uint32_t k
    for k in range(1, path.n + 1):
        if k < path.n and path.p[k] != c'/':
            continue
        hash = st_hash(0, path.p, k)
        i = keys_upto(keys, n, hash)
        while i and keys[i - 1].hash == hash and keys[i - 1].at >= upto:
            i -= 1
            e = &d.entries[keys[i].at]
            if (e.kind == ENTRY_FORGET_ALL or (e.kind == ENTRY_FORGET and k == path.n)) and span_eq(e.path, span(path.p, k)):
                upto = keys[i].at + 1
    return upto


cdef int redo_file(Redo* d, const RedoKey* keys, uint64_t n) noexcept nogil:
    # The writes of one file, in their order, then its sync. 0 or -errno.
    cdef FileOps* f = d.files
    cdef char path[2 * JOURNAL_PATH]
    cdef const Entry* e = &d.entries[keys[0].at]
    cdef uint64_t i
    cdef int64_t rc
    cdef int fd
    snprintf(path, sizeof(path), "%s/%.*s", d.root, <int>e.path.n, <const char*>e.path.p)
    fd = f.open(f.ctx, path, O_RDWR, 0)
    if fd < 0:
        return 0 if fd == -ENOENT or fd == -ENOTDIR else fd
    rc = 0
    for i in range(n):
        e = &d.entries[keys[i].at]
        if rc >= 0 and e.kind == ENTRY_WRITE:
            rc = f.pwrite(f.ctx, fd, e.data.p, e.data.n, <off_t>e.off)
            d.report.bytes += e.data.n
    rc = f.datasync(f.ctx, fd) if rc >= 0 else rc
    f.close(f.ctx, fd)
    d.report.files += 1
    return <int>min(rc, <int64_t>0)


cdef int redo_files(Redo* d) noexcept nogil:
    # 0 or -errno.
    cdef RedoKey* keys = <RedoKey*>malloc((d.n_entries + 1) * sizeof(RedoKey))
    cdef uint64_t n = d.n_entries, start = 0, end, upto
    cdef Span path
    cdef int rc = 0
    if keys == NULL:
        return -ENOMEM
    for end in range(n):
        keys[end].hash = st_hash(0, d.entries[end].path.p, d.entries[end].path.n)
        keys[end].at = <uint32_t>end
    qsort(keys, n, sizeof(RedoKey), compare_redo)
    while start < n and rc == 0:
        path = d.entries[keys[start].at].path
        end = start + 1
        while end < n and span_eq(path, d.entries[keys[end].at].path):
            end += 1
        upto = forgotten_upto(d, keys, n, path)
        while start < end and (keys[start].at < upto or d.entries[keys[start].at].kind != ENTRY_WRITE):
            start += 1
        if start < end:
            rc = redo_file(d, keys + start, end - start)
        start = end
    free(keys)
    return rc


cdef int journal_redo(FileOps* files, const char* root, const char* dir, bint look, JournalReport* report) noexcept nogil:
    # 0: all that the journal in `dir` holds is in its files below `root`, and on disk; or -errno. The journal stays. look: the
    # files stay, too.
    cdef Redo d
    cdef uint32_t i
    cdef int rc
    memset(report, 0, sizeof(JournalReport))
    memset(&d, 0, sizeof(d))
    d.files = files
    d.root = root
    d.report = report
    rc = redo_load(&d, dir)
    for i in range(d.n):
        if rc == 0:
            rc = redo_segment(&d, d.maps[i], d.sizes[i])
    rc = redo_files(&d) if rc == 0 and not look else rc
    redo_free(&d)
    return rc


cdef int segment_aside(FileOps* f, const char* dir, const char* path) noexcept nogil:
    # A segment keeps its bytes under another name, the next one of `kept-N`; of those so many stay. 0 or -errno.
    cdef Bytes names
    cdef const char* name
    cdef char aside[JOURNAL_PATH + 40]
    cdef uint64_t n, last = 0, first = UINT64_MAX, count = 0
    cdef int rc
    memset(&names, 0, sizeof(names))
    rc = f.names(f.ctx, dir, &names)
    name = name_after(&names, NULL) if rc == 0 else NULL
    while name != NULL:
        n = file_number(name + ASIDE_N, "") if strncmp(name, ASIDE, ASIDE_N) == 0 else 0
        if n:
            last = max(last, n)
            first = min(first, n)
            count += 1
        name = name_after(&names, name)
    bytes_free(&names)
    if rc == 0 and count >= ASIDE_MAX:
        snprintf(aside, sizeof(aside), "%s/%s%llu", dir, ASIDE, <unsigned long long>first)
        rc = f.unlink(f.ctx, aside)
    snprintf(aside, sizeof(aside), "%s/%s%llu", dir, ASIDE, <unsigned long long>(last + 1))
    return f.rename(f.ctx, path, aside) if rc == 0 else rc


cdef int segments_unlink(FileOps* f, const char* dir, const uint64_t* uses, bint keep) noexcept nogil:
    # Nothing in them counts any more. The older one goes first, and for good: what it holds may be forgotten by the other one.
    # keep: their bytes stay under another name. 0 or -errno.
    cdef char path[JOURNAL_PATH + 8]
    cdef uint32_t first = uses[0] > uses[1], i
    cdef int rc = 0
    for i in range(2):
        snprintf(path, sizeof(path), "%s/%u", dir, <unsigned int>((first ^ i) + 1))
        if rc == 0:
            rc = segment_aside(f, dir, path) if keep and uses[first ^ i] else f.unlink(f.ctx, path)
        rc = 0 if rc == -ENOENT else rc
        rc = f.sync_dir(f.ctx, dir) if rc == 0 else rc
        rc = 0 if rc == -ENOENT else rc
    if rc == 0:
        f.rmdir(f.ctx, dir)
    return rc


# ---- the witness: no nats-server has started on the directory since the journal was begun -----------------------------------
#
# nats-server knows nothing of the journal, and changes the files: bytes of the journal would spoil what it wrote. Before it
# opens a stream it removes the folder where it puts snapshots together, which this file is in.

cdef int witness_open(FileOps* f, const char* root, int flags) noexcept nogil:
    # 0 or -errno.
    cdef char path[JOURNAL_PATH + 64]
    cdef int fd
    snprintf(path, sizeof(path), "%s/%s/%s", root, WITNESS_DIR, WITNESS)
    fd = f.open(f.ctx, path, flags, 0o600)
    if fd >= 0:
        f.close(f.ctx, fd)
    return min(fd, 0)


cdef int witness_make(FileOps* f, const char* root) noexcept nogil:
    # 0 or -errno. The name of its folder is not synced.
    cdef char path[JOURNAL_PATH + 64]
    cdef int rc
    snprintf(path, sizeof(path), "%s/%s", root, WITNESS_DIR)
    rc = f.mkdir(f.ctx, path, 0o750)
    rc = witness_open(f, root, O_RDWR | O_CREAT) if rc == 0 or rc == -EEXIST else rc
    return f.sync_dir(f.ctx, path) if rc == 0 else rc


cdef void witness_end(FileOps* f, const char* root) noexcept nogil:
    # Where there is no journal; left behind, it does no harm.
    cdef char path[JOURNAL_PATH + 64]
    snprintf(path, sizeof(path), "%s/%s/%s", root, WITNESS_DIR, WITNESS)
    f.unlink(f.ctx, path)
    snprintf(path, sizeof(path), "%s/%s", root, WITNESS_DIR)
    f.rmdir(f.ctx, path)


# ---- of a directory that no server runs on -----------------------------------------------------------------------------------

cdef int journal_empty(FileOps* f, const char* root, bint look, JournalReport* report) noexcept nogil:
    # What it holds is brought into the files, and it goes. look: it only says what there is. 0 or -errno.
    cdef char dir[JOURNAL_PATH + 64]
    cdef int rc, witness
    memset(report, 0, sizeof(JournalReport))
    if strlen(root) >= JOURNAL_PATH - 64:
        return -ENAMETOOLONG
    snprintf(dir, sizeof(dir), "%s/%s", root, JOURNAL_DIR)
    witness = witness_open(f, root, O_RDONLY)
    if witness < 0 and witness != -ENOENT:
        return witness
    rc = journal_redo(f, root, dir, look or witness < 0, report)
    report.outdated = witness < 0 and report.frames > 0
    if rc == 0 and not look and f.is_dir(f.ctx, dir):
        rc = segments_unlink(f, dir, report.uses, report.damaged or report.outdated)
    if rc == 0 and not look:
        witness_end(f, root)
    return rc
