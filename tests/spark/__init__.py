"""Tests of the Spark formats: contracts without Spark, and a few sessions."""
