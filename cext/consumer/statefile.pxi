# o.dat, a consumer's state for nats-server: read on opening, written at a clean stop. While the server runs the log is
# the state, and afterwards too: the log names the files (by hash and time) that say nothing which it does not say. A
# file with another hash was written by nats-server since, or by a stop that was cut short; it is as new as can be.
# A hash that differs where the time does not is damage, and the log is believed.

cdef enum:
    SYNC_EACH_STATE = 32                # more files than this are synced by one call for the file system


cdef uint64_t* STATE_KEY = [0x6a736572766572, 0x636f6e73756d6572, 0x6f2e646174, 1]


cdef struct StateFile:
    # What o.dat says; no bytes: there is none.
    Span bytes
    int64_t time                        # of its last change, wall clock


cdef uint64_t state_hash(Span state) noexcept nogil:
    return hh64(STATE_KEY, state.p, state.n) if state.n else 0


cdef object read_state(directory):
    # The bytes of o.dat and their time; none and 0 when there is no file.
    try:
        with open(os.path.join(os.fsdecode(directory), STATE_NAME), "rb") as f:
            return f.read(), os.fstat(f.fileno()).st_mtime_ns
    except FileNotFoundError:
        return b"", 0


cdef object write_states(list states):
    # (directory, bytes, time) of each. What cannot be written is reported: the log has it, only nats-server misses it.
    synced = []
    many = len(states) > SYNC_EACH_STATE
    for directory, state, time in states:
        path = os.path.join(os.fsdecode(directory), STATE_NAME)
        try:
            with open(path + ".tmp", "wb") as f:
                f.write(state)
                f.flush()
                os.utime(f.fileno(), ns=(time, time))
                if not many:
                    os.fsync(f.fileno())
            synced.append(path)
        except OSError as error:
            log.warning("State for nats-server not written: %s: %s", path, error.strerror)
    if many and synced:
        os.sync()
    for path in synced:
        try:
            os.replace(path + ".tmp", path)
        except OSError as error:
            log.warning("State for nats-server not written: %s: %s", path, error.strerror)


cdef bint final_state_of(Consumer* c, Bytes* b, int64_t* time) noexcept nogil:
    # The state for nats-server, unless its file has it. The log names the file before it is there: whichever of the two
    # a crash leaves, the log says all.
    cdef uint64_t hash
    if not c.logged or consumer_encode_state(c, b) < 0:
        return False
    hash = state_hash(span(b.data, <uint32_t>b.n))
    if hash == c.known_hash:
        return False
    time[0] = c.env.now
    log_known(c, hash, time[0])
    return True
