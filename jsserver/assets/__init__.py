"""Which streams and consumers there shall be: data and rules, with no file, clock or handle."""
