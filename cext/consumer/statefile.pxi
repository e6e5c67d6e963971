# o.dat, a consumer's state in nats-server's form: read when the consumer is opened, written at a clean stop. The log stays the
# real state: it lists, by hash and time, the files that say nothing more than it does. A file with another hash was written
# later, by nats-server or by a stop that was cut short, and is believed. A file with another hash but the listed time is damaged,
# and the log is believed.

cdef enum:
    SYNC_EACH_STATE = 32                # more files than this are synced by one call for the file system


cdef uint64_t* STATE_KEY = [0x6a736572766572, 0x636f6e73756d6572, 0x6f2e646174, 1]


cdef struct StateFile:
    # The contents of o.dat; no bytes: no file.
    Span bytes
    int64_t time                        # of the last change, wall clock


cdef uint64_t state_hash(Span state) noexcept nogil:
    return hh64(STATE_KEY, state.p, state.n) if state.n else 0


cdef bytes state_path(object directory):
    return os.path.join(os.fsencode(directory), STATE_NAME)


cdef object read_state(FileOps* f, object directory):
    # The bytes of o.dat and its time; b"" and 0 if there is no file.
    cdef bytes path = state_path(directory)
    cdef const char* name = path
    cdef Bytes b
    cdef int64_t time = 0
    cdef int rc
    memset(&b, 0, sizeof(Bytes))
    try:
        with nogil:
            rc = state_load(f, name, &b, &time)
        if rc == -ENOENT:
            return b"", 0
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), os.fsdecode(path))
        return (<const char*>b.data)[:b.n], time
    finally:
        bytes_free(&b)


cdef int state_load(FileOps* f, const char* path, Bytes* b, int64_t* time) noexcept nogil:
    # 0 | -errno
    cdef int fd = f.open(f.ctx, path, O_RDONLY, 0)
    cdef int64_t n, rc
    if fd < 0:
        return fd
    n = f.size(f.ctx, fd)
    rc = n if n < 0 or bytes_reserve(b, <size_t>n) == 0 else -ENOMEM
    if rc >= 0:
        rc = f.pread(f.ctx, fd, b.data, <size_t>n, 0)
    if rc >= 0:
        b.n = <size_t>rc
        rc = f.time(f.ctx, fd)
    f.close(f.ctx, fd)
    time[0] = rc
    return <int>min(rc, <int64_t>0)


cdef int state_save(FileOps* f, const char* path, Span state, int64_t time, bint sync) noexcept nogil:
    # 0 | -errno
    cdef int fd = f.open(f.ctx, path, O_RDWR | O_CREAT | O_TRUNC, 0o666)
    cdef int64_t rc
    if fd < 0:
        return fd
    rc = f.pwrite(f.ctx, fd, state.p, state.n, 0)
    if rc >= 0:
        rc = f.set_time(f.ctx, fd, time)
    if rc >= 0 and sync:
        rc = f.datasync(f.ctx, fd)
    f.close(f.ctx, fd)
    return <int>min(rc, <int64_t>0)


cdef int states_sync(FileOps* f, const char* path) noexcept nogil:
    # Syncs the whole file system of this file. 0 | -errno
    cdef int fd = f.open(f.ctx, path, O_RDONLY, 0)
    cdef int rc
    if fd < 0:
        return fd
    rc = f.sync_all(f.ctx, fd)
    f.close(f.ctx, fd)
    return rc


cdef int state_put(FileOps* f, bytes directory, bint sync) except 1:
    # Puts the temporary file in o.dat's place. 0 | -errno
    cdef bytes path = state_path(directory)
    cdef bytes temp = temporary(path)
    cdef const char* name = path
    cdef const char* temp_name = temp
    cdef const char* place = directory
    cdef int rc
    with nogil:
        rc = f.rename(f.ctx, temp_name, name)
        # The log lists only this file: if the former one came back, it would pass for nats-server's.
        if rc == 0 and sync:
            rc = f.sync_dir(f.ctx, place)
    return rc


cdef bytes temporary(bytes path):
    return path + b".tmp"


cdef int state_keep(FileOps* f, tuple given, bint sync) except 1:
    # Writes the state to the temporary file. 0 | -errno
    cdef bytes directory, state, temp
    cdef const char* name
    cdef Span text
    cdef int64_t time
    cdef int rc
    directory, state, time = given
    temp = temporary(state_path(directory))
    name = temp
    text = span_of(state)
    with nogil:
        rc = state_save(f, name, text, time, sync)
    return rc


cdef int write_together(FileOps* f, list states) except 1:
    # Writes all of them with two syncs of the file system. 0 | -errno of the first failure: then none is known to be on disk.
    cdef bytes path = state_path(states[0][0])
    cdef bytes temp = temporary(path)
    cdef const char* name = path
    cdef const char* temp_name = temp
    cdef int rc = 0
    for given in states:
        rc = rc if rc < 0 else state_keep(f, given, False)
    if rc == 0:
        with nogil:
            rc = states_sync(f, temp_name)
    for given in states:
        rc = rc if rc < 0 else state_put(f, given[0], False)
    if rc == 0:
        with nogil:
            rc = states_sync(f, name)
    return rc


cdef object warn_unwritten(bytes path, int rc):
    import logging  # a tenth of the time of a start, which rarely needs it

    log = logging.getLogger("jsserver.consumers")
    log.warning("State for nats-server not written: %s: %s", os.fsdecode(path), os.strerror(-rc))


cdef object write_states(FileOps* f, list states):
    # (directory, bytes, time) of each. A failure is only reported: the log has the state, only nats-server misses it.
    cdef int rc
    if len(states) > SYNC_EACH_STATE and write_together(f, states) == 0:
        return
    # Includes files written before a failed sync: a later sync would not report them.
    for given in states:
        rc = state_keep(f, given, True)
        if rc == 0:
            rc = state_put(f, given[0], True)
        if rc < 0:
            warn_unwritten(state_path(given[0]), rc)


cdef bint final_state_of(Consumer* c, Bytes* b, int64_t* time) noexcept nogil:
    # The state for o.dat, unless the file has it already. The log lists the file before it is written: whichever a crash leaves,
    # the log is complete.
    cdef uint64_t hash
    if not c.logged or consumer_encode_state(c, b) < 0:
        return False
    hash = state_hash(span(b.data, <uint32_t>b.n))
    if hash == c.known_hash:
        return False
    time[0] = c.env.now
    log_known(c, hash, time[0])
    return True
