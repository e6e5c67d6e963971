"""How extensions are compiled: those of the server, and those of the pipeline beside it.

Switches (environment): CHECKED=1 turns on the data plane's assertions and bounds checks, Cython's
and the compiler's (arrays, and what string functions write to), SANITIZE=1 builds with
AddressSanitizer and UndefinedBehaviorSanitizer, THREADS=1 with ThreadSanitizer instead, ANNOTATE=1
leaves Cython's HTML reports beside the sources, DEBUG=1 builds without optimisation, BUILD_JOBS=N
runs N Cythons at once, NO_EXTENSIONS=1 installs the Python modules alone. A tree built with other
switches is a tree of its own: no switch rebuilds what is there.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension


def switch(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


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

BUILT_BY = ["setup.py", os.path.relpath(__file__)]
"""A change there changes what is built."""

# Only a server with TLS or an encrypted store loads a layer that stands on OpenSSL.
LIBRARIES = {"cipher": ["crypto"], "tls": ["ssl", "crypto"], "net": ["z", "isal"]}

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
    """An extension of one source, and what else is compiled into it."""
    return Extension(
        name,
        [source],
        depends=[*sorted(str(p) for p in parts if p.is_file()), *BUILT_BY],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        libraries=[*LIBRARIES.get(name.rpartition(".")[2], []), "m"],
    )


def cythonized(extensions: Sequence[Extension], headers: str) -> list[Extension]:
    """Made into C, again where that is older than what says how. `headers`: the folder above the
    packages whose .pxd files are used."""
    told = max(Path(path).stat().st_mtime for path in BUILT_BY)
    made = [Path(source).with_suffix(".c") for each in extensions for source in each.sources]
    stale = any(path.exists() and path.stat().st_mtime < told for path in made)
    done: list[Extension] = cythonize(
        extensions,
        include_path=[headers],
        compiler_directives=directives,
        annotate=switch("ANNOTATE"),
        force=stale,
        nthreads=int(os.environ.get("BUILD_JOBS", "0")),
    )
    return done
