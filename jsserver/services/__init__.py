"""What the control plane answers: the inbox of requests, the JetStream API and `$SYS`."""
