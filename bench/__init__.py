"""Measurements of this server beside nats-server, always both in the same run."""
