# What the control plane finds in its inbox.

cdef enum InboxKind:
    # What the control plane finds in its inbox, beside the EventKinds of the lower layers (< 100).
    IN_REQUEST = 100        # text: subject, reply, header, data; num: account's id, what it counts of asking_max
    IN_CONNECT = 101        # a CONNECT that needs a decision, as note_client: json, nonce, security; its connection waits
    IN_OPENED = 102         # text: address; (only when debugging)
    IN_CLOSED = 103         # text: address, connect options, security; num: ConnFigures of the net layer
    IN_VIOLATION = 104      # as note_client: what, subject, queue, sid
    IN_TRACE = 105          # as note_client: verb, the rest of its line, of messages header and data; num[2] = TraceWay
    # texts: subject, requestor, responder, header block, the reply if another server knows the responder; num: account's id,
    # Report, times
    IN_LATENCY = 106
    IN_MEASURED = 108       # of an answer that another server reports; texts: its subject, responder; num: account's id, times
    IN_UPGRADE = 110        # text: address, an HTTP request's head; num: port, bytes that came behind it
    IN_PEER = 111           # text: address, certificates in DER; num: port, whether frames follow; its connection waits
    IN_LINK = 112           # as note_client: a line's text; num[2] = LinkSaid
    IN_LEAF = 113           # likewise, of a leaf node or a hub
    IN_GATEWAY = 114        # likewise, of a server of another cluster
    IN_ERROR = 107          # as note_client: text, or text before, a quoted one, text after; num[2] = NoteForm

cdef enum TraceWay:
    TRACE_IN = 0
    TRACE_OUT = 1
    TRACE_SUB = 2           # a subscription ended

cdef enum NoteForm:
    NOTE_LINE = 0
    NOTE_QUOTED = 1
    NOTE_DEBUG = 2          # for the log of who debugs
    NOTE_PROXY = 3          # of a PROXY header

cdef struct Inbox:
    # Items for the control plane, serialised one behind the other; filled under the engine lock.
    Bytes items
    uint32_t n
    uint32_t requests, requests_max
    uint32_t asking_max     # requests of one connection that the control plane has; large ones count more
    uint64_t dropped
    int fd                  # eventfd, written once until the next drain
    bint signalled

cdef struct ItemHead:       # of a serialised item; behind it numbers, lengths, texts, padding to 8
    uint32_t size
    uint16_t kind
    uint8_t n_texts
    uint8_t n_nums
    uint64_t cid
