"""Lets Spark find the format `nats-store` by itself."""

from jsserver.spark.store_source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
