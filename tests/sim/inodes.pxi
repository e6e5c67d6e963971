# Files and directories as they are in memory and as they are on disk, and what a power cut makes of them.

cdef enum:
    SECTOR = 512
    FEW = 3                     # bytes of which chance may make zeros
    NAME_MAX = 80

cdef enum Sector:
    CLEAN = 0
    DIRTY = 1                   # written, not synced
    LOST = 2                    # a sync of it failed: what memory holds never reaches the disk by itself

cdef struct Inode:
    bint is_dir
    Bytes now                   # what is read
    Bytes disk                  # what a power cut leaves at least
    uint8_t* sectors            # of now and disk, the longer of the two
    size_t cap_sectors
    Bytes torn                  # numbers of those that the last power cut left in part, u64 each
    Bytes missing               # of those that it left as they were
    int64_t time

cdef struct Name:
    # An entry: in directory `folder`, `text` means an inode; 0: nothing.
    uint32_t folder
    uint32_t inode
    char text[NAME_MAX]
    uint32_t change             # of pending ones: halves of one change have the same number

cdef struct Names:
    Name* a
    uint32_t n
    uint32_t cap

cdef struct Mapping:
    uint8_t* p
    size_t n
    uint32_t inode
    bint own

cdef struct Open:
    uint32_t inode              # 0: closed
    bint direct
    int failed                  # errno: since it was opened a sync of its file failed elsewhere; until it is told
    int any_failed              # of any file: so long no sync of the whole file system has told it

cdef struct Disk:
    uint64_t random
    bint loose                  # only what POSIX promises of names; else as a journal has it
    bint ignores_syncs          # a disk that lies
    bint dead                   # since the power cut
    bint calm                   # while the tests look nothing fails, and it is nobody else's turn
    int64_t cut_after           # calls until then; -1: none
    int64_t room                # bytes that all files together may have
    int64_t used
    int faults[8]               # by Call: errno
    int64_t after[8]
    int64_t times[8]
    uint64_t calls
    uint64_t whole_syncs        # of the whole file system
    int64_t synced_at           # when the last of them was
    uint64_t writes             # since then
    bint doubtful               # a sync failed since the last power cut: pages that are read are not on disk
    uint32_t change
    Inode* inodes               # the first is the root; inode i is inodes[i - 1]
    uint32_t n_inodes
    uint32_t cap_inodes
    Names now
    Names disk
    Names pending               # changes of names that are not on disk, in order
    Open* fds
    uint32_t n_fds
    Mapping* maps
    uint32_t n_maps
    uint32_t cap_maps
    Env* env
    Committer* committer
    Turn turns[TURNS]
    int n_turns                 # 0: one thread only
    int turn                    # whose it is
    int holder                  # whose turn ended while it had the engine lock; -1: nobody
    uint64_t pace               # calls between two ends of turns, on average
    bint rung                   # the reactor is to look what there is
    bint leaving                # it is to end
    Cond bell                   # what it waits for


cdef uint64_t rand(Disk* d) noexcept nogil:
    return split_mix(&d.random)


cdef uint64_t below(Disk* d, uint64_t n) noexcept nogil:
    return rand(d) % n if n else 0


cdef uint64_t present_seed = 0      # told when all ends


cdef void fatal(const char* text) noexcept nogil:
    fprintf(stderr, "simulated disk, seed %llu: %s\n", <unsigned long long>present_seed, text)
    abort()


cdef Inode* inode_at(Disk* d, uint32_t i) noexcept nogil:
    return &d.inodes[i - 1]


cdef uint32_t inode_new(Disk* d, bint is_dir) noexcept nogil:
    cdef Inode* more
    if d.n_inodes == d.cap_inodes:
        more = <Inode*>realloc(d.inodes, (<size_t>d.cap_inodes * 2 + 32) * sizeof(Inode))
        if more == NULL:
            fatal("no memory")
        d.inodes = more
        d.cap_inodes = d.cap_inodes * 2 + 32
    memset(&d.inodes[d.n_inodes], 0, sizeof(Inode))
    d.inodes[d.n_inodes].is_dir = is_dir
    d.n_inodes += 1
    return d.n_inodes


# ---- bytes ----------------------------------------------------------------------------------------------------

cdef void resize(Bytes* b, size_t n) noexcept nogil:
    # Zeros behind what was there.
    if n > b.n:
        if bytes_reserve(b, n - b.n) < 0:
            fatal("no memory")
        memset(b.data + b.n, 0, n - b.n)
    b.n = n


cdef void mark(Inode* f, size_t start, size_t end) noexcept nogil:
    # The sectors of these bytes are dirty.
    cdef size_t cap = (end + SECTOR - 1) // SECTOR, i
    cdef uint8_t* more
    if cap > f.cap_sectors:
        more = <uint8_t*>realloc(f.sectors, cap * 2)
        if more == NULL:
            fatal("no memory")
        memset(more + f.cap_sectors, 0, cap * 2 - f.cap_sectors)
        f.sectors = more
        f.cap_sectors = cap * 2
    i = start // SECTOR
    while i < cap:
        f.sectors[i] = DIRTY
        i += 1


cdef void file_resize(Disk* d, Inode* f, size_t n) noexcept nogil:
    d.used += <int64_t>n - <int64_t>f.now.n
    if n < f.now.n:
        mark(f, n, max(f.now.n, f.disk.n))
    else:
        mark(f, f.now.n, n)
    resize(&f.now, n)


cdef void sector_settle(Inode* f, size_t i) noexcept nogil:
    # A dirty sector reaches the disk.
    cdef size_t start = i * SECTOR, end = min(start + SECTOR, f.now.n)
    if f.sectors[i] != DIRTY:
        return
    if start < end:
        if f.disk.n < end:
            resize(&f.disk, end)
        memcpy(f.disk.data + start, f.now.data + start, end - start)
    f.sectors[i] = CLEAN


cdef void file_settle(Inode* f) noexcept nogil:
    cdef size_t i
    for i in range(f.cap_sectors):
        sector_settle(f, i)
    resize(&f.disk, f.now.n)


cdef void file_lose(Disk* d, uint32_t inode, int error) noexcept nogil:
    # A sync failed: the system takes the pages for clean, whether they are on disk or not. Another holder of the open file
    # hears of it when it syncs.
    cdef Inode* f = inode_at(d, inode)
    cdef size_t i, start, end
    cdef uint32_t k
    cdef bint reread = below(d, 2) == 0
    d.doubtful = True
    for k in range(d.n_fds):
        d.fds[k].any_failed = error
        if d.fds[k].inode == inode:
            d.fds[k].failed = error
    for i in range(f.cap_sectors):
        if f.sectors[i] != DIRTY:
            continue
        if below(d, 2):
            sector_settle(f, i)
            continue
        f.sectors[i] = LOST
        start = i * SECTOR
        end = min(start + SECTOR, min(f.now.n, f.disk.n))
        if reread and start < end:
            memcpy(f.now.data + start, f.disk.data + start, end - start)


cdef void sector_note(Bytes* sectors, uint64_t i) noexcept nogil:
    if bytes_add(sectors, &i, 8) < 0:
        fatal("no memory")


cdef void file_cut(Disk* d, Inode* f, bint again) noexcept nogil:
    # What the power cut leaves of it: each sector that was not synced is there or not, or torn. again: what the last one
    # tore is still so.
    cdef uint64_t mood = below(d, 4)
    cdef size_t size = f.disk.n, i, start, end, n
    cdef bint kept = mood == 1 or (mood > 1 and below(d, 2))
    if not again:
        f.torn.n = 0
        f.missing.n = 0
    if kept:
        size = f.now.n
    elif mood > 1 and f.now.n > size:
        size += below(d, f.now.n - size + 1)
    resize(&f.disk, size)
    for i in range(f.cap_sectors):
        start = i * SECTOR
        end = min(start + SECTOR, min(size, f.now.n))
        if f.sectors[i] != DIRTY or start >= end:
            continue
        if mood == 0 or (mood > 1 and below(d, 2)):
            sector_note(&f.missing, i)
            continue
        n = end - start
        if mood == 3 and below(d, 5) == 0:
            n = below(d, n + 1)
            if n < end - start:
                sector_note(&f.torn if n else &f.missing, i)
        memcpy(f.disk.data + start, f.now.data + start, n)
    if f.cap_sectors:
        memset(f.sectors, 0, f.cap_sectors)
    resize(&f.now, size)
    if size:
        memcpy(f.now.data, f.disk.data, size)


# ---- names ----------------------------------------------------------------------------------------------------

cdef Name* names_find(Names* t, uint32_t folder, const char* text) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n):
        if t.a[i].folder == folder and strcmp(t.a[i].text, text) == 0:
            return &t.a[i]
    return NULL


cdef void names_push(Names* t, const Name* name) noexcept nogil:
    cdef Name* more
    if t.n == t.cap:
        more = <Name*>realloc(t.a, (<size_t>t.cap * 2 + 16) * sizeof(Name))
        if more == NULL:
            fatal("no memory")
        t.a = more
        t.cap = t.cap * 2 + 16
    t.a[t.n] = name[0]
    t.n += 1


cdef void names_apply(Names* t, const Name* change) noexcept nogil:
    cdef Name* at = names_find(t, change.folder, change.text)
    if at == NULL:
        if change.inode:
            names_push(t, change)
    elif change.inode:
        at.inode = change.inode
    else:
        t.n -= 1
        at[0] = t.a[t.n]


cdef void name_set(Disk* d, uint32_t folder, const char* text, uint32_t inode) noexcept nogil:
    # Part of the present change.
    cdef Name name
    memset(&name, 0, sizeof(name))
    name.folder = folder
    name.inode = inode
    name.change = d.change
    if strlen(text) >= NAME_MAX:
        fatal("a name is too long")
    memcpy(name.text, text, strlen(text) + 1)
    names_apply(&d.now, &name)
    names_push(&d.pending, &name)


cdef void names_settle(Disk* d, uint32_t folder, uint32_t upto) noexcept nogil:
    # Changes up to that number reach the disk; folder 0: all, else of a loose disk those in it only.
    cdef uint32_t i, n = 0
    for i in range(d.pending.n):
        if d.pending.a[i].change <= upto and (folder == 0 or not d.loose or d.pending.a[i].folder == folder):
            names_apply(&d.disk, &d.pending.a[i])
        else:
            d.pending.a[n] = d.pending.a[i]
            n += 1
    d.pending.n = n


cdef void names_cut(Disk* d) noexcept nogil:
    # A beginning of the changes is there: of all, or of a loose disk, in each directory by itself.
    cdef uint32_t i, last = d.change, first
    first = d.pending.a[0].change if d.pending.n else last
    if d.loose:
        for i in range(1, d.n_inodes + 1):
            if inode_at(d, i).is_dir:
                names_settle(d, i, first - 1 + <uint32_t>below(d, last - first + 2))
    else:
        names_settle(d, 0, first - 1 + <uint32_t>below(d, last - first + 2))
    d.pending.n = 0
    d.now.n = 0
    for i in range(d.disk.n):
        names_push(&d.now, &d.disk.a[i])


cdef void background(Disk* d) noexcept nogil:
    # Now and then something reaches the disk by itself.
    cdef uint32_t i
    cdef Inode* f
    cdef size_t k
    if below(d, 12):
        return
    for i in range(d.n_inodes):
        f = &d.inodes[i]
        if f.is_dir or below(d, 2):
            continue
        for k in range(f.cap_sectors):
            if f.sectors[k] == DIRTY and below(d, 2):
                sector_settle(f, k)
    if below(d, 3) == 0 and not d.loose:
        names_settle(d, 0, d.change)


cdef void killed(Disk* d) noexcept nogil:
    # The process is gone; what it wrote is there, synced or not.
    d.dead = False
    d.cut_after = -1
    d.room = INT64_MAX
    memset(d.times, 0, sizeof(d.times))
    d.n_fds = 0


cdef void power_cut(Disk* d, bint again) noexcept nogil:
    # What is left is what everybody sees from now on.
    cdef uint32_t i
    killed(d)
    d.doubtful = False
    names_cut(d)
    d.used = 0
    for i in range(d.n_inodes):
        if not d.inodes[i].is_dir:
            file_cut(d, &d.inodes[i], again)
            d.used += <int64_t>d.inodes[i].now.n
