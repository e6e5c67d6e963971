"""Streams as Parquet files: where they lie, what commits them, and how they are read back."""
