"""Requests of our own about consumers, `$JS.API.JSSERVER.CONSUMER.*`, which nats-server has not.

They show and change nothing that an account's other requests could not: a client that may delete a
consumer may also release the messages that the consumer waits for.
"""

from jsserver.instances.backend import ConsumerWait
from jsserver.instances.running import Consumer, Stream
from jsserver.text import goformat
from jsserver.wire import errcodes
from jsserver.wire.types import (
    ConsumerClaimRequest,
    ConsumerPendingRequest,
    ConsumerReleaseRequest,
)

from .call import Call
from .responses import (
    ConsumerLag,
    ConsumerPending,
    ConsumerReleased,
    ConsumerWaits,
    PendingMessage,
    WaitReason,
)

PAGE = 256
"""Messages of one answer, and of one release or claim."""

_TEXTS = {
    "": "it delivers",
    "stream": "its stream stores nothing at the moment",
    "leader": "another server delivers",
    "paused": "it is paused",
    "no_interest": "nobody listens on its deliver subject",
    "no_request": "no pull request waits",
    "counting": "where it starts, or how much is pending, is still looked for",
    "flow_control": "{count} bytes are on their way that nobody confirmed",
    "max_ack_pending": "{count} messages are not acked, the most that may be; the oldest is {seq}",
    "disk": "the next message is read from the disk",
    "replay": "messages are replayed at the pace at which they came",
    "rate_limit": "its rate limit is reached",
    "pinned": "the pinned client does not ask",
    "overflow": "less is pending than the requests that wait ask for",
    "backoff": "all is delivered, and {count} messages that are not acked are not due yet",
    "no_message": "all that is stored and matches is delivered",
    "room": "the client that pulls has not yet taken what was sent before",
}
REASONS = tuple(_TEXTS)
"""By the data plane's numbers (WAITS_*)."""


def reason_of(wait: ConsumerWait) -> WaitReason:
    """Why a consumer delivers nothing, as answers and pages show it."""
    reason = REASONS[wait.reason]
    return WaitReason(
        reason=reason,
        text=_TEXTS[reason].format(count=wait.number, seq=wait.seq),
        until=goformat.rfc3339_nano(wait.until) if wait.until else "",
        count=wait.number,
        seq=wait.seq,
    )


def _age(stream: Stream, seq: int, now: int) -> int:
    """How long ago the message was stored; 0 if there is none."""
    message = stream.handle.get(seq) if seq else None
    return max(now - message.ts, 0) if message is not None else 0


def _lag(call: Call, stream: Stream, consumer: Consumer) -> ConsumerLag:
    state = consumer.handle.state()
    ahead, unacked = consumer.handle.oldest()
    now = call.shared.clock()
    return ConsumerLag(
        messages=state.num_pending,
        age=_age(stream, ahead, now),
        seq=ahead,
        unacked=state.num_ack_pending,
        unacked_age=_age(stream, unacked, now),
        unacked_seq=unacked,
    )


async def _named(call: Call) -> tuple[Stream, Consumer]:
    """The stream and its consumer that a request is about, or ApiError."""
    stream = call.account.stream(call.args[0])
    return stream, stream.consumer(call.args[1])


async def waits(call: Call) -> ConsumerWaits:
    """Why a consumer delivers nothing, and how far it is behind."""
    call.no_body()
    stream, consumer = await _named(call)
    lag = await call.shared.run(_lag, call, stream, consumer)
    answer = ConsumerWaits(
        stream_name=stream.name,
        name=consumer.name,
        waits=reason_of(consumer.handle.waits()),
        lag=lag,
    )
    call.shows(stream)
    return answer


async def pending(call: Call) -> ConsumerPending:
    """What was delivered and is not acked, by sequence."""
    request = await call.request(ConsumerPendingRequest)
    stream, consumer = await _named(call)
    limit = min(max(request.limit, 0) or PAGE, PAGE)
    found = await call.shared.run(consumer.handle.pending, request.seq, limit, max(request.idle, 0))
    now = call.shared.clock()
    answer = ConsumerPending(
        stream_name=stream.name,
        name=consumer.name,
        num_ack_pending=consumer.handle.state().num_ack_pending,
        messages=[
            PendingMessage(
                seq=one.seq,
                subject=goformat.json_text(one.subject),
                deliveries=one.deliveries,
                since=goformat.rfc3339_nano(one.sent),
                idle=max(now - one.sent, 0),
                due=goformat.rfc3339_nano(one.due) if one.due else "",
                queued=one.queued,
            )
            for one in found
        ],
    )
    if len(found) == limit:
        answer.next = found[-1].seq + 1
    call.shows(stream)
    return answer


def _chosen(request: ConsumerReleaseRequest, consumer: Consumer) -> list[int]:
    """The sequences that a request names, or of the messages that are idle for so long."""
    if len(request.seqs) > PAGE:
        raise errcodes.STREAM_INVALID_CONFIG(err=f"more than {PAGE} sequences in one request")
    if request.seqs:
        return request.seqs
    limit = min(max(request.limit, 0) or PAGE, PAGE)
    return [one.seq for one in consumer.handle.pending(0, limit, max(request.idle, 0))]


def _released(request: ConsumerReleaseRequest, consumer: Consumer, deliver: str) -> list[int]:
    return consumer.handle.release(
        _chosen(request, consumer), max(request.idle, 0), deliver.encode()
    )


async def release(call: Call) -> ConsumerReleased:
    """Messages that are not acked are delivered again now, to clients that pull or listen."""
    request = await call.request(ConsumerReleaseRequest)
    stream, consumer = await _named(call)
    seqs = await call.shared.run(_released, request, consumer, "")
    return ConsumerReleased(stream_name=stream.name, name=consumer.name, seqs=seqs)


async def claim(call: Call) -> ConsumerReleased:
    """As `release`, of a pull consumer and to one subject."""
    request = await call.request(ConsumerClaimRequest)
    stream, consumer = await _named(call)
    if not request.deliver:
        raise errcodes.INVALID_JSON(err="no subject to deliver to")
    if consumer.config.deliver_subject:
        raise errcodes.STREAM_INVALID_CONFIG(err="consumer is push based")
    if not call.account.handle.subject_interest(request.deliver.encode()):
        raise errcodes.STREAM_INVALID_CONFIG(err="nobody listens on the subject to deliver to")
    seqs = await call.shared.run(_released, request, consumer, request.deliver)
    return ConsumerReleased(stream_name=stream.name, name=consumer.name, seqs=seqs)


HANDLERS = {"WAITS": waits, "PENDING": pending, "RELEASE": release, "CLAIM": claim}
"""By the last token of the request's name."""
