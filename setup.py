"""Builds the data plane's extensions; packaging/extensions.py lists the switches."""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent / "packaging"))
from extensions import cythonized, extension, switch

# One extension a folder of cext/, lowest layer first; each includes the parts in its folder.
LAYERS = [
    name
    for name in (
        "bytes",
        "cipher",
        "store",
        "stream",
        "consumer",
        "core",
        "net",
        "links",
        "tls",
        "engine",
        "raft",
        "raftlog",
        "groups",
        "replicas",
        "language",
    )
    if Path(f"cext/{name}.pyx").exists() and not switch("NO_EXTENSIONS")
]
HEADERS = sorted(Path("cext").rglob("*.pxd"))

extensions = [
    extension(
        f"jsserver.cext.{name}",
        f"jsserver/cext/{name}.pyx",
        [*Path("cext", name).glob("*"), *HEADERS],
    )
    for name in LAYERS
]
# What tests alone need stays in the work tree, where no wheel takes it from: the simulated disk,
# and beside the layers what drives them from Python.
if LAYERS and "--inplace" in sys.argv:
    for source in sorted(Path("tests").glob("*/*.pyx")):
        name = ".".join(source.with_suffix("").parts)
        extensions.append(extension(name, str(source), [*source.parent.rglob("*.pxi"), *HEADERS]))


class Packed(build_py):
    """Packages say what commit they are of."""

    def run(self) -> None:
        super().run()
        path = Path(self.build_lib, "jsserver", "__init__.py")
        if self.editable_mode or not path.exists():
            return
        command = ["git", "rev-parse", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        unset = 'BUILT_FROM = ""'
        path.write_text(path.read_text().replace(unset, f'BUILT_FROM = "{found}"', 1))


setup(cmdclass={"build_py": Packed}, ext_modules=cythonized(extensions, "."))
