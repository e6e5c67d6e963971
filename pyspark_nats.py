"""Lets Spark find the format `nats` by itself."""

from jsserver.spark.source import NatsSource as DefaultSource

__all__ = ["DefaultSource"]
