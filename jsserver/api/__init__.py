"""The JetStream API: everything between a request's bytes and calls on the data plane."""
