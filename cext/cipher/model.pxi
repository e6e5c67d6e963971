# The files of encrypted streams, as they are known in this life.
#
# Two forms, beside files that are in clear. A block's keystream comes of the seed and nonce in its key file, N.key beside N.blk,
# as nats-server has it. Every other file of ours, a sheet, begins with a mark, its cipher and a nonce of its own; its key is
# derived as a seal's. A file that is still in clear is read as it is, and replaced by the first write.
#
# No place of a keystream is used for two texts. What is appended goes on behind `high`, the end of all that was ever
# written with the key, and only where the key was made in this life. Any other write replaces the file by a copy under a
# new key, which takes its place by a rename: a crash leaves the one or the other.
#
# The mutex is never held around a call of the file system: who reads under the engine lock would wait for that of another
# thread. So who opens a file learns by its identity which one it got, the old or the one that takes its name meanwhile.

cdef enum FileForm:
    FORM_CLEAR = 0
    FORM_BLOCK = 1
    FORM_SHEET = 2
    FORM_SEALED = 3

cdef enum:
    STATES_IDLE = 64            # files that are not open, and whose state is kept
    CRYPT_PIECE = 1 << 16       # bytes that are encrypted at once
    SECTOR = 512
    ZEROS_LEAST = 8             # so many zeros at the end of a sector are none that a keystream made
    PATH_ROOM = 4400            # of a path with all that is put behind it
    OPEN_TRIES = 100            # of a file whose name passes to another one each time
    CIPHER_NONE = 0             # in clear
    SHEET_MARK = 4              # in front of a sheet, and behind it a byte for the cipher
    SHEET_CHECK = 8
    SHEET_HEAD_MAX = 5 + 24 + 8

cdef const char* sheet_mark = b"\xffjsE"

cdef struct CryptKey:
    int kind                    # CipherKind, CIPHER_NONE
    uint8_t key[CIPHER_KEY]
    uint8_t nonce[24]

cdef struct FileState:
    # A file that has a key, by its path. Under the mutex; the key does not change once it is there.
    ListNode idle               # while it is not open
    char* path                  # empty: no file has its name any more
    uint64_t id                 # its identity, 0: not known
    FileForm form
    CryptKey key
    bint keyed                  # a sheet has none before its first byte
    bint ours                   # the key was made in this life
    uint64_t high               # the end of what was written with it
    uint32_t refs               # descriptors, and who else holds it
    FileState* heir             # which takes its name at the moment
    FileState* copy             # under another key: it took the name, and is read instead. Held

cdef struct Whole:
    # An open file that is sealed as a whole.
    CryptKey key
    bint summed                 # a checksum of what is sealed follows, and one of the text is shown
    uint64_t sum_key[4]
    Bytes text                  # what it had when it was opened

cdef struct OpenFile:
    # A descriptor. Its owner alone uses it.
    int fd                      # as the caller knows it
    int real                    # what it stands for: another one where a copy took the file's place
    FileState* state            # NULL: it is sealed as a whole
    Whole* whole

cdef struct Encrypted:
    FileOps ops                 # first: what is handed out is this
    FileOps* inner
    System* system
    Mutex mutex
    CipherKind kind             # of new keys
    Bytes secret
    Bytes before                # the secret before that one; empty: none
    StrMap states               # by path
    List idle                   # FileStates, the one that was closed last first
    uint32_t n_idle
    uint64_t places             # counts names that passed to other files, or ended
    OpenFile** opens            # by descriptor; NULL: of a file in clear
    uint32_t n_opens


cdef uint32_t sheet_head(const CryptKey* k) noexcept nogil:
    # Bytes in front of a sheet's text.
    return SHEET_MARK + 1 + cipher_nonce(<CipherKind>k.kind) + SHEET_CHECK if k.kind != CIPHER_NONE else 0


cdef bint path_ends(const char* path, size_t n, const char* suffix) noexcept nogil:
    cdef size_t k = strlen(suffix)
    return n >= k and memcmp(path + n - k, suffix, k) == 0


cdef bint is_index(const char* path) noexcept nogil:
    return path_ends(path, strlen(path), b"/index.db")


cdef FileForm form_of(const char* path) noexcept nogil:
    # By its name. What only counts sequences stays in clear, and meta.inf, which others read.
    cdef size_t n = strlen(path)
    if path_ends(path, n, b".tmp"):
        n -= 4
    if path_ends(path, n, b".blk"):
        return FORM_BLOCK
    if (path_ends(path, n, b".jsx") or path_ends(path, n, b".jss") or path_ends(path, n, b".jsd")
            or path_ends(path, n, b".tail") or path_ends(path, n, b"/consumers.log")
            or path_ends(path, n, b"/consumers.log.damaged")):
        return FORM_SHEET
    return FORM_SEALED if path_ends(path, n, b"/o.dat") or is_index(path) else FORM_CLEAR


cdef FileState* state_find(Encrypted* e, const char* path) noexcept nogil:
    # With the mutex. NULL: nothing is known of the file.
    return <FileState*>strmap_get(&e.states, span(path, <uint32_t>strlen(path)))


cdef void state_free(Encrypted* e, FileState* s) noexcept nogil:
    # With the mutex, of one that is in no table.
    e.n_idle -= list_drop(&s.idle)
    if s.copy != NULL:
        state_let(e, s.copy)
    free(s.path)
    free(s)


cdef void state_unname(Encrypted* e, FileState* s) noexcept nogil:
    # With the mutex, of one that is held: another file has its name.
    if s.path[0]:
        strmap_del(&e.states, span(s.path, <uint32_t>strlen(s.path)))
    s.path[0] = 0


cdef void state_lost(Encrypted* e, FileState* s) noexcept nogil:
    # With the mutex: no file has its name any more. Descriptors keep it.
    state_unname(e, s)
    if s.refs == 0:
        state_free(e, s)


cdef void state_forget(Encrypted* e, const char* path) noexcept nogil:
    # With the mutex: the file is gone, or another one has its name.
    cdef FileState* s = state_find(e, path)
    if s != NULL:
        state_lost(e, s)


cdef void state_hold(Encrypted* e, FileState* s) noexcept nogil:
    # With the mutex.
    e.n_idle -= list_drop(&s.idle)
    s.refs += 1


cdef void state_let(Encrypted* e, FileState* s) noexcept nogil:
    # With the mutex: of files that are not open only the last ones stay known.
    s.refs -= 1
    if s.refs:
        return
    if s.path[0] == 0:
        state_free(e, s)
        return
    list_push_front(&e.idle, &s.idle)
    e.n_idle += 1
    if e.n_idle > STATES_IDLE:
        state_lost(e, <FileState*>list_owner(list_last(&e.idle), &(<FileState*>NULL).idle))


cdef FileState* state_new(Encrypted* e, const char* path, FileForm form) noexcept nogil:
    # With the mutex; held once. NULL: no memory.
    cdef FileState* s = <FileState*>calloc(1, sizeof(FileState))
    if s != NULL:
        s.path = strdup(path)
    if s == NULL or s.path == NULL or strmap_put(&e.states, span(s.path, <uint32_t>strlen(s.path)), s) < 0:
        if s != NULL:
            free(s.path)
        free(s)
        return NULL
    s.form = form
    s.refs = 1
    return s


cdef int state_name(Encrypted* e, FileState* s, const char* path) noexcept nogil:
    # With the mutex: the file has another name. Without memory nothing is known of it any more.
    cdef char* name = strdup(path)
    if s.path[0]:
        strmap_del(&e.states, span(s.path, <uint32_t>strlen(s.path)))
    if name == NULL or strmap_put(&e.states, span(name, <uint32_t>strlen(name)), s) < 0:
        free(name)
        s.path[0] = 0
        return -1
    free(s.path)
    s.path = name
    return 0


cdef OpenFile* open_find(Encrypted* e, int fd) noexcept nogil:
    # NULL: a file in clear, or one that is sealed as a whole.
    cdef OpenFile* o
    e.system.lock(e.system.ctx, &e.mutex)
    o = e.opens[fd] if 0 <= fd < <int>e.n_opens else NULL
    o = o if o != NULL and o.state != NULL else NULL
    e.system.unlock(e.system.ctx, &e.mutex)
    return o


cdef Span part_of(const char* path, size_t* end) noexcept nogil:
    # The last part of a path that ends at `end`, which then stands before it. Empty: there is none.
    cdef size_t stop = end[0], start
    start = stop
    while start and path[start - 1] != c'/':
        start -= 1
    end[0] = start - 1 if start else 0
    return span(path + start, <uint32_t>(stop - start))


cdef bint is_part(Span s, const char* text) noexcept nogil:
    return s.n == strlen(text) and memcmp(s.p, text, s.n) == 0


cdef void owner_of(const char* path, Span* account, Span* stream) noexcept nogil:
    # Of a file in the folder of a stream or of a Raft group, or in one with its blocks. A group's account is the group.
    cdef size_t end = strlen(path)
    cdef Span above
    part_of(path, &end)
    stream[0] = part_of(path, &end)
    if is_part(stream[0], b"msgs") or is_part(stream[0], b"__msgs__") or is_part(stream[0], b"__new_msgs__"):
        stream[0] = part_of(path, &end)
    above = part_of(path, &end)
    if is_part(above, b"_js_"):
        account[0] = stream[0]
    else:
        account[0] = part_of(path, &end) if is_part(above, b"streams") else span(NULL, 0)


cdef int key_derived(const char* path, Span secret, Span more, uint8_t* out) noexcept nogil:
    # The key for a file of a stream: its context is the stream's name, and more. 0 | -ENOMEM
    cdef Span account, stream
    cdef Bytes context
    cdef int rc
    owner_of(path, &account, &stream)
    memset(&context, 0, sizeof(context))
    rc = bytes_add(&context, stream.p, stream.n)
    rc |= bytes_add(&context, more.p, more.n)
    if rc == 0:
        rc = cipher_derive(secret, account, span(context.data, <uint32_t>context.n), out)
    bytes_free(&context)
    return 0 if rc == 0 else -ENOMEM


cdef int sheet_key(const char* path, Span secret, CryptKey* key) noexcept nogil:
    # All but its cipher and nonce. No stream's name has a stroke. 0 | -ENOMEM
    return key_derived(path, secret, span(b"/sheets", 7), key.key)


cdef uint64_t head_of(const FileState* s) noexcept nogil:
    return sheet_head(&s.key) if s.form == FORM_SHEET else 0


cdef Span secret_of(const Encrypted* e) noexcept nogil:
    return span(e.secret.data, <uint32_t>e.secret.n)


cdef void state_path(Encrypted* e, const FileState* s, char* out) noexcept nogil:
    # A copy of its path, with room for PATH_ROOM.
    e.system.lock(e.system.ctx, &e.mutex)
    snprintf(out, PATH_ROOM, "%s", s.path)
    e.system.unlock(e.system.ctx, &e.mutex)
