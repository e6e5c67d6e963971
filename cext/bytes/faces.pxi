# The Python face: functions for the control plane.
# Texts may be str (UTF-8, surrogateescape) or bytes.

cdef bytes text_bytes(object s):
    if isinstance(s, str):
        return (<str>s).encode("utf-8", "surrogateescape")
    return bytes(s)


cdef int key_words(bytes key, uint64_t* words) except -1:
    if len(key) != 32:
        raise ValueError(f"a HighwayHash key has 32 bytes, not {len(key)}")
    memcpy(words, <const char*>key, 32)
    return 0


# ---- functions -----------------------------------------------------------------------------------------
# A def may not bear the name of a cdef, so these are published under their names at the end.

def py_hh64(bytes key not None, bytes data not None) -> int:
    cdef uint64_t words[4]
    key_words(key, words)
    return hh64(words, <const uint8_t*><const char*>data, len(data))


def py_highway_simd(bint on) -> bool:
    global highway_simd
    highway_simd = on and highway_simd_supported()
    return highway_simd


def py_sha256(bytes data not None) -> bytes:
    cdef uint8_t out[32]
    sha256(<const uint8_t*><const char*>data, len(data), out)
    return (<char*>out)[:32]


def py_subject_matches(pattern, subject) -> bool:
    cdef bytes a = text_bytes(pattern), b = text_bytes(subject)
    return subject_matches(span_of(a), span_of(b))


def py_subject_covers(outer, inner) -> bool:
    cdef bytes a = text_bytes(outer), b = text_bytes(inner)
    return subject_covers(span_of(a), span_of(b))


def py_subjects_overlap(a, b) -> bool:
    cdef bytes x = text_bytes(a), y = text_bytes(b)
    return subjects_overlap(span_of(x), span_of(y))


def py_subject_is_valid(subject) -> bool:
    cdef bytes s = text_bytes(subject)
    return subject_is_valid(span_of(s))


def py_subject_is_literal(subject) -> bool:
    cdef bytes s = text_bytes(subject)
    return subject_is_literal(span_of(s))


globals().update(
    hh64=py_hh64,
    highway_simd=py_highway_simd,
    sha256=py_sha256,
    subject_matches=py_subject_matches,
    subject_covers=py_subject_covers,
    subjects_overlap=py_subjects_overlap,
    subject_is_valid=py_subject_is_valid,
    subject_is_literal=py_subject_is_literal,
)
