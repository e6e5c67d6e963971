# Transforms: what becomes of a subject by the parts of a destination. Reading and checking them is the control plane's
# (jsserver/text/transforms.py).

cdef enum PartKind:
    PART_TEXT = 0
    PART_WILDCARD
    PART_PARTITION
    PART_SPLIT_LEFT
    PART_SPLIT_RIGHT
    PART_SLICE_LEFT
    PART_SLICE_RIGHT
    PART_SPLIT
    PART_LEFT
    PART_RIGHT
    PART_RANDOM
    PART_REST               # all from a token on

cdef struct TransformPart:
    int kind
    int32_t number          # of a function
    Span text               # itself, or the delimiter to split by
    uint32_t first          # which tokens of the subject: places[first:first + n_places]
    uint32_t n_places

cdef struct Transform:
    # One allocation, with places and texts.
    Span source             # what it is for
    TransformPart* parts
    uint32_t n_parts
    uint32_t* places
    uint8_t* texts
    size_t size             # of the allocation


cdef enum:
    TRANSFORMED_MAX = 65535         # bytes of a subject: more than a stream can store
    TOKENS_KEPT = 64                # tokens of a subject that are found by one walk


# ---- a text in the making ------------------------------------------------------------------------------

cdef bint draft_grow(Draft* d, size_t more) noexcept nogil:
    cdef size_t cap = max(2 * d.cap, d.n + more)
    cdef uint8_t* p = <uint8_t*>malloc(cap)
    if p == NULL:
        d.failed = True
        return False
    memcpy(p, d.p, d.n)
    draft_free(d)
    d.p = p
    d.cap = cap
    return True


# ---- numbers -------------------------------------------------------------------------------------------

cdef void draft_number(Draft* d, uint64_t v) noexcept nogil:
    cdef uint8_t text[U64_DIGITS_MAX]
    draft_add(d, text, put_u64(text, v))


@cython.overflowcheck(False)
cdef uint32_t fnv(uint32_t h, Span s) noexcept nogil:
    # FNV-1a of 32 bits, going on from h.
    cdef uint32_t i
    for i in range(s.n):
        h = (h ^ s.p[i]) * <uint32_t>16777619
    return h


cdef uint32_t rune_size(const uint8_t* p, uint32_t n) noexcept nogil:
    cdef uint8_t first = p[0], least = 0x80, most = 0xbf
    cdef uint32_t size, i
    if first < 0x80:
        return 1
    if first < 0xc2 or first > 0xf4:
        return 0
    size = 2 if first < 0xe0 else (3 if first < 0xf0 else 4)
    if n < size:
        return 0
    if first == 0xe0:
        least = 0xa0        # shorter forms exist
    elif first == 0xed:
        most = 0x9f         # surrogates
    elif first == 0xf0:
        least = 0x90
    elif first == 0xf4:
        most = 0x8f         # behind the last code point
    if p[1] < least or p[1] > most:
        return 0
    for i in range(2, size):
        if p[i] & 0xc0 != 0x80:
            return 0
    return size


# ---- tokens --------------------------------------------------------------------------------------------

cdef struct TokenList:
    # A subject's tokens, the first ones by their places.
    Span subject
    uint32_t n
    Span[TOKENS_KEPT] first


cdef void token_list(TokenList* l, Span subject) noexcept nogil:
    cdef Tokens t = tokens_of(subject)
    l.subject = subject
    l.first[0] = span(t.p, t.n)
    l.n = 1
    while not t.last and l.n < TOKENS_KEPT:
        tokens_cut(&t)
        l.first[l.n] = span(t.p, t.n)
        l.n += 1


cdef Span token_at(const TokenList* l, uint32_t place) noexcept nogil:
    # Empty where there are fewer.
    cdef const Span* last = &l.first[l.n - 1]
    cdef Tokens t
    if place < l.n:
        return l.first[place]
    t = tokens_of(span(last.p, <uint32_t>(l.subject.p + l.subject.n - last.p)))
    place -= l.n - 1
    while place and not t.last:
        tokens_cut(&t)
        place -= 1
    return span(t.p, 0 if place else t.n)


cdef Span tokens_from(const TokenList* l, uint32_t place) noexcept nogil:
    cdef Span token = token_at(l, place)
    return span(token.p, <uint32_t>(l.subject.p + l.subject.n - token.p))


cdef inline bint cuts(const TransformPart* part, Span token) noexcept nogil:
    # Whether the token is long enough to be cut at the given number of bytes.
    return part.number > 0 and part.number < <int64_t>token.n


cdef void draft_cut(Draft* d, Span token, uint32_t at) noexcept nogil:
    # In two tokens.
    draft_add(d, token.p, at)
    draft_byte(d, c'.')
    draft_add(d, token.p + at, token.n - at)


cdef void draft_slices(Draft* d, Span token, uint32_t first, uint32_t size) noexcept nogil:
    # A token of `first` bytes, where it is not 0, then some of `size`; what is left is one more.
    cdef uint32_t at = 0, n = first if first else size
    while at < token.n:
        if at:
            draft_byte(d, c'.')
        n = min(n, token.n - at)
        draft_add(d, token.p + at, n)
        at += n
        n = size


cdef Span split_first(Span* token, Span by) noexcept nogil:
    # Takes what stands before the delimiter off the front, or all of it; without a delimiter a character.
    cdef Span part = token[0]
    cdef uint32_t i, cut = by.n
    if by.n == 0:
        part.n = max(rune_size(token.p, token.n), <uint32_t>1) if token.n else 0
    else:
        for i in range(token.n):
            if by.n <= token.n - i and memcmp(token.p + i, by.p, by.n) == 0:
                part.n = i
                break
        else:
            cut = 0
    token.p += part.n + cut
    token.n -= part.n + cut
    return part


cdef bint splits_again(Span part, Span left, Span by, Span whole) noexcept nogil:
    # Whether something follows behind `part`, be it empty: a delimiter stood there.
    if by.n == 0:
        return left.n > 0
    return part.p + part.n < whole.p + whole.n


cdef void draft_split(Draft* d, Span whole, Span by) noexcept nogil:
    # As nats-server does: empty pieces are left out, of several dots in a row there may stay some.
    cdef Span left = whole, part, following
    cdef bint first = True, again
    part = split_first(&left, by)
    while True:
        draft_add(d, part.p, part.n)
        again = splits_again(part, left, by, whole)
        if not again:
            break
        following = split_first(&left, by)
        if following.n and not (first and part.n == 0):
            draft_byte(d, c'.')
        first = False
        part = following


# ---- transforms ----------------------------------------------------------------------------------------

cdef Transform* transform_new(uint32_t n_parts, uint32_t n_places, size_t texts) noexcept nogil:
    # texts: with its source
    cdef size_t size = sizeof(Transform) + n_parts * sizeof(TransformPart) + n_places * sizeof(uint32_t) + texts
    cdef Transform* t = <Transform*>calloc(1, size)
    if t != NULL:
        t.size = size
        t.parts = <TransformPart*>(t + 1)
        t.n_parts = n_parts
        t.places = <uint32_t*>(t.parts + n_parts)
        t.texts = <uint8_t*>(t.places + n_places)
    return t


cdef Transform* transform_copy(const Transform* t) noexcept nogil:
    cdef Transform* copy
    cdef const uint8_t* of = <const uint8_t*>t
    cdef uint8_t* at
    cdef uint32_t i
    if t == NULL:
        return NULL
    copy = <Transform*>malloc(t.size)
    if copy == NULL:
        return NULL
    memcpy(copy, t, t.size)
    at = <uint8_t*>copy
    copy.parts = <TransformPart*>(copy + 1)
    copy.places = <uint32_t*>(copy.parts + copy.n_parts)
    copy.texts = at + (t.texts - of)
    copy.source.p = at + (t.source.p - of)
    for i in range(copy.n_parts):
        copy.parts[i].text.p = at + (t.parts[i].text.p - of)
    return copy


cdef void transform_free(Transform* t) noexcept nogil:
    free(t)


cdef void transform_partition(const Transform* t, const TransformPart* part, const TokenList* l, Draft* d) noexcept nogil:
    cdef uint32_t h = 2166136261, i, most = <uint32_t>part.number
    if part.n_places == 0:
        h = fnv(h, l.subject)
    for i in range(part.n_places):
        h = fnv(h, token_at(l, t.places[part.first + i]))
    draft_number(d, h % most if most else 0)


cdef void transform_token(const TransformPart* part, Span token, Draft* d) noexcept nogil:
    # What a function makes of one token.
    cdef uint32_t n = <uint32_t>part.number
    if part.kind == PART_SPLIT:
        draft_split(d, token, part.text)
    elif part.kind == PART_WILDCARD or not cuts(part, token):
        draft_add(d, token.p, token.n)
    elif part.kind == PART_SPLIT_LEFT:
        draft_cut(d, token, n)
    elif part.kind == PART_SPLIT_RIGHT:
        draft_cut(d, token, token.n - n)
    elif part.kind == PART_SLICE_LEFT:
        draft_slices(d, token, 0, n)
    elif part.kind == PART_SLICE_RIGHT:
        draft_slices(d, token, token.n % n, n)
    elif part.kind == PART_LEFT:
        draft_add(d, token.p, n)
    else:
        draft_add(d, token.p + token.n - n, n)


cdef void transform_apply(const Transform* t, Env* env, Span subject, Draft* d) noexcept nogil:
    cdef const TransformPart* part
    cdef TokenList l
    cdef Span rest
    cdef uint32_t i
    token_list(&l, subject)
    for i in range(t.n_parts):
        part = &t.parts[i]
        if part.kind == PART_TEXT:
            draft_add(d, part.text.p, part.text.n)
        elif part.kind == PART_REST:
            rest = tokens_from(&l, t.places[part.first])
            draft_add(d, rest.p, rest.n)
        elif part.kind == PART_PARTITION:
            transform_partition(t, part, &l, d)
        elif part.kind == PART_RANDOM:
            draft_number(d, env_random(env) % <uint64_t>abs_of(part.number) if part.number else 0)
        else:
            transform_token(part, token_at(&l, t.places[part.first]), d)
        if d.n > TRANSFORMED_MAX:
            d.failed = True             # a destination may name a long token many times
            break


cdef bint transform_match(const Transform* t, Env* env, Span subject, Draft* d) noexcept nogil:
    if not subject_matches(t.source, subject) or has_empty_token(subject) or not subject_is_literal(subject):
        return False
    transform_apply(t, env, subject, d)
    return True


cdef inline int64_t abs_of(int64_t v) noexcept nogil:
    return -v if v < 0 else v
