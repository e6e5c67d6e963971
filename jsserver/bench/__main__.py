"""Runs the load generator as `python -m jsserver.bench`."""

import sys

from jsserver.bench.main import main

sys.exit(main())
