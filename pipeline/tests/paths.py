"""Where processes that tests start find the sources."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "pipeline" / "src"
PYTHONPATH = os.pathsep.join([str(SOURCES), str(ROOT)])
"""The pipeline, and for tests what they pickle and the server."""
