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


def py_sync_file_system(int descriptor) -> None:
    cdef int rc
    with nogil:
        rc = posix_sync_all(NULL, descriptor)
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc))


def py_begin_writing(list descriptors not None) -> None:
    cdef int fd
    for fd in descriptors:
        with nogil:
            # What fails here fails again, and is told, where the file is synced.
            sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE)


cdef bytes path_bytes(object path):
    cdef bytes raw = os.fsencode(path)
    if 0 in raw:
        raise ValueError("embedded null byte")
    return raw


def py_make_directory_of(path, folders, files) -> list:
    cdef list texts = [path_bytes(path)]
    cdef NewDirectory d
    cdef bytes text
    cdef int rc
    memset(&d, 0, sizeof(NewDirectory))
    if len(folders) > NEW_PARTS or len(files) > NEW_PARTS:
        raise ValueError(f"a new directory has at most {NEW_PARTS} folders and files")
    d.path = <const char*><bytes>texts[0]
    for name in folders:
        text = path_bytes(f"{path}/{name}")
        texts.append(text)
        d.folders[d.n_folders] = text
        d.n_folders += 1
    for name, body in files.items():
        text = path_bytes(f"{path}/{name}")
        texts.append(text)
        d.files[d.n_files] = text
        d.bodies[d.n_files] = span_of(body)
        d.n_files += 1
    with nogil:
        rc = directory_make(&d)
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc))
    return [d.opened[i] for i in range(d.n_opened)]


def py_place_directory(path, name, parent) -> int:
    cdef bytes whole = path_bytes(path), to = path_bytes(name), of = path_bytes(parent)
    cdef const char* a = whole
    cdef const char* b = to
    cdef const char* c = of
    cdef int fd
    with nogil:
        fd = directory_place(a, b, c)
    if fd < 0:
        raise OSError(-fd, os.strerror(-fd))
    return fd


def py_close_files(list descriptors not None) -> None:
    cdef int opened[NEW_PARTS + 1]
    cdef uint32_t n = len(descriptors), i
    if n > NEW_PARTS + 1:
        raise ValueError(f"at most {NEW_PARTS + 1} descriptors")
    for i in range(n):
        opened[i] = descriptors[i]
    with nogil:
        descriptors_close(opened, n)


def py_snappy(bytes data not None) -> bytes:
    cdef const uint8_t* p = <const uint8_t*><const char*>data
    cdef size_t n = len(data), made
    cdef uint8_t* out = <uint8_t*>malloc(snappy_room(n))
    if out == NULL:
        raise MemoryError
    with nogil:
        made = snappy_stream(p, n, out)
    try:
        return (<char*>out)[:made]
    finally:
        free(out)


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


# ---- patterns that meet ----------------------------------------------------------------------------------

class SearchLimit(Exception):
    pass


cdef class _Spans:
    # Texts as spans, for as long as this lives.
    cdef list kept
    cdef Span* a
    cdef uint32_t n

    def __cinit__(self, texts):
        cdef uint32_t i
        self.kept = [text_bytes(text) for text in texts]
        if len(self.kept) >= OVERLAP_MEMORY:
            raise OverflowError("too many texts")
        self.n = len(self.kept)
        self.a = <Span*>malloc(max(self.n, <uint32_t>1) * sizeof(Span))
        if self.a == NULL:
            raise MemoryError
        for i in range(self.n):
            self.a[i] = span_of(<bytes>self.kept[i])

    def __dealloc__(self):
        free(self.a)


cdef object number_found(uint32_t found):
    if found == OVERLAP_NONE:
        return None
    if found == OVERLAP_MEMORY:
        raise MemoryError
    if found == OVERLAP_LIMIT:
        raise SearchLimit("too many wildcards stand beside each other")
    return found


def py_first_overlap(patterns, uint32_t end, uint64_t steps) -> tuple | None:
    cdef _Spans spans = _Spans(patterns)
    cdef MeetTrie x
    cdef FirstMeeting first
    memset(&x, 0, sizeof(MeetTrie))
    x.steps = steps
    with nogil:
        first = meet_first(&x, spans.a, spans.n, end)
        meet_free(&x)
    return None if number_found(first.a) is None else (first.a, first.b)


def py_first_covered(patterns, uint32_t end, uint64_t steps) -> int | None:
    cdef _Spans spans = _Spans(patterns)
    cdef MeetTrie x
    cdef uint32_t found
    memset(&x, 0, sizeof(MeetTrie))
    x.steps = steps
    with nogil:
        found = meet_first_covered(&x, spans.a, spans.n, end)
        meet_free(&x)
    return number_found(found)


def py_any_overlap(patterns, pattern) -> bool:
    cdef bytes one = text_bytes(pattern), other
    cdef Span span = span_of(one)
    for text in patterns:
        other = text_bytes(text)
        if subjects_overlap(span_of(other), span):
            return True
    return False


cdef class PatternIndex:
    cdef MeetTrie x
    cdef uint32_t n         # patterns that were added

    def __dealloc__(self):
        meet_free(&self.x)

    def add(self, patterns):
        cdef _Spans spans = _Spans(patterns)
        cdef uint32_t i, done
        cdef int rc
        for i in range(spans.n):
            rc = meet_split(&self.x, spans.a[i])
            if rc > 0:
                rc = meet_add(&self.x, self.n + i)
            if rc < 0:
                for done in range(i):
                    if meet_split(&self.x, spans.a[done]) > 0:
                        meet_remove(&self.x)
                raise MemoryError
        self.n += spans.n

    def remove(self, patterns):
        cdef _Spans spans = _Spans(patterns)
        cdef uint32_t i
        cdef int rc
        for i in range(spans.n):
            rc = meet_split(&self.x, spans.a[i])
            if rc < 0:
                raise MemoryError
            if rc and not meet_remove(&self.x):
                raise KeyError(patterns[i])

    def first_covering(self, pattern) -> int | None:
        cdef bytes one = text_bytes(pattern)
        cdef int rc = meet_split(&self.x, span_of(one))
        self.x.steps = UINT64_MAX
        if rc == 0:
            return None
        return number_found(OVERLAP_MEMORY if rc < 0 else meet_search(&self.x, COVERING, False))

    def meets(self, patterns, uint64_t steps) -> bool:
        cdef _Spans spans = _Spans(patterns)
        cdef uint32_t i, found = OVERLAP_NONE
        cdef int rc
        self.x.steps = steps
        for i in range(spans.n):
            rc = meet_split(&self.x, spans.a[i])
            if rc == 0:
                continue
            found = OVERLAP_MEMORY if rc < 0 else meet_search(&self.x, OVERLAPPING, True)
            if found != OVERLAP_NONE:
                break
        return number_found(found) is not None


# ---- transforms ----------------------------------------------------------------------------------------

_PARTS = {
    "text": PART_TEXT,
    "wildcard": PART_WILDCARD,
    "partition": PART_PARTITION,
    "splitFromLeft": PART_SPLIT_LEFT,
    "splitFromRight": PART_SPLIT_RIGHT,
    "sliceFromLeft": PART_SLICE_LEFT,
    "sliceFromRight": PART_SLICE_RIGHT,
    "split": PART_SPLIT,
    "left": PART_LEFT,
    "right": PART_RIGHT,
    "random": PART_RANDOM,
    "rest": PART_REST,
}


cdef class SubjectTransform:

    def __cinit__(self, bytes source not None, parts not None):
        cdef uint32_t n_places = sum(len(places) for _, _, _, places in parts)
        cdef size_t texts = len(source) + sum(len(text) for _, _, text, _ in parts)
        cdef TransformPart* part
        cdef Span text
        cdef uint8_t* at
        cdef uint32_t i = 0, place = 0
        self.t = transform_new(len(parts), n_places, texts)
        if self.t == NULL:
            raise MemoryError
        at = self.t.texts
        self.t.source = span_of(source)
        place_text(&at, &self.t.source)
        for kind, number, raw, places in parts:
            part = &self.t.parts[i]
            part.kind = _PARTS[kind]
            part.number = <int32_t><uint32_t>(number & 0xFFFFFFFF)
            text = span_of(raw)
            place_text(&at, &text)
            part.text = text
            part.first = place
            part.n_places = len(places)
            if part.n_places == 0 and part.kind not in (PART_TEXT, PART_PARTITION, PART_RANDOM):
                raise ValueError(f"{kind} is of no token")
            for number in places:
                self.t.places[place] = number
                place += 1
            i += 1

    def __dealloc__(self):
        transform_free(self.t)

    def __call__(self, subject):
        cdef bytes raw = text_bytes(subject)
        cdef Env env
        cdef Draft d
        cdef bint matched
        memset(&env, 0, sizeof(Env))
        env.random = <uint64_t>posix_system().clock(NULL) | 1
        draft_open(&d)
        matched = transform_match(self.t, &env, span_of(raw), &d)
        made = (<const char*>d.p)[:d.n]
        draft_free(&d)
        if d.failed:
            raise OverflowError("the subject becomes too long")
        return made if matched else None


globals().update(
    hh64=py_hh64,
    highway_simd=py_highway_simd,
    sha256=py_sha256,
    sync_file_system=py_sync_file_system,
    begin_writing=py_begin_writing,
    make_directory_of=py_make_directory_of,
    place_directory=py_place_directory,
    close_files=py_close_files,
    snappy=py_snappy,
    first_overlap=py_first_overlap,
    first_covered=py_first_covered,
    any_overlap=py_any_overlap,
    subject_matches=py_subject_matches,
    subject_covers=py_subject_covers,
    subjects_overlap=py_subjects_overlap,
    subject_is_valid=py_subject_is_valid,
    subject_is_literal=py_subject_is_literal,
)
