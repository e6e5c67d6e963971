"""The configuration: its language, the options, and what may be set together."""


class ConfigError(Exception):
    """A configuration that cannot be used; the text says what is wrong and where."""
