# Answers of a group's leader that are true only if it still led when it gave them: above all refusals. A leader that was replaced
# and does not know that yet checks a publish against a state that is not the group's any more, while the present leader may
# store the message. So an answer waits until all that it rests on is agreed on, and until a quorum has confirmed the lead since.
# Who asks the quorum, once for all answers of a turn, is the layer above.

cdef struct UnconfirmedHead:
    # One waiting answer; its reply and its text follow.
    uint64_t index              # all that it rests on is in the log up to here
    uint64_t round              # of the question to the quorum; 0: the record at `index` was proposed after the answer was given
    uint32_t n_reply
    uint32_t n_text


cdef inline bint answers_unconfirmed(const Stream* s) noexcept nogil:
    return s.member != NULL and s.member.unconfirmed.b.n != 0


cdef bint member_is_to_ask(const Stream* s) noexcept nogil:
    return s.member.asked_for < s.member.unconfirmed.base + s.member.unconfirmed.b.n


cdef bint member_owes(const Stream* s) noexcept nogil:
    return answers_unconfirmed(s)


cdef void answer_unconfirmed(Stream* s, Span reply, Span text) noexcept nogil:
    # Without room there is no answer: the publisher tries again.
    cdef Member* m = s.member
    cdef bint first = not member_is_to_ask(s)
    cdef UnconfirmedHead head
    cdef uint8_t* p
    if not m.leads or m.unconfirmed.b.n - m.unconfirmed.head > WAITING_MAX:
        return
    p = fifo_add(&m.unconfirmed, sizeof(UnconfirmedHead) + <size_t>reply.n + text.n)
    if p == NULL:
        return
    head.index = head.round = UINT64_MAX
    head.n_reply = reply.n
    head.n_text = text.n
    memcpy(p, &head, sizeof(UnconfirmedHead))
    put_bytes(put_bytes(p + sizeof(UnconfirmedHead), reply), text)
    if first:
        m.proposed(m.ctx)


cdef void member_asked(Stream* s, uint64_t index, uint64_t round) noexcept nogil:
    cdef Member* m = s.member
    cdef Fifo* f = &m.unconfirmed
    cdef UnconfirmedHead head
    cdef size_t at = <size_t>(max(m.asked_for, f.base + f.head) - f.base)
    while at < f.b.n:
        memcpy(&head, f.b.data + at, sizeof(UnconfirmedHead))
        head.index = index
        head.round = round
        memcpy(f.b.data + at, &head, sizeof(UnconfirmedHead))
        at += sizeof(UnconfirmedHead) + <size_t>head.n_reply + head.n_text
    m.asked_for = f.base + at


cdef void member_confirmed(Stream* s, uint64_t index, uint64_t round) noexcept nogil:
    cdef Fifo* f = &s.member.unconfirmed
    cdef UnconfirmedHead head
    cdef uint8_t room[REPLY_ROOM]
    cdef uint8_t* p
    cdef size_t n
    while f.b.n and f.base + f.head < s.member.asked_for:
        memcpy(&head, f.b.data + f.head, sizeof(UnconfirmedHead))
        # A record behind the index was proposed, and so confirmed, after the answer was given.
        if index < head.index or index == head.index and round < head.round:
            break
        n = <size_t>head.n_reply + head.n_text
        p = &room[0] if n <= REPLY_ROOM else <uint8_t*>malloc(n)
        if p != NULL:
            memcpy(p, f.b.data + f.head + sizeof(UnconfirmedHead), n)
        fifo_drop(f, sizeof(UnconfirmedHead) + n)
        if p != NULL:
            send_text(s, span(p, head.n_reply), p + head.n_reply, head.n_text)
        if p != room:
            free(p)


cdef void unconfirmed_drop(Member* m) noexcept nogil:
    fifo_free(&m.unconfirmed)
    m.asked_for = m.unconfirmed.base


cdef void answer_if_leader(Stream* s, Span reply, Span text) noexcept nogil:
    # Sends an answer that rests on the stream's state: now, or if a group has the say, once the lead is confirmed.
    if s.member == NULL:
        send_text(s, reply, text.p, text.n)
    elif reply.n:
        answer_unconfirmed(s, reply, text)
