"""Streams to archive: made and filled on a real server, and read back whole."""
