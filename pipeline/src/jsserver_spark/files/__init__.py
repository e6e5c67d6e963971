"""What reads a stream from its files, without a server."""
