"""How many sequences of a range have no message: what cannot be told from deletes is counted."""

import json
import re

from jsserver_spark.jetstream import JetStream, StreamInfo
from jsserver_spark.text import nuid
from jsserver_spark.text.goformat import SECOND

_INACTIVE_SECONDS = 30


def missing_in(js: JetStream, info: StreamInfo, first: int, last: int) -> int | None:
    """Of the sequences first to last; None where nobody can say. `info`: of this moment."""
    state = info.state
    width = last - first + 1
    if width <= 0 or (state.num_deleted == 0 and state.first_seq <= first):
        return 0
    here = _messages_from(js, info, first)
    behind = 0 if last >= state.last_seq else _messages_from(js, info, last + 1)
    return None if here is None or behind is None else max(width - here + behind, 0)


def _messages_from(js: JetStream, info: StreamInfo, seq: int) -> int | None:
    """Messages at and behind a sequence."""
    if info.config.allow_direct:
        body = json.dumps({"seq": seq, "batch": 1}).encode()
        answer = js.request(f"{js.prefix}.DIRECT.GET.{info.name}", body)
        by = re.findall(rb"\r\nNats-Stream: ([^\r]*)\r\n", answer.header)
        pending = re.findall(rb"\r\nNats-Num-Pending: (\d+)\r\n", answer.header)
        if by and pending and by[-1] == info.name.encode():
            return int(pending[-1]) + 1
    if js.message_from(info.name, seq) is None:
        return 0
    return _pending_of_consumer(js, info, seq) if info.config.retention == "limits" else None


def _pending_of_consumer(js: JetStream, info: StreamInfo, seq: int) -> int:
    name = f"spark-{nuid.new()}"
    config = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": seq,
        "ack_policy": "none",
        "inactive_threshold": _INACTIVE_SECONDS * SECOND,
        "num_replicas": 1,
        "mem_storage": True,
    }
    made = js.api(
        f"CONSUMER.CREATE.{info.name}.{name}",
        {"stream_name": info.name, "config": config, "action": "create"},
    )
    js.api(f"CONSUMER.DELETE.{info.name}.{name}")
    return int(made["num_pending"])
