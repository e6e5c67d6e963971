"""The store, streams and consumers on a simulated disk, from a seed."""
