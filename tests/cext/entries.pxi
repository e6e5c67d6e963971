# Entries of a stream's group as tests see them.

def get_change(bytes entry not None) -> "dict | None":
    """What an entry of a stream's group says, without what is empty; None: it is none."""
    cdef StreamEntry e
    cdef Bytes kept
    memset(&kept, 0, sizeof(Bytes))
    try:
        if change_get(span_of(entry), &kept, &e) != 1:
            return None
        said = {
            "kind": <int>e.change.kind, "lseq": e.lseq, "seq": e.change.seq, "ts": e.change.ts, "most": e.change.most,
            "keep": e.change.keep, "erase": bool(e.change.erase), "subject": span_bytes(e.change.subject),
            "header": span_bytes(e.change.header), "data": span_bytes(e.change.data), "reply": span_bytes(e.reply),
            "sourced": bool(e.sourced), "judged": bool(e.judged), "unwanted": bool(e.unwanted),
            "batch": span_bytes(e.batch), "batch_seq": e.batch_seq,
            "batch_ends": bool(e.batch_ends), "client": span_bytes(e.client), "stream": span_bytes(e.stream),
            "api": span_bytes(e.api), "last": e.last,
        }
        return {key: value for key, value in said.items() if value}
    finally:
        bytes_free(&kept)


def put_change(dict said not None) -> bytes:
    """The entry that says so."""
    cdef StreamEntry e
    cdef Bytes out
    memset(&e, 0, sizeof(StreamEntry))
    memset(&out, 0, sizeof(Bytes))
    texts = {key: said.get(key, b"") for key in ("subject", "header", "data", "reply", "batch", "client", "stream", "api")}
    e.change.kind = said["kind"]
    e.lseq, e.last, e.batch_seq = said.get("lseq", 0), said.get("last", 0), said.get("batch_seq", 0)
    e.change.seq, e.change.ts, e.change.most = said.get("seq", 0), said.get("ts", 0), said.get("most", 0)
    e.change.keep, e.change.erase = said.get("keep", 0), said.get("erase", False)
    e.sourced, e.batch_ends = said.get("sourced", False), said.get("batch_ends", False)
    e.judged, e.unwanted = said.get("judged", False), said.get("unwanted", False)
    e.change.subject, e.change.header = span_of(texts["subject"]), span_of(texts["header"])
    e.change.data, e.reply, e.batch = span_of(texts["data"]), span_of(texts["reply"]), span_of(texts["batch"])
    e.client, e.stream, e.api = span_of(texts["client"]), span_of(texts["stream"]), span_of(texts["api"])
    try:
        rc = change_put(&e, &out)
        if rc < 0:
            raise ValueError(rc)
        return (<const char*>out.data)[:out.n]
    finally:
        bytes_free(&out)
