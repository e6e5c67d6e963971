"""A client of any NATS server, for what is no part of this one: connections and credentials."""
