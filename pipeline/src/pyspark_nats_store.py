"""Lets Spark find the format `nats-store` by itself."""

from jsserver_spark.files.source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
