"""Where JetStream's data lies: the store directory, its lock, its limits and its reserve."""
