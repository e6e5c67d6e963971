"""A stream and its consumers that an account shall have."""

from __future__ import annotations

import msgspec

from jsserver.wire import errcodes
from jsserver.wire.types import ConsumerConfig, StreamConfig

from . import consumers
from .patterns import PatternIndex


class ConsumerAssignment(msgspec.Struct, frozen=True):
    """A consumer that shall exist."""

    name: str
    config: ConsumerConfig
    created: int
    stored: ConsumerConfig
    """What its meta.inf holds: an ephemeral consumer gets its threshold only after that."""


def new_consumer(name: str, config: ConsumerConfig, created: int) -> ConsumerAssignment:
    """A consumer as it is made, or as a start finds it."""
    served = config if config.durable_name else consumers.with_threshold(config)
    return ConsumerAssignment(name, served, created, config)


class StreamAssignment:
    """A stream that shall exist, with its consumers. An update makes another one of it, to which
    the consumers belong as well."""

    __slots__ = ("config", "consumers", "created", "filters", "offline")

    def __init__(self, config: StreamConfig, created: int) -> None:
        self.config = config
        self.created = created
        self.consumers: dict[str, ConsumerAssignment] = {}
        self.offline: dict[str, str] = {}
        """Consumers on disk that are not served, and why."""
        self.filters = PatternIndex()
        """Of a workqueue stream: what its consumers want."""

    def updated(self, config: StreamConfig) -> StreamAssignment:
        """The same stream with another configuration."""
        new = StreamAssignment(config, self.created)
        new.consumers, new.offline, new.filters = self.consumers, self.offline, self.filters
        return new

    @property
    def limitable(self) -> int:
        """Consumers that count where their number is limited."""
        return sum(not consumers.is_of_source(c.config) for c in self.consumers.values())

    def consumer(self, name: str) -> ConsumerAssignment:
        """The consumer of this name, or ApiError."""
        found = self.consumers.get(name)
        if found is None:
            raise self.absent(name)
        return found

    def absent(self, name: str) -> Exception:
        """The error of who asks for a consumer that is not served."""
        if name in self.offline:
            return errcodes.CONSUMER_OFFLINE_REASON(err=self.offline[name])
        return errcodes.CONSUMER_NOT_FOUND()

    def claim(self, consumer: ConsumerAssignment) -> None:
        """Notes what a consumer of a workqueue stream wants."""
        if self.config.retention == "workqueue" and not consumers.is_of_source(consumer.config):
            self.filters.add(consumers.wanted(consumer.config))

    def release(self, consumer: ConsumerAssignment) -> None:
        """Takes back `claim`."""
        if self.config.retention == "workqueue" and not consumers.is_of_source(consumer.config):
            self.filters.remove(consumers.wanted(consumer.config))
