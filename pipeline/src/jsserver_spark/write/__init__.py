"""What publishes rows: connection, acks, atomic batches, the fence of a streaming query."""
