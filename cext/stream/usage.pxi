# What a stream adds to the usages of its account and of the server, whether there is room for more, and its lines in the
# server's log.

cdef enum:
    TOLD_SECONDS = 10                   # between two lines of the log about one thing


cdef void log_line(Stream* s, const char* text, bint error) noexcept nogil:
    cdef Event e
    memset(&e, 0, sizeof(Event))
    e.kind = EV_LOG
    e.account = s.account
    e.text[0] = span_c(text)
    e.num[0] = error
    s.env.out.event(s.env.out.ctx, &e)


cdef bint log_at_times(Stream* s, int64_t* told, const char* text, bint error) noexcept nogil:
    # A line of the log about one thing, unless there was one a moment ago: told (mono; 0: never). Whether it was written.
    if told[0] and s.env.mono - told[0] <= TOLD_SECONDS * <int64_t>1000000000:
        return False
    told[0] = s.env.mono
    log_line(s, text, error)
    return True


# ---- usages ----------------------------------------------------------------------------------------------------------

cdef inline void add_used(Usage* u, int64_t more) noexcept nogil:
    if u != NULL:
        u.used += more


cdef void stream_count_bytes(Stream* s) noexcept nogil:
    # Brings the usages up to date with what the store holds.
    cdef StoreState state
    cdef int64_t more
    if s.place.account_usage == NULL and s.place.server_usage == NULL:
        return
    store_state(s.store, &state)
    more = <int64_t>state.bytes - s.counted
    s.counted = <int64_t>state.bytes
    add_used(s.place.account_usage, more)
    add_used(s.place.server_usage, more)


cdef void count_request(Stream* s, bint failed) noexcept nogil:
    # One that the stream answered itself.
    if s.place.requests != NULL:
        s.place.requests.total += 1
        s.place.requests.errors += failed


cdef void count_deleting(Stream* s, int64_t more) noexcept nogil:
    s.deleting += more
    if s.place.requests != NULL:
        s.place.requests.inflight += more


cdef bint over(const Usage* u, uint64_t more) noexcept nogil:
    return u != NULL and u.max >= 0 and u.used + <int64_t>more > u.max


cdef void put_size(char* to, size_t cap, int64_t bytes) noexcept nogil:
    # A number of bytes as the log shows it: 512 B, 1.00 KB, 17.66 GB (powers of 1024).
    cdef double size = <double>bytes
    cdef uint32_t power = 0
    if bytes < 1024:
        snprintf(to, cap, b"%lld B", <long long>bytes)
        return
    while size >= 1024 and power < 6:
        size /= 1024
        power += 1
    snprintf(to, cap, b"%.2f %cB", size, <int>b"BKMGTPE"[power])


cdef bint server_full(Stream* s) noexcept nogil:
    # Once it has passed its limit; the log says so now and then, and which option limits it.
    cdef Usage* u = s.place.server_usage
    cdef bint memory = s.place.directory.n == 0
    cdef char used[32]
    cdef char most[32]
    cdef char text[160]
    if u == NULL or u.max < 0 or u.used <= u.max:
        return False
    if log_at_times(s, &u.told, b"JetStream memory resource limits exceeded for server" if memory
                    else b"JetStream file resource limits exceeded for server", True):
        put_size(used, sizeof(used), u.used)
        put_size(most, sizeof(most), u.max)
        snprintf(text, sizeof(text), b"Publishes are refused (10023): %s: %s used of %s",
                 <const char*>b"max_memory_store" if memory else <const char*>b"max_file_store", used, most)
        log_line(s, text, False)
    return True
