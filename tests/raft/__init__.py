"""Groups without servers: scenarios, and histories on a simulated network, disk and clock."""
