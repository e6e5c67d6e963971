"""Backups as clients make and restore them, over the API."""

import json
from typing import Any

from tests.client.raw import Frame, RawApp

CHUNK = 64 << 10


def backup(client: RawApp, stream: str, **asked: Any) -> tuple[dict[str, Any], bytes, Frame]:
    """The answer, the archive and the last message."""
    inbox = client.inbox()
    chunks = str(client.last_sid)
    reply = client.inbox()
    request = json.dumps({"deliver_subject": inbox, **asked}).encode()
    client.publish(f"$JS.API.STREAM.SNAPSHOT.{stream}", request, reply=reply)
    answer: Any = None
    last: Frame | None = None
    archive = bytearray()
    while answer is None or last is None:  # nats-server's first chunk may come before the answer
        frame = client.message()
        if frame.sid != chunks:
            answer = json.loads(frame.payload)
            assert "error" not in answer, answer
        elif not frame.payload:
            last = frame
        else:
            archive += frame.payload
            if frame.reply:
                client.publish(frame.reply)
    client.send(f"UNSUB {chunks}\r\n".encode())
    return answer, bytes(archive), last


def restore(
    client: RawApp, config: dict[str, Any], archive: bytes, chunk: int = CHUNK
) -> dict[str, Any]:
    """The last answer: to the request, to a chunk that failed, or to the end."""
    name = config["name"]
    answer: Any = client.api(f"STREAM.RESTORE.{name}", {"config": config, "state": {}})
    if "error" in answer:
        return dict(answer)
    subject = answer["deliver_subject"]
    for at in range(0, len(archive), chunk):
        frame = client.request(subject, archive[at : at + chunk])
        if frame.payload:
            return dict(json.loads(frame.payload))
    return dict(json.loads(client.request(subject).payload))


def stored(client: RawApp, stream: str) -> tuple[dict[str, Any], list[Any]]:
    """A stream's figures, and its messages."""
    info: Any = client.api(f"STREAM.INFO.{stream}", {"deleted_details": True})
    assert "error" not in info, info
    messages: list[Any] = []
    seq = 1
    while True:
        answer: Any = client.api(f"STREAM.MSG.GET.{stream}", {"seq": seq, "next_by_subj": ">"})
        if "message" not in answer:
            return info, messages
        messages.append(answer["message"])
        seq = answer["message"]["seq"] + 1
