"""What an administrator does with consumers of a running server, as its client."""
