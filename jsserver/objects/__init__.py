"""Requests to buckets of objects: a service on subjects of its own, beside JetStream's API."""
