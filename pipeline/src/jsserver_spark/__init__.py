"""Streams as Spark tables: the formats `nats` and `nats-store`, and the jobs around them."""

__version__ = "0.1.0"
