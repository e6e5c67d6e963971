"""jsserver: a NATS server with JetStream."""

__version__ = "0.1.0"

#: The nats-server release whose protocol, API and files this server speaks.
#: Clients gate features on it, so it is what INFO, /varz and --version report.
NATS_VERSION = "2.14.5"
API_LEVEL = 4
