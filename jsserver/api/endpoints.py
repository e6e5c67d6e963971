"""What serves each subject of `$JS.API`."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import msgspec

from jsserver.instances.order import Effect, Place
from jsserver.text import goformat
from jsserver.wire import errcodes

from . import account_api, consumer_admin, consumer_api, messages, stream_api, transfers
from .call import Call
from .responses import (
    AccountPurgeResponse,
    ConsumerList,
    ConsumerNames,
    ConsumerPauseResponse,
    ConsumerResetResponse,
    PurgeResponse,
    Response,
    RestoreResponse,
    StreamList,
    StreamNames,
)

Handler = Callable[[Call], Awaitable[Response]]


class Endpoint(msgspec.Struct, frozen=True):
    """What serves a subject."""

    name: str
    answer: str
    """The type of the answer, after TYPE_PREFIX."""
    handler: Handler
    empty: Callable[[], Response] = Response
    """The body of an error."""
    least: int = 1
    """Tokens after the name."""
    most: int = 1
    info: bool = False
    """Whether it waits in the queue of lower priority."""
    audited: bool = True
    """Whether success counts and is told to listeners."""
    errors_audited: bool = True
    """Whether errors are."""
    effect: Effect = Effect.LOOKS
    """What it does to what its tokens name: a stream's consumer, a stream, or all streams."""
    prefix: str = ""
    """Of the stream's name, before the first token."""

    def place(self, args: list[str], aside: Callable[[], AbstractContextManager[None]]) -> Place:
        """That of a request with these tokens among those of its connection."""
        if len(args) > 1:
            return Place(args[0], args[1], self.effect, aside)
        stream = self.prefix + args[0] if args else None
        effect = self.effect
        if self.most > 1 and effect is Effect.CLAIMS:  # of a consumer whose name is not known yet
            effect = Effect.CHANGES
        return Place(stream, None, effect, aside)


async def _not_clustered(call: Call) -> Response:
    raise errcodes.CLUSTER_REQUIRED()


async def _nothing_there(call: Call) -> Response:
    raise errcodes.NOT_ENABLED_FOR_ACCOUNT()


def _paged() -> Response:
    return Response(total=0, offset=0, limit=0)


def _not_paused() -> Response:
    return ConsumerPauseResponse(pause_until=goformat.ZERO_TIME)


ENDPOINTS: dict[str, Endpoint] = {
    endpoint.name: endpoint
    for endpoint in (
        Endpoint("INFO", "account_info_response", account_api.info, least=0, most=0, info=True),
        Endpoint(
            "STREAM.CREATE", "stream_create_response", stream_api.create, effect=Effect.CLAIMS
        ),
        Endpoint(
            "STREAM.UPDATE", "stream_update_response", stream_api.update, effect=Effect.CLAIMS
        ),
        Endpoint("STREAM.INFO", "stream_info_response", stream_api.info, _paged, info=True),
        Endpoint(
            "STREAM.DELETE", "stream_delete_response", stream_api.delete, effect=Effect.CLAIMS
        ),
        Endpoint(
            "STREAM.PURGE",
            "stream_purge_response",
            stream_api.purge,
            PurgeResponse,
            effect=Effect.CHANGES,
        ),
        Endpoint(
            "STREAM.NAMES",
            "stream_names_response",
            stream_api.names,
            StreamNames,
            least=0,
            most=0,
            info=True,
        ),
        Endpoint(
            "STREAM.LIST",
            "stream_list_response",
            stream_api.list_all,
            StreamList,
            least=0,
            most=0,
            info=True,
        ),
        Endpoint("STREAM.SNAPSHOT", "stream_snapshot_response", transfers.snapshot),
        Endpoint(
            "STREAM.RESTORE",
            "stream_restore_response",
            transfers.restore,
            RestoreResponse,
            effect=Effect.CLAIMS,
        ),
        Endpoint("STREAM.MSG.GET", "stream_msg_get_response", messages.get, audited=False),
        Endpoint(
            "STREAM.MSG.DELETE",
            "stream_msg_delete_response",
            messages.delete,
            effect=Effect.CHANGES,
        ),
        Endpoint("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response", _not_clustered),
        Endpoint("STREAM.PEER.REMOVE", "stream_remove_peer_response", _not_clustered),
        Endpoint(
            "CONSUMER.CREATE",
            "consumer_create_response",
            consumer_api.create,
            most=1 << 20,
            effect=Effect.CLAIMS,
        ),
        Endpoint(
            "CONSUMER.DURABLE.CREATE",
            "consumer_create_response",
            consumer_api.create_durable,
            least=2,
            most=2,
            effect=Effect.CLAIMS,
        ),
        Endpoint(
            "CONSUMER.INFO",
            "consumer_info_response",
            consumer_api.info,
            least=2,
            most=2,
            info=True,
        ),
        Endpoint(
            "CONSUMER.DELETE",
            "consumer_delete_response",
            consumer_api.delete,
            least=2,
            most=2,
            effect=Effect.CLAIMS,
        ),
        Endpoint(
            "CONSUMER.NAMES",
            "consumer_names_response",
            consumer_api.names,
            ConsumerNames,
            info=True,
        ),
        Endpoint(
            "CONSUMER.LIST",
            "consumer_list_response",
            consumer_api.list_all,
            ConsumerList,
            info=True,
        ),
        Endpoint(
            "CONSUMER.PAUSE",
            "consumer_pause_response",
            consumer_api.pause,
            _not_paused,
            least=2,
            most=2,
            effect=Effect.CHANGES,
        ),
        Endpoint(
            "CONSUMER.RESET",
            "consumer_reset_response",
            consumer_api.reset,
            ConsumerResetResponse,
            least=2,
            most=2,
            audited=False,
            errors_audited=False,
            effect=Effect.CHANGES,
        ),
        Endpoint(
            "CONSUMER.UNPIN",
            "consumer_unpin_response",
            consumer_api.unpin,
            least=2,
            most=2,
            effect=Effect.CHANGES,
        ),
        Endpoint(
            "CONSUMER.LEADER.STEPDOWN",
            "consumer_leader_stepdown_response",
            _not_clustered,
            least=2,
            most=2,
        ),
        *(
            Endpoint(
                f"JSSERVER.CONSUMER.{verb}",
                f"jsserver_consumer_{verb.lower()}_response",
                handler,
                least=2,
                most=2,
                info=verb in ("WAITS", "PENDING"),
                effect=Effect.LOOKS if verb in ("WAITS", "PENDING") else Effect.CHANGES,
            )
            for verb, handler in consumer_admin.HANDLERS.items()
        ),
    )
}


NOTHING_THERE = Endpoint("", "system_response", _nothing_there)
"""What answers in the system account, which has no JetStream; INFO aside."""
OF_THE_CLUSTER = ("META", "SERVER", "ACCOUNT")
"""First tokens of requests to a cluster's leader; where there is no cluster nobody answers."""
PURGE_ACCOUNT = Endpoint(
    "ACCOUNT.PURGE", "account_purge_response", _nothing_there, AccountPurgeResponse
)
"""The one that is also answered alone, in the system account, by `AccountPurge`."""


def of_system(subject: str) -> tuple[Endpoint, list[str]] | None:
    """As find(), of a request in the system account."""
    if subject == "INFO":
        return find(subject)
    if subject.startswith(f"{PURGE_ACCOUNT.name}."):
        args = subject.split(".")[2:]
        return (PURGE_ACCOUNT, args) if len(args) == 1 and args[0] else None
    return None if subject.split(".")[0] in OF_THE_CLUSTER else (NOTHING_THERE, [])


def find(subject: str) -> tuple[Endpoint, list[str]] | None:
    """The endpoint of a subject after the prefix, and the tokens that follow its name."""
    tokens = subject.split(".")
    for length in (3, 2, 1):
        endpoint = ENDPOINTS.get(".".join(tokens[:length]))
        if endpoint is not None:
            args = tokens[length:]
            if endpoint.least <= len(args) <= endpoint.most and all(args[:2]):
                return endpoint, args
            return None
    return None
