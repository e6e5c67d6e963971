"""Text as NATS clients and tools know it: Go's forms, names and ids, command-line flags."""
