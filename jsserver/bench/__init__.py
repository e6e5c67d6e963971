"""A load generator: the work of `nats bench`, for machines without the `nats` tool.

It builds big buffers once, sends them as they are and counts what comes back by scanning, so that
the server is what limits it.
"""
