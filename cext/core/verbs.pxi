# What a client's verbs mean once they are parsed: publish, subscribe, unsubscribe.

cdef enum:
    QUOTED_MAX = 16384
    SID_QUOTED_MAX = 128


cdef size_t put_quoted(uint8_t* out, size_t cap, Span s) noexcept nogil:
    # `s` in double quotes with the escapes Go's %q writes; cut short when it does not fit in cap.
    cdef const char* hexdigits = b"0123456789abcdef"
    cdef size_t n = 1
    cdef uint32_t at = 0, size
    cdef uint8_t ch
    out[0] = c'"'
    while at < s.n and n + 6 <= cap:
        ch = s.p[at]
        size = rune_size(s.p + at, s.n - at)
        if ch == c'"' or ch == c'\\':
            out[n] = c'\\'
            out[n + 1] = ch
            n += 2
        elif ch < c' ' or ch == 127 or size == 0:
            out[n] = c'\\'
            out[n + 1] = c'x'
            out[n + 2] = hexdigits[ch >> 4]
            out[n + 3] = hexdigits[ch & 15]
            n += 4
        else:
            memcpy(out + n, s.p + at, size)
            n += size
        at += max(size, <uint32_t>1)
    out[n] = c'"'
    return n + 1


cdef void violation(Client* c, const char* what, Span subject, Span queue, Span sid, const char* after) noexcept nogil:
    # -ERR 'Permissions Violation for <what> "subject"[ using queue "queue"]<after>', and the log's event.
    cdef uint8_t text[QUOTED_MAX + 600]
    cdef size_t n = 0
    cdef Span texts[4]
    client_write(c, b"-ERR '", 6)
    memcpy(text, b"Permissions Violation for ", 26)
    n = 26
    memcpy(text + n, what, strlen(what))
    n += strlen(what)
    text[n] = c' '
    n += 1
    n += put_quoted(text + n, QUOTED_MAX, subject)
    if queue.n:
        memcpy(text + n, b" using queue ", 13)
        n += 13
        n += put_quoted(text + n, 256, queue)
    memcpy(text + n, after, strlen(after))
    n += strlen(after)
    client_write(c, text, n)
    client_write(c, b"'\r\n", 3)
    if c.engine.trace:
        trace_line(c, TRACE_OUT, b"-ERR", span(text, <uint32_t>n))
    texts[0] = span_c(what)
    texts[1] = subject
    texts[2] = queue
    texts[3] = sid
    note_client(c, IN_VIOLATION, texts, 4, 0)


cdef void no_responders(Client* c, Span subject, Span reply) noexcept nogil:
    # The 503 frame, if a plain subscription of c itself waits for the reply (ADR-22).
    cdef const Match* found = sublist_match(c.account.subs, reply)
    cdef Sub* s
    cdef uint32_t i
    cdef uint8_t* p
    cdef uint8_t* start
    if found == NULL:
        return
    for i in range(found.n_plain):
        s = found.plain[i]
        if s.client != c or s.closed:
            continue
        start = client_reserve(c, <size_t>reply.n + s.sid.n + subject.n + 80)
        if start == NULL:
            return
        p = start
        memcpy(p, b"HMSG ", 5)
        p = put_span(p + 5, reply)
        p[0] = c' '
        p = put_span(p + 1, s.sid)
        p[0] = c' '
        p += 1
        p += put_u64(p, 32 + subject.n)
        p[0] = c' '
        p += 1
        p += put_u64(p, 32 + subject.n)
        memcpy(p, b"\r\nNATS/1.0 503\r\nNats-Subject: ", 30)
        p = put_span(p + 30, subject)
        memcpy(p, b"\r\n\r\n\r\n", 6)
        p += 6
        client_commit(c, p - start)
        client_mark_dirty(c)
        return


cdef void trace_mapping(Client* c, Span subject, Span to) noexcept nogil:
    cdef Draft line
    draft_open(&line)
    draft_add(&line, subject.p, subject.n)
    draft_add(&line, b" -> ", 4)
    draft_add(&line, to.p, to.n)
    trace_line(c, TRACE_IN, b"MAPPING", draft_span(&line))
    draft_free(&line)


cdef Span map_subject(Client* c, Span subject) noexcept nogil:
    # From here on nothing knows of the subject that the client named. .p NULL: no memory.
    cdef Draft* d = &c.engine.mapped
    d.n = 0
    if not account_renames(c.account, subject, d):
        return subject
    if d.failed:
        d.failed = False
        return span(NULL, 0)
    if c.engine.trace:
        trace_mapping(c, subject, draft_span(d))
    return draft_span(d)


cdef int client_publish(Client* c, Span subject, Span reply, Span header, Span data) noexcept nogil:
    # Returns the number of receivers. header is empty for PUB.
    cdef Msg m
    cdef Engine* e = c.engine
    cdef int taken
    cdef Span none, dest
    cdef uint32_t size = header.n + data.n
    none.p = NULL
    none.n = 0
    c.in_msgs += 1
    c.in_bytes += size
    c.account.in_msgs += 1
    c.account.in_bytes += size
    e.stats.in_msgs += 1
    e.stats.in_bytes += size
    if c.pedantic and not (subject_is_valid(subject) and subject_is_literal(subject)):
        client_error(c, b"Invalid Publish Subject")
    if c.account.renames:
        subject = map_subject(c, subject)
        if subject.p == NULL:
            return 0
    dest = trace_dest(header) if header.n else none
    if dest.n and not may_trace(c, dest):
        violation(c, b"Publish to", dest, none, none, b"")
        return 0
    if is_kept_from(c, subject):
        violation(c, b"Publish to", subject, none, none, b"")
        return 0
    if c.perms != NULL and not perms_can_publish(c.perms, subject) and not may_respond(c, subject):
        violation(c, b"Publish to", subject, none, none, b"")
        return 0
    if reply.n and reply_is_reserved(reply):
        violation(c, b"Publish with Reply of", reply, none, none, b"")
        return 0
    if c.verbose:
        client_ok(c)
    m.dest = subject
    m.subject = subject
    m.reply = reply
    m.header = header
    m.data = data
    m.cid = c.cid
    m.kind = c.kind
    m.behind = c.asking > 0
    m.account = c.account
    if dest.n and is_yes(trace_header(header, b"Nats-Trace-Only")):
        taken = dry_run(c, &m, dest)
    else:
        taken = engine_route(e, c, &m)
    if taken == 0 and reply.n and c.no_responders and c.headers and not c.closing:
        no_responders(c, subject, reply)
    return taken


cdef uint32_t count_tokens(Span s) noexcept nogil:
    cdef uint32_t i, n = 1
    for i in range(s.n):
        if s.p[i] == c'.':
            n += 1
    return n


cdef void client_subscribe(Client* c, Span subject, Span queue, Span sid, uint32_t weight, uint32_t origin) noexcept nogil:
    cdef Sub* s
    cdef Engine* e = c.engine
    if c.perms != NULL and not perms_can_subscribe(c.perms, subject, queue):
        violation(c, b"Subscription to", subject, queue, sid, b"")
        return
    if queue.n == 5 and memcmp(queue.p, b"_sys_", 5) == 0:
        violation(c, b"Subscription to", subject, queue, sid, b"")
        return
    if e.limits.max_sub_tokens > 0 and count_tokens(subject) > <uint64_t>e.limits.max_sub_tokens:
        queue.n = 0
        violation(c, b"Subscription to", subject, queue, sid, b", too many tokens")
        return
    if ((e.limits.max_subscriptions > 0 and c.n_subs >= <uint64_t>e.limits.max_subscriptions)
            or (c.account.max_subscriptions >= 0 and c.n_subs >= <uint64_t>c.account.max_subscriptions)
            or (c.max_subscriptions >= 0 and c.n_subs >= <uint64_t>c.max_subscriptions)):
        note_text(c, b"maximum subscriptions exceeded")
        client_error(c, b"maximum subscriptions exceeded")
        return
    if strmap_get(&c.subs, sid) == NULL:
        if not subject_is_valid(subject):
            client_error(c, b"Invalid Subject")
            return
        s = sub_new(subject, queue, sid)
        if s == NULL:
            client_close(c, CLOSE_WRITE_ERROR)
            return
        s.client = c
        s.hears = c.hears
        s.weight = weight
        s.origin = origin
        s.listens = True
        s.filtered = c.perms != NULL and perms_must_filter(c.perms, subject, queue)
        if strmap_put(&c.subs, s.sid, s) != 0:
            sub_free(s)
            client_close(c, CLOSE_WRITE_ERROR)
            return
        if sublist_insert(c.account.subs, s) != 0:
            strmap_del(&c.subs, s.sid)
            sub_free(s)
            client_close(c, CLOSE_WRITE_ERROR)
            return
        s.prev = NULL
        s.next = c.first_sub
        if c.first_sub != NULL:
            c.first_sub.prev = s
        c.first_sub = s
        c.n_subs += 1
        if c.account.streams != NULL:
            shadows_add(c.account, s)
        watch_changed(c.account, s, 1)
    if c.verbose:
        client_ok(c)


cdef void client_unsubscribe(Client* c, Span sid, uint64_t max) noexcept nogil:
    cdef Sub* s = <Sub*>strmap_get(&c.subs, sid)
    if s != NULL:
        if max > 0 and s.delivered < max:
            s.max = max
        else:
            sub_drop(c, s)
    if c.verbose:
        client_ok(c)


cdef void client_restrict(Client* c, Permissions* perms) noexcept nogil:
    # What it may do from now on. Subscriptions that it may not have any more end, and it hears of each.
    cdef Sub* s = c.first_sub
    cdef Sub* after
    cdef uint8_t text[SID_QUOTED_MAX + 8]
    cdef size_t n
    if perms != NULL:
        perms_hold(perms)
    perms_release(c.perms)
    c.perms = perms
    while s != NULL:
        after = s.next
        s.filtered = perms != NULL and perms_must_filter(perms, s.subject, s.queue)
        if perms != NULL and not perms_can_subscribe(perms, s.subject, s.queue):
            memcpy(text, b" (sid ", 6)
            n = 6 + put_quoted(text + 6, SID_QUOTED_MAX, s.sid)
            memcpy(text + n, b")", 2)
            violation(c, b"Subscription to", s.subject, s.queue, s.sid, <const char*>text)
            sub_drop(c, s)
        s = after
