# Included by bytes.pxd: subjects, headers, JSON, times, and texts in the making.

# ---- subjects --------------------------------------------------------------------------------------

cdef struct Tokens:
    # A walk over a subject's tokens: tokens_of gives the first as p[:n], tokens_cut, unless `last`, the next.
    const uint8_t* p
    uint32_t n
    const uint8_t* rest
    uint32_t n_rest
    bint last               # no token follows

cdef inline void tokens_cut(Tokens* t) noexcept nogil:
    cdef const uint8_t* dot = NULL
    if t.n_rest:
        dot = <const uint8_t*>memchr(t.rest, c'.', t.n_rest)
    t.p = t.rest
    if dot == NULL:
        t.n = t.n_rest
        t.last = True
    else:
        t.n = <uint32_t>(dot - t.rest)
        t.rest = dot + 1
        t.n_rest -= t.n + 1

cdef inline Tokens tokens_of(Span s) noexcept nogil:
    cdef Tokens t
    t.rest = s.p
    t.n_rest = s.n
    t.last = False
    tokens_cut(&t)
    return t

cdef inline bint is_star(const Tokens* t) noexcept nogil:
    return t.n == 1 and t.p[0] == c'*'

# A > at the end.
cdef inline bint is_tail(const Tokens* t) noexcept nogil:
    return t.n == 1 and t.last and t.p[0] == c'>'

cdef inline bint same_token(const Tokens* a, const Tokens* b) noexcept nogil:
    return a.n == b.n and (a.n == 0 or memcmp(a.p, b.p, a.n) == 0)

# Whether a token of it is empty, or all of it.
cdef inline bint has_empty_token(Span s) noexcept nogil:
    cdef Tokens t = tokens_of(s)
    while t.n and not t.last:
        tokens_cut(&t)
    return t.n == 0

# Whether `pattern` (with * and >) matches `subject`; `subject`'s own wildcards count as literals.
cdef bint subject_matches(Span pattern, Span subject) noexcept nogil
cdef bint subject_is_literal(Span s) noexcept nogil
# No empty token, > only last, no blanks: what SUB and stream subjects must be.
cdef bint subject_is_valid(Span s) noexcept nogil
# Whether every literal that `inner` matches is matched by `outer`.
cdef bint subject_covers(Span outer, Span inner) noexcept nogil
# Whether some literal is matched by both.
cdef bint subjects_overlap(Span a, Span b) noexcept nogil


# ---- patterns --------------------------------------------------------------------------------------

ctypedef int (*pattern_fn)(void* ctx, void* kept) noexcept nogil

cdef struct PatternNode:
    PatternNode* parent     # NULL: the root
    PatternNode* star       # the child `*`
    void* here              # what is kept for the pattern that ends with this token
    void* tail              # and for that which goes on with > alone
    uint32_t n_edges        # literal children
    uint32_t n_token        # bytes that follow the node; the star's and root's have none

cdef struct PatternTrie:
    # One thing for each of many subjects with wildcards. All edges share one table, so that a node is small and needs none
    # of its own. Zeroed before the first pattern, and not moved behind it.
    Table edges
    PatternNode root
    uint32_t n              # other nodes

# Where what is kept for a pattern stands or is to stand, and the node of that; NULL: no memory. As soon as nothing stands
# there the node is pruned: it and what is above it go, as far as nothing hangs on them.
cdef void** patterns_place(PatternTrie* x, Span pattern, PatternNode** node) noexcept nogil
cdef void patterns_prune(PatternTrie* x, PatternNode* node) noexcept nogil
# Calls fn with what is kept for each pattern that matches a subject without empty tokens, until it returns other than 0; and
# returns that. fn changes no pattern.
cdef int patterns_match(const PatternTrie* x, Span subject, pattern_fn fn, void* ctx) noexcept nogil
cdef void patterns_each(const PatternTrie* x, pattern_fn fn, void* ctx) noexcept nogil


# ---- headers ---------------------------------------------------------------------------------------

# The value of the first line `name: value` in a header block, blanks before it skipped; .p NULL if absent.
# Names are case-sensitive and must follow CRLF directly, as nats-server looks them up.
cdef Span header_get(Span block, const char* name) noexcept nogil


# ---- numbers ---------------------------------------------------------------------------------------

cdef enum:
    U64_DIGITS_MAX = 20

cdef inline uint64_t eight_digits(uint64_t v) noexcept nogil:
    # v, below 10^8, as eight digits of a byte each, the first in the lowest byte: pairs of halves are divided side by side in
    # one register, by multiplying with 1/100 and 1/10.
    cdef uint64_t x = v // 10000 | v % 10000 << 32
    cdef uint64_t y = x * 10486 >> 20 & <uint64_t>0x7f0000007f
    x = y | x - y * 100 << 16
    y = x * 103 >> 10 & <uint64_t>0xf000f000f000f
    return y | x - y * 10 << 8


cdef inline uint32_t put_digits(uint8_t* p, uint64_t digits) noexcept nogil:
    # Eight of them as eight_digits gives them, without zeros in front. Two stores that overlap, where a loop would be guessed
    # wrong: numbers in the subject of an ack differ in length.
    cdef uint32_t lead = low_bit(digits | <uint64_t>1 << 63) >> 3, n = 8 - lead
    cdef uint64_t x = (digits | <uint64_t>0x3030303030303030) >> 8 * lead, rest
    if n >= 4:
        rest = x >> 8 * (n - 4)
        memcpy(p, &x, 4)
        memcpy(p + n - 4, &rest, 4)
    elif n >= 2:
        rest = x >> 8 * (n - 2)
        memcpy(p, &x, 2)
        memcpy(p + n - 2, &rest, 2)
    else:
        p[0] = <uint8_t>x
    return n


# The decimal digits of v at p; returns how many.
cdef inline uint32_t put_u64(uint8_t* p, uint64_t v) noexcept nogil:
    # Eight digits a step: the subject of an ack, of every message that is delivered, has forty.
    cdef uint64_t low[2]
    cdef uint64_t digits
    cdef uint32_t n_low = 0, n
    while v >= 100000000:
        low[n_low] = eight_digits(v % 100000000)
        n_low += 1
        v = v // 100000000
    n = put_digits(p, eight_digits(v))
    while n_low:
        n_low -= 1
        digits = low[n_low] | <uint64_t>0x3030303030303030
        memcpy(p + n, &digits, 8)
        n += 8
    return n


# ---- JSON ------------------------------------------------------------------------------------------

cdef enum JsonKind:
    JSON_NULL = 0
    JSON_FALSE
    JSON_TRUE
    JSON_NUMBER
    JSON_STRING
    JSON_ARRAY
    JSON_OBJECT

cdef struct JsonItem:
    int kind
    Span text               # a string's inside, a number's or word's text, a nested value whole
    bint escaped            # a string with escapes: json_text resolves them

cdef struct JsonReader:
    const uint8_t* p
    const uint8_t* end
    bint first
    uint8_t close

cdef void json_open(JsonReader* r, Span text) noexcept nogil
cdef bint json_enter_object(JsonReader* r) noexcept nogil                        # False: it is none
cdef bint json_enter_array(JsonReader* r) noexcept nogil
cdef int json_next_member(JsonReader* r, JsonItem* key, JsonItem* val) noexcept nogil   # 1 | 0 end | -1 bad JSON
cdef int json_next_element(JsonReader* r, JsonItem* val) noexcept nogil                 # likewise
cdef bint json_at_end(JsonReader* r) noexcept nogil
cdef bint json_key_is(const JsonItem* key, const char* lower_case_name) noexcept nogil
cdef bint json_int(const JsonItem* it, int64_t* out) noexcept nogil
cdef bint json_uint(const JsonItem* it, uint64_t* out) noexcept nogil
# null leaves what is there.
cdef bint json_bool(const JsonItem* it, bint* out) noexcept nogil
cdef int json_text(const JsonItem* it, uint8_t* out, uint32_t cap) noexcept nogil       # length | -1
cdef uint32_t put_base64(uint8_t* p, Span s) noexcept nogil     # with padding: how many bytes


# ---- times as texts ----------------------------------------------------------------------------------

cdef enum:
    SECOND_TEXT = 19        # 2006-01-02T15:04:05

cdef struct WholeSecond:
    # The last second that was written as text: messages come many a second. Zeroed before the first.
    int64_t seconds
    uint8_t text[SECOND_TEXT + 1]

# RFC 3339 in UTC, trailing zeros of the fraction dropped, at p (at most 40 bytes); returns how many. ns: since 1970.
cdef uint32_t put_time(uint8_t* p, int64_t ns, WholeSecond* last) noexcept nogil
# ".5" for 500 of width 3: v as a fraction, zeros at its end dropped; nothing for 0. Returns how many bytes.
cdef uint32_t put_fraction(uint8_t* p, uint64_t v, uint32_t width) noexcept nogil


# ---- texts in the making, and transforms of subjects -----------------------------------------------

cdef enum:
    DRAFT_OWN = 512

cdef struct Draft:
    # A text in the making, on the stack where it is short: draft_open first, draft_free last; it is not copied.
    uint8_t* p
    size_t n
    size_t cap
    bint failed             # memory ran out, or it became too long: the text is not whole
    uint8_t[DRAFT_OWN] own

cdef inline void draft_open(Draft* d) noexcept nogil:
    d.p = d.own
    d.n = 0
    d.cap = DRAFT_OWN
    d.failed = False

cdef inline void draft_free(Draft* d) noexcept nogil:
    if d.p != d.own:
        free(d.p)

cdef bint draft_grow(Draft* d, size_t more) noexcept nogil
cdef inline void draft_add(Draft* d, const void* p, size_t n) noexcept nogil:
    if n and (n <= d.cap - d.n or draft_grow(d, n)):
        memcpy(d.p + d.n, p, n)
        d.n += n

cdef inline void draft_byte(Draft* d, uint8_t ch) noexcept nogil:
    draft_add(d, &ch, 1)
cdef void draft_number(Draft* d, uint64_t v) noexcept nogil
# Of a whole one that is no longer than a span can be.
cdef inline Span draft_span(const Draft* d) noexcept nogil:
    return span(d.p, <uint32_t>d.n)
cdef struct Env
# What becomes of the subjects that its source matches: read and checked by jsserver/text/transforms.py, made by SubjectTransform.
cdef struct Transform
# Each user of one has a copy. NULL: no memory, or there is none.
cdef Transform* transform_copy(const Transform* t) noexcept nogil
cdef void transform_free(Transform* t) noexcept nogil
# Adds what becomes of a subject that its source matches; failed: that is longer than 65,535 bytes.
cdef void transform_apply(const Transform* t, Env* env, Span subject, Draft* d) noexcept nogil
# Whether the source matches the subject, of which no token is empty or a wildcard; adds what becomes of it then.
cdef bint transform_match(const Transform* t, Env* env, Span subject, Draft* d) noexcept nogil
# Bytes of the UTF-8 sequence at p[0:n]; 0: there is none (RFC 3629).
cdef uint32_t rune_size(const uint8_t* p, uint32_t n) noexcept nogil
cdef class SubjectTransform:
    # bytes.pyi says what it is.
    cdef Transform* t
