"""Lets Spark find the format `nats-store` by itself."""

from jsserver.spark.files.source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
