# Frames of WebSocket around the bytes of a connection.

cdef enum WsState:
    WS_BELOW = 0            # what comes before frames is under way
    WS_REQUEST = 1          # the request for frames is being read
    WS_ASKED = 2            # the control plane decides
    WS_OPEN = 3
    WS_REFUSED = 4

cdef enum:
    WS_HEAD_MAX = 14        # bytes of a frame's head
    WS_CONTROL_MAX = 125    # of a control frame's payload
    WS_TROUBLE = 96

cdef struct WsTerms:
    # What was agreed on with the other side.
    bint masked             # its frames must be
    bint masks              # frames to it are
    bint deflate
    uint32_t frame_max      # payload of a frame to it; 0: as it comes
    bint whole              # a compressed message is one frame all the same
    size_t message_max      # bytes of a message to it, before it is masked or compressed; 0: no limit

cdef struct WsFrame:
    # One that comes.
    uint8_t[WS_HEAD_MAX] head
    uint32_t n_head         # bytes of a head that have come
    bint under_way
    bint final
    int opcode
    bint keyed
    uint8_t[4] key
    uint32_t key_at
    uint64_t rest           # of its payload
    uint8_t[WS_CONTROL_MAX] control
    uint32_t n_control

cdef struct WsMessage:
    # One that comes.
    bint under_way          # its last frame has not ended
    bint compressed
    z_stream* inflating     # NULL: none
    bint flooded            # it may have more to give
    bint drained            # its data ended before the message
    uint32_t trailer        # bytes of what ends its data that were taken
    uint64_t squeezed       # its bytes that came, and that they were
    uint64_t inflated
    int64_t max_payload     # of its data; -1: no limit

cdef struct Ws:
    # WebSocket (RFC 6455, RFC 7692) over a connection's transport.
    bint dials              # this server asked for it
    const Transport* below
    int state               # WsState
    int64_t patience        # ns until its request must have come
    WsTerms terms
    bint below_more         # input.more of what is below
    # said by the control plane, under the engine lock
    int verdict             # WS_OPEN, WS_REQUEST: it may ask again, WS_REFUSED; 0: none yet
    Bytes answer
    WsTerms agreed
    Task answered
    # the request, or the answer to this server's
    Bytes request
    size_t n_head           # bytes of its head; 0: not there yet
    size_t searched
    # the way in
    WsFrame frame
    WsMessage message
    Bytes held              # came already, from held_at on
    size_t held_at
    bint ended              # the other side has closed
    char[WS_TROUBLE] trouble        # why it is cut
    # the way out
    Bytes ahead             # goes out before anything else, from ahead_at on
    size_t ahead_at
    Bytes behind            # control frames, for the end of the frame under way
    uint64_t mask           # what keys of frames are made from
    uint64_t owed           # of the payload of the frame under way
    uint64_t offered        # payload that was offered in frames and not taken; it is offered again in the same
    uint8_t[WS_HEAD_MAX + WS_CONTROL_MAX] farewell      # the close frame, which goes out last
    size_t n_farewell
