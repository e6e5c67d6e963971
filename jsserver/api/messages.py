"""Handlers of `$JS.API.STREAM.MSG.*`: reading and deleting single messages."""

from jsserver.instances.backend import Message
from jsserver.instances.running import Stream
from jsserver.text import goformat
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import MessageDeleteRequest, MessageGetRequest

from .call import Call
from .responses import MessageGetResponse, StoredMessage, SuccessResponse


async def get(call: Call) -> MessageGetResponse:
    """STREAM.MSG.GET: by sequence, time, or last or next of a subject."""
    request = await call.required(MessageGetRequest)
    last, following = request.last_by_subj, request.next_by_subj
    if (
        request.batch > 0
        or request.max_bytes > 0
        or not (request.seq or last or following or request.start_time)
        or (request.seq and (last or request.start_time))
        or (last and (following or request.start_time))
    ):
        raise errcodes.BAD_REQUEST()
    stream = call.account.stream(call.args[0])
    message = await call.shared.run(_find, stream, request)
    call.shows(stream, message.seq if message is not None else 0)
    if message is None:
        raise errcodes.NO_MESSAGE_FOUND()
    return MessageGetResponse(
        message=StoredMessage(
            subject=goformat.json_text(message.subject),
            seq=message.seq,
            hdrs=b"" if request.no_hdr else message.headers,
            data=message.data,
            time=goformat.rfc3339_nano(message.ts),
        )
    )


def _find(stream: Stream, request: MessageGetRequest) -> Message | None:
    handle = stream.handle
    if request.last_by_subj:
        return handle.last_for(request.last_by_subj.encode())
    if request.start_time:
        start = handle.at_time(goformat.instant(request.start_time))
        return handle.next_for(request.next_by_subj.encode(), start)
    if request.next_by_subj:
        return handle.next_for(request.next_by_subj.encode(), request.seq)
    return handle.get(request.seq)


async def delete(call: Call) -> SuccessResponse:
    """STREAM.MSG.DELETE: unlinks a message, and unless asked otherwise overwrites its bytes."""
    name = call.args[0]
    async with call.account.lock(name):
        request = await call.required(MessageDeleteRequest)
        stream = call.account.stream(name)
        check_delete(stream)
        refused = await call.shared.run(_delete, stream, request)
    # Not raised: what the store refuses is no failed request where nats-server counts them.
    return SuccessResponse(success=refused is None, error=refused.body if refused else None)


def check_delete(stream: Stream) -> None:
    """ApiError where no message of a stream may be deleted."""
    if stream.config.sealed:
        raise errcodes.STREAM_SEALED()
    if stream.config.deny_delete:
        raise errcodes.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")


def _delete(stream: Stream, request: MessageDeleteRequest) -> ApiError | None:
    if stream.handle.delete(request.seq, not request.no_erase):
        stream.handle.wait_durable()
        return None
    return refusal(stream, request.seq)


def refusal(stream: Stream, seq: int) -> ApiError:
    """What is said of a message to be deleted that is not there."""
    state = stream.handle.state()
    if stream.config.storage == "file":
        if seq > state.last_seq:
            return errcodes.STREAM_MSG_DELETE_FAILED(err="stream store EOF")
        if seq < max(state.first_seq, 1):
            return errcodes.STREAM_MSG_DELETE_FAILED(err="no message found")
    return errcodes.SEQUENCE_NOT_FOUND(seq=seq)
