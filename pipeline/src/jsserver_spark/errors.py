"""What a Spark user is told when something does not work."""


class NatsError(Exception):
    """A read or write could not go on; the text says what was wrong, where, and what to change."""

    passes = False
    """Whether trying again later may go well."""


class OptionError(NatsError):
    """An option is unknown, missing or out of range; the text names it."""


class DataLossError(NatsError):
    """Messages that should be read are gone; `failOnDataLoss=false` reads on without them."""
