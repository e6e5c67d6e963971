# S2 and Snappy: blocks, and the stream of chunks around them (https://github.com/klauspost/compress/tree/master/s2,
# https://github.com/google/snappy/blob/main/framing_format.txt). Nothing in the input is trusted.

cdef extern from "bytes/crc32c.h" nogil:
    void copy_back(uint8_t* d, size_t offset, size_t n)

cdef enum:
    S2_PIECE = 8 << 20          # what one step of a stream gives, but for its last chunk


cdef const char* s2_why(int64_t rc) noexcept nogil:
    # An S2Error in words.
    if rc == S2_CORRUPT:
        return b"a compressed chunk is corrupt"
    if rc == S2_CHECKSUM:
        return b"a chunk's checksum does not fit"
    if rc == S2_CHUNK:
        return b"a chunk of an unknown kind or impossible size"
    if rc == S2_NO_START:
        return b"no S2 or Snappy stream"
    if rc == S2_CUT:
        return b"the compressed stream ends early"
    return b"no memory"


cdef int s2_raise(int64_t rc) except -1:
    if rc == S2_NO_MEMORY:
        raise MemoryError
    if rc < 0:
        raise ValueError(s2_why(rc).decode())
    return 0


cdef int s2_length(const uint8_t* p, size_t n, uint32_t* length) noexcept nogil:
    # The plain length that stands before a block's tags; how many bytes it takes, 0 when it is none.
    cdef Span s = span(p, <uint32_t>min(n, <size_t>5))
    cdef uint64_t value = 0
    if not get_uv(&s, &value) or value > 0xffffffffU:
        return 0
    length[0] = <uint32_t>value
    return <int>(s.p - p)


cdef int s2_tags(const uint8_t* p, const uint8_t* end, uint8_t* out, size_t length) noexcept nogil:
    # A block's tags into out[:length], behind which S2_SLACK bytes may be written. 0 or S2_CORRUPT.
    cdef uint8_t* d = out
    cdef uint8_t* stop = out + length
    cdef size_t n, offset = 0, extra
    cdef uint8_t tag, kind
    while p < end:
        tag = p[0]
        kind = tag & 3
        if kind == 0:
            n = tag >> 2
            p += 1
            if n >= 60:
                extra = n - 59
                if <size_t>(end - p) < extra:
                    return S2_CORRUPT
                n = p[0]
                if extra > 1:
                    n |= <size_t>p[1] << 8
                if extra > 2:
                    n |= <size_t>p[2] << 16
                if extra > 3:
                    n |= <size_t>p[3] << 24
                p += extra
            n += 1
            if n > <size_t>(end - p) or n > <size_t>(stop - d):
                return S2_CORRUPT
            if n <= 16 and end - p >= 16:
                memcpy(d, p, 16)
            else:
                memcpy(d, p, n)
            p += n
            d += n
            continue
        if kind == 1:
            if end - p < 2:
                return S2_CORRUPT
            n = (tag >> 2) & 7
            extra = <size_t>(tag & 0xe0) << 3 | p[1]
            p += 2
            if extra:
                offset = extra
            elif n == 5:                # the offset of the copy before
                if end - p < 1:
                    return S2_CORRUPT
                n = <size_t>p[0] + 4
                p += 1
            elif n == 6:
                if end - p < 2:
                    return S2_CORRUPT
                n = (<size_t>p[0] | <size_t>p[1] << 8) + 256
                p += 2
            elif n == 7:
                if end - p < 3:
                    return S2_CORRUPT
                n = (<size_t>p[0] | <size_t>p[1] << 8 | <size_t>p[2] << 16) + 65536
                p += 3
            n += 4
        elif kind == 2:
            if end - p < 3:
                return S2_CORRUPT
            n = (tag >> 2) + 1
            offset = <size_t>p[1] | <size_t>p[2] << 8
            p += 3
        else:
            if end - p < 5:
                return S2_CORRUPT
            n = (tag >> 2) + 1
            offset = <size_t>p[1] | <size_t>p[2] << 8 | <size_t>p[3] << 16 | <size_t>p[4] << 24
            p += 5
        if offset == 0 or offset > <size_t>(d - out) or n > <size_t>(stop - d):
            return S2_CORRUPT
        copy_back(d, offset, n)
        d += n
    return 0 if d == stop else S2_CORRUPT


cdef int s2_block(const uint8_t* p, size_t n, size_t most, Bytes* out) noexcept nogil:
    # Appends a whole block's plain bytes, at most `most`.
    cdef uint32_t length
    cdef int head = s2_length(p, n, &length)
    if head == 0 or length > most:
        return S2_CORRUPT
    if bytes_reserve(out, <size_t>length + S2_SLACK) < 0:
        return S2_NO_MEMORY
    if s2_tags(p + head, p + n, out.data + out.n, length) < 0:
        return S2_CORRUPT
    out.n += length
    return 0


cdef int64_t s2_chunk(bint* begun, const uint8_t* p, size_t n, Bytes* out) noexcept nogil:
    # Appends what the chunk at p holds. Its size; 0: n bytes are not all of it; or an error.
    cdef size_t size, before = out.n
    cdef uint32_t crc
    cdef int rc = 0
    if n < 4:
        return 0
    size = <size_t>p[1] | <size_t>p[2] << 8 | <size_t>p[3] << 16
    if p[0] == 0xff:
        if size != 6:
            return S2_CHUNK
    elif not begun[0]:
        return S2_NO_START
    elif 2 <= p[0] < 0x80 or (p[0] < 2 and size < 4) or (p[0] == 1 and size - 4 > S2_CHUNK_MAX):
        return S2_CHUNK
    if n - 4 < size:
        return 0
    if p[0] == 0xff:
        if memcmp(p + 4, b"S2sTwO", 6) != 0 and memcmp(p + 4, b"sNaPpY", 6) != 0:
            return S2_NO_START
        begun[0] = True
    elif p[0] < 2:
        if p[0] == 0:
            rc = s2_block(p + 8, size - 4, S2_CHUNK_MAX, out)
        elif bytes_add(out, p + 8, size - 4) < 0:
            rc = S2_NO_MEMORY
        if rc < 0:
            return rc
        crc = crc32c(crc_fast, out.data + before, out.n - before)
        crc = (crc >> 15 | crc << 17) + 0xa282ead8U
        if memcmp(&crc, p + 4, 4) != 0:
            out.n = before
            return S2_CHECKSUM
    return <int64_t>(size + 4)


cdef int64_t s2_said(const uint8_t* p, size_t n, size_t* size) noexcept nogil:
    # How many plain bytes the chunk that begins with these n bytes says that it holds; -1: there is none, or S2_HEAD bytes
    # are not all there. size: its own bytes.
    cdef uint32_t length = 0
    if n < 4:
        return -1
    size[0] = 4 + (<size_t>p[1] | <size_t>p[2] << 8 | <size_t>p[3] << 16)
    if 2 <= p[0] < 0x80 or (p[0] < 2 and (size[0] < 8 or n < 8)):
        return -1
    if p[0] > 1:
        return 0
    if p[0] == 1:
        length = <uint32_t>(size[0] - 8)
    elif s2_length(p + 8, min(n, size[0]) - 8, &length) == 0:
        return -1
    return length if length <= S2_CHUNK_MAX else -1


cdef int64_t s2_claim(const uint8_t* p, size_t n, size_t* size) noexcept nogil:
    # The same of a chunk all of which is there.
    cdef int64_t claim = s2_said(p, n, size)
    return claim if claim < 0 or size[0] <= n else -1


cdef int s2_whole(const uint8_t* p, size_t n, size_t most, Bytes* out) noexcept nogil:
    # Appends all that a whole stream holds, up to `most` bytes and a chunk.
    cdef bint begun = False
    cdef int64_t size
    while n:
        size = s2_chunk(&begun, p, n, out)
        if size <= 0:
            return <int>size if size < 0 else S2_CUT
        p += size
        n -= size
        if out.n > most:
            return S2_CHUNK
    return 0


# ---- the Python face -------------------------------------------------------------------------------------------

def s2_decode(data):
    """The plain bytes of one block. ValueError."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef const uint8_t* p = &view[0] if len(view) else NULL
    cdef size_t n = len(view)
    cdef Bytes out
    cdef int rc
    memset(&out, 0, sizeof(out))
    with nogil:
        rc = s2_block(p, n, 256 << 20, &out)
    try:
        s2_raise(rc)
        return (<const char*>out.data)[:out.n] if out.n else b""
    finally:
        bytes_free(&out)


def crc32c_of(data):
    """Both ways of computing a CRC-32C, which must agree: with the processor's instruction, and from tables."""
    cdef bytes b = bytes(data)
    cdef const uint8_t* p = <const uint8_t*><const char*>b
    return crc32c(crc_fast, p, len(b)), crc32c(0, p, len(b))


cdef class S2Stream:
    """Decodes a stream as its pieces come."""
    cdef Bytes pending          # of a chunk whose rest is still to come
    cdef Bytes out
    cdef bint begun

    def __dealloc__(self):
        bytes_free(&self.pending)
        bytes_free(&self.out)

    def feed(self, data):
        cdef const uint8_t[::1] view = memoryview(data).cast("B")
        cdef int64_t size = 0
        cdef size_t at = 0
        if len(view) and bytes_add(&self.pending, &view[0], len(view)) < 0:
            raise MemoryError
        self.out.n = 0
        with nogil:
            while at < self.pending.n and self.out.n < S2_PIECE:
                size = s2_chunk(&self.begun, self.pending.data + at, self.pending.n - at, &self.out)
                if size <= 0:
                    break
                at += size
        s2_raise(size)
        if at:
            memmove(self.pending.data, self.pending.data + at, self.pending.n - at)
            self.pending.n -= at
        return (<const char*>self.out.data)[:self.out.n] if self.out.n else b""

    def finish(self):
        if self.pending.n:
            s2_raise(S2_CUT)
        if not self.begun:
            s2_raise(S2_NO_START)
