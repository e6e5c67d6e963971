# Reading what the engine serialised for the control plane: inbox items and snapshots.

cdef enum SnapshotKind:
    ITEM_CONN = 200         # texts: address, connect options, security; numbers: ConnNumbers
    ITEM_SUB = 201          # texts: subject, queue, sid; numbers: SubNumbers


Item = namedtuple("Item", "kind cid numbers texts")
ConnNumbers = namedtuple(
    "ConnNumbers",
    "reason port start last_activity rtt in_msgs out_msgs in_bytes out_bytes subscriptions now pending stalls account"
    " chunks websocket compression kind",
)
SubNumbers = namedtuple("SubNumbers", "account delivered max internal")


cdef list read_items(const uint8_t* p, size_t n):
    cdef list out = []
    cdef size_t at = 0
    cdef ItemHead head
    cdef uint32_t i, length
    cdef const uint8_t* nums
    cdef const uint8_t* lens
    cdef const uint8_t* text
    cdef int64_t num
    cdef list numbers, texts
    while at < n:
        memcpy(&head, p + at, sizeof(head))
        nums = p + at + sizeof(head)
        lens = nums + head.n_nums * 8
        text = lens + head.n_texts * 4
        numbers = []
        for i in range(head.n_nums):
            memcpy(&num, nums + i * 8, 8)
            numbers.append(num)
        texts = []
        for i in range(head.n_texts):
            memcpy(&length, lens + i * 4, 4)
            texts.append(PyBytes_FromStringAndSize(<const char*>text, length))
            text += length
        out.append(Item(head.kind, head.cid, tuple(numbers), tuple(texts)))
        at += head.size
    return out


cdef void box_open(Inbox* box) noexcept nogil:
    # A private inbox: nobody is to be woken.
    memset(box, 0, sizeof(Inbox))
    box.signalled = True
    box.fd = -1


cdef list box_take(Inbox* box):
    cdef list out = read_items(box.items.data, box.items.n)
    bytes_free(&box.items)
    return out


cdef void snapshot_conn(Conn* c, Inbox* box) noexcept nogil:
    cdef Span texts[CONN_TEXTS]
    cdef ConnFigures num
    conn_numbers(c, texts, &num)
    inbox_put(box, ITEM_CONN, c.base.cid, texts, CONN_TEXTS, <const int64_t*>&num, sizeof(num) // 8)
