"""Builds the data plane's extensions.

Switches (environment): CHECKED=1 turns on the data plane's assertions and bounds checks, Cython's
and the compiler's (arrays, and what string functions write to), SANITIZE=1 builds with
AddressSanitizer and UndefinedBehaviorSanitizer, THREADS=1 with ThreadSanitizer instead, ANNOTATE=1
leaves Cython's HTML reports beside the sources, DEBUG=1 builds without optimisation, BUILD_JOBS=N
runs N Cythons at once, NO_EXTENSIONS=1 installs the Python modules alone. A tree built with other
switches is a tree of its own: no switch rebuilds what is there.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py


def switch(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


# One extension a folder of cext/, lowest layer first (columns stands on
# bytes and store alone); each includes the parts in its folder.
LAYERS = [
    name
    for name in (
        "bytes",
        "store",
        "stream",
        "consumer",
        "core",
        "net",
        "tls",
        "engine",
        "columns",
        "language",
    )
    if Path(f"cext/{name}.pyx").exists() and not switch("NO_EXTENSIONS")
]


def older_than_this_file(path: Path) -> bool:
    """True for generated C that was made with other directives than the present ones."""
    return path.exists() and path.stat().st_mtime < Path("setup.py").stat().st_mtime


compile_args = [
    "-O2",
    # Else a change here moves loops there across lines of the cache: per cents of what a message
    # costs, by luck.
    "-falign-functions=64",
    "-falign-loops=32",
    "-g1",
    "-fno-semantic-interposition",
    "-fvisibility=hidden",
    # An empty span may be NULL; copying it, memcpy(to, NULL, 0), must promise nothing about NULL.
    "-fno-delete-null-pointer-checks",
    # What Cython's C does everywhere, and no line of ours could do otherwise.
    "-Wno-sign-compare",
    "-Wno-unused-const-variable",
    "-Wno-unused-but-set-variable",
]
link_args = ["-pthread"]
checked = switch("CHECKED")
if switch("DEBUG"):
    compile_args[0] = "-O0"
if checked or switch("SANITIZE") or switch("THREADS"):
    compile_args[0] = "-O1"  # compiles faster, and shows better stacks
if checked:
    # Not bounds-strict: Python's own structures end in arrays of one that stand for many.
    bounds = ["-fsanitize=bounds", "-fno-sanitize-recover=bounds"]
    compile_args += [*bounds, "-DCHECKED"]  # which bytes/checked.h knows
    link_args += bounds
if checked and not switch("SANITIZE"):  # which sees to this by itself
    compile_args += ["-fstack-protector-strong", "-U_FORTIFY_SOURCE"]
    compile_args += ["-D_FORTIFY_SOURCE=3", "-Wno-unused-result"]
if switch("SANITIZE"):
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize=nonnull-attribute"]
    compile_args += [*sanitizers, "-fno-omit-frame-pointer"]
    link_args += sanitizers
if switch("THREADS"):
    compile_args += ["-fsanitize=thread", "-fno-omit-frame-pointer"]
    link_args += ["-fsanitize=thread"]

# Only a server with TLS loads the layer that stands on OpenSSL.
LIBRARIES = {"tls": ["ssl", "crypto"], "net": ["z", "isal"]}

directives = {
    "language_level": 3,
    "boundscheck": checked,
    "wraparound": checked,
    "initializedcheck": checked,
    "cdivision": True,
    "embedsignature": False,
    "binding": False,
}


def extension(name: str, source: str, parts: Iterable[Path]) -> Extension:
    return Extension(
        name,
        [source],
        depends=sorted(str(p) for p in parts if p.is_file())
        + sorted(str(p) for p in Path("cext").rglob("*.pxd"))
        + ["setup.py"],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        libraries=[*LIBRARIES.get(name.rpartition(".")[2], []), "m"],
    )


extensions = [
    extension(f"jsserver.cext.{name}", f"jsserver/cext/{name}.pyx", Path("cext", name).glob("*"))
    for name in LAYERS
]
generated = [Path(f"cext/{name}.c") for name in LAYERS]
# What tests alone need stays in the work tree, where no wheel takes it from: the simulated disk,
# and beside the layers what drives them from Python.
if LAYERS and "--inplace" in sys.argv:
    for source in sorted(Path("tests").glob("*/*.pyx")):
        name = ".".join(source.with_suffix("").parts)
        extensions.append(extension(name, str(source), source.parent.rglob("*.pxi")))
        generated.append(source.with_suffix(".c"))


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


setup(
    cmdclass={"build_py": Packed},
    ext_modules=cythonize(
        extensions,
        compiler_directives=directives,
        annotate=switch("ANNOTATE"),
        force=any(map(older_than_this_file, generated)),
        nthreads=int(os.environ.get("BUILD_JOBS", "0")),
    ),
)
