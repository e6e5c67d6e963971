"""Changes of the streams and consumers that an account shall have.

Each carries all that its decision needs: names, times, what was seen of the data plane.
"""

import msgspec

from jsserver.wire.errors import ApiError
from jsserver.wire.types import (
    ConsumerAction,
    ConsumerConfig,
    ConsumerCreateRequest,
    StreamConfig,
)


class Asked(msgspec.Struct, frozen=True):
    """What a request for a stream says besides its configuration."""

    name: str
    """In the request's subject."""
    wrong: ApiError | None = None
    """The first thing wrong with the configuration in itself, which then is as it was asked for."""
    names_storage: bool = True
    """False: the storage was filled in."""


class CreateStream(msgspec.Struct, frozen=True):
    """A stream with this normalised configuration shall exist."""

    config: StreamConfig
    created: int
    asked: Asked | None = None
    """None: no client asks for it with these words, as in a restore."""


class UpdateStream(msgspec.Struct, frozen=True):
    """A stream shall have this normalised configuration instead."""

    config: StreamConfig


class DeleteStream(msgspec.Struct, frozen=True):
    """A stream shall be no more, nor its consumers."""

    name: str


class AskedConsumer(msgspec.Struct, frozen=True):
    """A request for a consumer: what stands in its subject and in its body."""

    stream: str
    """In the subject, as are the next two."""
    name: str
    """"": none, and that of the body counts."""
    filter: str | None
    """None: the subject has no place for one, or none there."""
    is_durable: bool
    """Whether it came by CONSUMER.DURABLE.CREATE."""
    request: ConsumerCreateRequest
    wrong: ApiError | None = None
    """The first thing wrong with the configuration in itself, which then is as it was asked for."""

    @property
    def consumer(self) -> str:
        """The consumer's name; "": any."""
        return self.name or self.request.config.name


class PutConsumer(msgspec.Struct, frozen=True):
    """A consumer with this normalised configuration shall exist."""

    stream: str
    name: str
    config: ConsumerConfig
    created: int
    action: ConsumerAction = ""
    heard: bool = False
    """Whether somebody listens where a consumer of this name delivers now."""
    asked: AskedConsumer | None = None
    """None: no client asks for it, and the configuration was checked."""


class PauseConsumer(msgspec.Struct, frozen=True):
    """A consumer shall deliver nothing until then; "": it goes on."""

    stream: str
    name: str
    until: str


class DeleteConsumer(msgspec.Struct, frozen=True):
    """A consumer shall be no more."""

    stream: str
    name: str


StreamChange = CreateStream | UpdateStream | DeleteStream
ConsumerChange = PutConsumer | PauseConsumer | DeleteConsumer
