"""Lets Spark find the format `nats` by itself."""

from jsserver_spark.source import NatsSource as DefaultSource

__all__ = ["DefaultSource"]
