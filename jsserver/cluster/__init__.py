"""What the servers of a JetStream cluster agree on: who shall hold which streams and consumers."""
