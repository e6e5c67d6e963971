"""The configuration: its language, the options, and what may be set together."""
