"""Builds the pipeline's extensions; extensions.py, which the server's setup.py uses too, lists the
switches."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent))
from extensions import cythonized, extension, switch

# Lowest layer first. bytes and store are the server's: links to their sources, which are compiled
# into this package again, so that it stands without the server's.
LAYERS = () if switch("NO_EXTENSIONS") else ("bytes", "store", "columns")
CEXT = Path("src", "jsserver_spark", "cext")
HEADERS = sorted(p for name in ("", *LAYERS) for p in (CEXT / name).glob("*.pxd"))

extensions = [
    extension(
        f"jsserver_spark.cext.{name}",
        str(CEXT / f"{name}.pyx"),
        [*(CEXT / name).glob("*"), *HEADERS],
    )
    for name in LAYERS
]

setup(ext_modules=cythonized(extensions, "src"))
