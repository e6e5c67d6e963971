"""What a server is in the JetStream of its cluster."""

from jsserver.config.options import AssetLimits, Options

NO_STREAMS = "!jetstream"
"""The tag of a server that placement leaves out: others give it no streams to hold."""


def only_votes(options: Options) -> bool:
    """Whether the server takes part in the meta group of its cluster and holds no streams."""
    if not options.jetstream.enabled or not options.cluster.port:
        return False
    return NO_STREAMS in options.server_tags


def served_accounts(options: Options) -> dict[str, AssetLimits]:
    """The accounts whose streams are here, where they have any, with their limits."""
    return {} if only_votes(options) else options.jetstream_accounts
