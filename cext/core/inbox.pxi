# The control inbox: what the control plane must see, serialised one item behind the other and
# taken over whole when Python drains it. Each item: ItemHead, numbers, lengths, texts, padding to 8.

cdef enum:
    INBOX_BYTES_MAX = 268435456     # a control plane that hangs must not eat the machine
    REQUEST_BYTES_MAX = INBOX_BYTES_MAX // 2    # a client that asks much keeps nobody from logging in
    REQUEST_PIECE = 14              # bits: of each 16 KiB a request counts as one more


cdef int inbox_put(Inbox* b, int kind, uint64_t cid, const Span* texts, uint32_t n_texts,
                   const int64_t* nums, uint32_t n_nums) noexcept nogil:
    # 0, or -1 when the item was dropped because the inbox is full.
    cdef size_t size = sizeof(ItemHead) + n_nums * 8 + n_texts * 4
    cdef uint32_t i
    cdef uint8_t* p
    cdef ItemHead* head
    cdef uint64_t one = 1
    for i in range(n_texts):
        size += texts[i].n
    size = (size + 7) & ~<size_t>7
    if kind == IN_REQUEST and (b.requests >= b.requests_max or b.items.n + size > REQUEST_BYTES_MAX):
        b.dropped += 1
        return -1
    if b.items.n + size > INBOX_BYTES_MAX or bytes_reserve(&b.items, size) != 0:
        b.dropped += 1
        return -1
    p = b.items.data + b.items.n
    head = <ItemHead*>p
    head.size = <uint32_t>size
    head.kind = <uint16_t>kind
    head.n_texts = <uint8_t>n_texts
    head.n_nums = <uint8_t>n_nums
    head.cid = cid
    p += sizeof(ItemHead)
    if n_nums:
        memcpy(p, nums, n_nums * 8)
        p += n_nums * 8
    for i in range(n_texts):
        memcpy(p, &texts[i].n, 4)
        p += 4
    for i in range(n_texts):
        if texts[i].n:
            memcpy(p, texts[i].p, texts[i].n)
            p += texts[i].n
    b.items.n += size
    b.n += 1
    if kind == IN_REQUEST:
        b.requests += 1
    if not b.signalled:
        b.signalled = True
        write(b.fd, &one, 8)
    return 0


cdef inline bint asks_elsewhere(const Account* a) noexcept nogil:
    # Whether JetStream is another account's alone: what is not imported of its API has no responder.
    return a.api_imported and not a.jetstream


cdef inline bint asks_an_asset(Span dest) noexcept nogil:
    # What streams and consumers answer themselves, in their own account.
    return span_starts(dest, b"$JS.API.DIRECT.GET", 18) or span_starts(dest, b"$JS.API.CONSUMER.MSG.NEXT.", 26)


cdef int request_in(void* target, const Msg* m) noexcept nogil:
    # The inbound handler of `$JS.API.>`. Direct gets and requests for the next message are answered by
    # streams and consumers themselves; where none does, nobody is to count as a responder. So are others that streams
    # understand, unless the control plane has requests of the same connection, whose order stays.
    cdef Account* a = <Account*>target
    cdef const Sub* first
    cdef int answered = LEFT
    cdef Span texts[4]
    cdef int64_t nums[2]
    if asks_an_asset(m.dest):
        return 0
    if asks_elsewhere(a) and span_starts(m.dest, b"$JS.API.", 8):
        return 0
    if a.early.n and not m.behind:
        first = <const Sub*>strmap_get(&a.early, m.dest)
        if first != NULL:
            answered = first.fn(first.target, m)
        if answered == ANSWERED:
            return 1
    texts[0] = m.dest
    texts[1] = m.reply
    texts[2] = m.header
    texts[3] = m.data
    nums[0] = a.id
    nums[1] = 1 + ((<int64_t>m.header.n + m.data.n) >> REQUEST_PIECE)
    if inbox_put(&a.engine.inbox, IN_REQUEST, m.cid, texts, 4, nums, 2) == 0 and m.cid:
        a.engine.asked += <uint32_t>nums[1]
        a.engine.alone = answered == LEFT_ALONE
    return 1


cdef void outlet_event(void* ctx, const Event* ev) noexcept nogil:
    # The account's id goes in front of the event's own numbers.
    cdef int64_t num[6]
    num[0] = (<Account*>ev.account).id if ev.account != NULL else 0
    memcpy(&num[1], ev.num, sizeof(ev.num))
    inbox_put(&(<Engine*>ctx).inbox, ev.kind, 0, ev.text, 3, num, 6)
