"""Leaves out what `make tools-spark` has not been run for."""

import importlib.util

OF_THE_PIPELINE = [
    "test_columns_headers.py",
    "test_columns_publish.py",
    "test_columns_replies.py",
    "test_outbox_model.py",
]

collect_ignore = OF_THE_PIPELINE if importlib.util.find_spec("pyspark") is None else []
