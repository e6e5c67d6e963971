"""Layers beside models of them."""
