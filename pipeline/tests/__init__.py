"""Tests of the formats for Spark: contracts without it, and a session where it matters."""
