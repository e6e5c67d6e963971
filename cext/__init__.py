"""The data plane: compiled, free of the GIL on the message path."""
