"""Nothing is dead: what the sources define is reached from where they are entered, not by tests."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.references import BARE, FIELD, Cdefs, Modules
from tools import gen_options

ROOT = Path(__file__).resolve().parents[2]
CEXT = ROOT / "cext"
COLUMNS = ROOT / "pipeline" / "src" / "jsserver_spark" / "cext"
PRODUCT = ("jsserver", "bench", "packaging", "tools", "pipeline/src")

#: Python names that others call: PySpark, the packager, the event loop's protocols, http.client.
CALLED_FROM_OUTSIDE = {
    *("commit", "initialOffset", "latestOffset", "getDefaultReadLimit", "partitions", "abort"),
    *("prepareForTriggerAvailableNow", "reportLatestOffset", "streamReader", "streamWriter"),
    *("pushFilters", "reader", "writer", "schema", "read", "write", "name"),
    *("connection_made", "connection_lost", "data_received", "eof_received"),
    *("pause_writing", "resume_writing", "NatsSource", "StoreSource", "emit", "makefile"),
    *("main", "frombuf"),
}
#: Generated from nats-server's whole catalogue, used or not.
CATALOGUE = "jsserver.wire.errcodes"
#: Words of the wire and of nats-server, whose numbers are declared whole.
VOCABULARY = re.compile(r"KIND_|CLOSE_|ENTRY_|EXTENDS")

#: What headers publish though nothing of the product calls it yet, and the feature to come that
#: will. Tests drive it, so that the feature finds it sound.
SEAMS = {
    "keeper_turn": "clusters under a simulated clock: a server without threads of its own",
    "log_cut_head": "clusters: a log drops what a snapshot holds",
    "log_cut_tail": "clusters: a log drops what its leader did not commit",
    "log_end": "clusters: where an entry of a log will start, for a later cut",
    "stream_stage_end": "clusters: all are stored and acked together, or refused together",
    "store_figures": "metrics: bytes that a stream's blocks and its index take",
}

C_ENUM = re.compile(r"^cdef enum[^\n]*:\n((?:[ \t]+[^\n]*\n|\n)+)", re.MULTILINE)
C_CONSTANT = re.compile(r"^\s+([A-Z]\w+)", re.MULTILINE)
C_STRUCT = re.compile(r"^cdef struct [^\n]*:\n((?:[ \t]+[^\n]*\n|\n)+)", re.MULTILINE)
C_FIELD = re.compile(r"^    [\w* ]*?[\s*](\w+)(?:\[\w+\])?\s*$", re.MULTILINE)
C_TEXT = re.compile(r'"""(?:.|\n)*?"""')
C_IMPORT = re.compile(r"cimport (?:\([^)]*\)|[^(\n]*)")
WORD = re.compile(r"\w+")


def bare(text: str) -> str:
    return C_IMPORT.sub("", re.sub("#.*", "", C_TEXT.sub("", text)))


def cython_sources() -> dict[Path, str]:
    """Their texts without comments, docstrings, and what they import."""
    found = {}
    for suffix in (".pyx", ".pxd", ".pxi", ".h"):
        columns = [*COLUMNS.glob(f"columns{suffix}"), *COLUMNS.glob(f"columns/*{suffix}")]
        for path in sorted([*CEXT.rglob(f"*{suffix}"), *columns]):
            text = path.read_text()
            found[path] = text if suffix == ".h" else bare(text)
    return found


def test_every_function_of_the_data_plane_is_reached() -> None:
    """From what Python calls, or from the seams; and no seam is reached otherwise."""
    graph = Cdefs(cython_sources())
    assert len(graph.defined) > 2000
    seams = {("", name) for name in SEAMS}
    dead = sorted(name for _, name in graph.unreached(graph.entered | seams))
    assert not dead, f"defined and never reached: {dead}"
    come = sorted(name for _, name in seams - graph.unreached(graph.entered))
    assert not come, f"no longer to come: {come}"


def test_every_constant_of_the_data_plane_is_used() -> None:
    sources = cython_sources()
    uses = Counter(word for text in sources.values() for word in BARE.findall(text))
    dead = set()
    for text in sources.values():
        for body in C_ENUM.findall(text):
            dead |= {name for name in C_CONSTANT.findall(body) if uses[name] <= 1}
    for path in gen_options.FILES:  # of a field of the wire every value has a code
        for body in re.findall(r"^cdef enum:\n((?:    \w+ = \d+\n)+)", sources[path], re.MULTILINE):
            dead -= set(C_CONSTANT.findall(body))
    dead = {name for name in dead if not VOCABULARY.match(name)}
    assert not dead, f"defined and never used: {sorted(dead)}"


def test_every_field_of_a_struct_is_used() -> None:
    """Somewhere one is taken out of a struct, or Python is given all of them by their names."""
    sources = cython_sources()
    uses = {name for text in sources.values() for name in FIELD.findall(text)}
    fields = {
        name
        for text in sources.values()
        for body in C_STRUCT.findall(text)
        for name in C_FIELD.findall(body)
    }
    assert len(fields) > 500
    dead = sorted(fields - uses - {"pad"})
    assert not dead, f"declared and never used: {dead}"


@pytest.mark.parametrize("name", SEAMS)
def test_every_seam_is_driven_by_tests(name: str) -> None:
    drivers = [p for s in ("*.pyx", "*.pxi") for p in (ROOT / "tests").rglob(s)]
    assert any(f"{name}(" in path.read_text() for path in drivers)


def python_sources(*folders: str) -> dict[Path, ast.Module]:
    paths = [p for f in folders for p in sorted((ROOT / f).rglob("*.py"))]
    paths += [*sorted(ROOT.glob("*.py")), *sorted((ROOT / "pipeline").glob("*.py"))]
    own = [p for p in paths if "__pycache__" not in p.parts and not p.is_symlink()]
    return {p: ast.parse(p.read_text()) for p in own}


def module_of(path: Path) -> str:
    inside = path.relative_to(ROOT / "pipeline" / "src" if "src" in path.parts else ROOT)
    return ".".join(inside.with_suffix("").parts).removesuffix(".__init__")


def test_every_name_of_the_control_plane_is_reached_without_tests() -> None:
    """From what is run and what others call; by references, so that words do not count."""
    trees = {module_of(path): (path, tree) for path, tree in python_sources(*PRODUCT).items()}
    packages = {name for name, (path, _) in trees.items() if path.name == "__init__.py"}
    graph = Modules({name: tree for name, (_, tree) in trees.items()}, packages)
    assert len(graph.defined) > 3000
    run = {
        ref
        for ref, owners in graph.owners.items()
        if not any(owner.startswith("jsserver") for owner in owners)
    }
    outside = {ref for ref in graph.defined if ref[1] in CALLED_FROM_OUTSIDE}
    words = {("", word) for text in cython_sources().values() for word in WORD.findall(text)}
    kept = {ref for ref in graph.defined if ref[1].startswith("__") or ref[0] == CATALOGUE}
    dead = sorted(map(".".join, graph.unreached(graph.entered | run | outside | words | kept)))
    assert not dead, "defined and reached by tests at most:\n" + "\n".join(dead)


def test_words_are_no_references() -> None:
    """A name that others use for something else, that only the dead use, or that calls itself."""
    texts = {
        "p": "",
        "p.a": "def used(): pass\ndef dead(): dead()\ndef below(): pass\ndef above(): below()",
        "p.b": "from .a import used\ndead = 'above'\nclass C:\n def m(self): used()\nC().m(dead)",
    }
    graph = Modules({name: ast.parse(text) for name, text in texts.items()}, {"p"})
    assert graph.unreached(graph.entered) == {("p.a", "dead"), ("p.a", "below"), ("p.a", "above")}
    text = """
cdef int dead(int n) noexcept nogil:
    return dead(n - 1)

cdef int used(
    int n,
) noexcept nogil:
    return n.dead

def entry():
    return used(1)
"""
    found = Cdefs({Path("a.pyx"): text})
    assert found.unreached(found.entered) == {("", "dead")}
