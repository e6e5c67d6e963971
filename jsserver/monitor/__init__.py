"""Monitoring over HTTP: `/varz`, `/connz` and the other pages, as operators' tools expect them."""
