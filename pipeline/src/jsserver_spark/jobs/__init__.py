"""Programs around a stream's archive: each runs in processes of its own or as tasks of Spark."""
