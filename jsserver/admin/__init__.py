"""What an administrator does with consumers and clusters that run, as their client."""
