"""Who connects: INFO, accounts, authentication, and what is known and logged of connections."""
