"""What the process has to do with its machine: signals, threads, sockets, files for others, log."""
