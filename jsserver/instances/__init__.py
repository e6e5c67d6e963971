"""The streams and consumers that this server runs: files, handles of the data plane, and the steps
that make both what the assignments say."""
