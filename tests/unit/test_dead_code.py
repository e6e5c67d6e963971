"""Nothing is dead: what the sources define, something other than a test uses."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

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
}
#: Generated from nats-server's whole catalogue, used or not.
CATALOGUE = ROOT / "jsserver" / "wire" / "errcodes.py"
#: Words of the wire and of nats-server, whose numbers are declared whole.
VOCABULARY = re.compile(r"KIND_|CLOSE_")

#: What headers publish though nothing of the product calls it yet, and the feature to come that
#: will. Tests drive it, so that the feature finds it sound.
SEAMS = {
    "conn_dial": "routes and leafnodes: a connection that the server asks for",
    "consumer_follow": "clusters: a consumer whose server no longer leads",
    "consumers_apply": "clusters: records of a leader that a majority has",
    "keeper_turn": "clusters under a simulated clock: a server without threads of its own",
    "log_cut_head": "clusters: a log drops what a snapshot holds",
    "log_cut_tail": "clusters: a log drops what its leader did not commit",
    "log_end": "clusters: where an entry of a log will start, for a later cut",
    "store_figures": "metrics: bytes that a stream's blocks and its index take",
    "stream_stage": "clusters: publishes that are checked before a majority has them",
    "stream_stage_end": "clusters: all are stored and acked together, or refused together",
}

C_FUNCTION = re.compile(
    r"^\s*cdef\s+(?:inline\s+)?(?!struct\b|enum\b|class\b|extern\b|union\b)[^\n=(]*?[\s*](\w+)\(",
    re.MULTILINE,
)
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


def test_every_function_and_constant_of_the_data_plane_is_used() -> None:
    sources = cython_sources()
    uses = Counter(word for text in sources.values() for word in WORD.findall(text))
    declared = Counter(name for text in sources.values() for name in C_FUNCTION.findall(text))
    dead = {name for name, times in declared.items() if uses[name] <= times}
    for text in sources.values():
        for body in C_ENUM.findall(text):
            dead |= {name for name in C_CONSTANT.findall(body) if uses[name] <= 1}
    for path in gen_options.FILES:  # of a field of the wire every value has a code
        for body in re.findall(r"^cdef enum:\n((?:    \w+ = \d+\n)+)", sources[path], re.MULTILINE):
            dead -= set(C_CONSTANT.findall(body))
    # A method that Python calls has a line in the .pyi files.
    faces = [*CEXT.glob("*.pyi"), COLUMNS / "columns.pyi"]
    called = {w for path in faces for w in WORD.findall(path.read_text())}
    dead = {name for name in dead - called if not VOCABULARY.match(name)}
    assert not dead - SEAMS.keys(), f"defined and never used: {sorted(dead - SEAMS.keys())}"
    assert not SEAMS.keys() - dead, f"no longer to come: {sorted(SEAMS.keys() - dead)}"


def test_every_field_of_a_struct_is_used() -> None:
    sources = cython_sources()
    uses = Counter(word for text in sources.values() for word in WORD.findall(text))
    fields = Counter(
        name
        for text in sources.values()
        for body in C_STRUCT.findall(text)
        for name in C_FIELD.findall(body)
    )
    assert len(fields) > 500
    dead = sorted(name for name, times in fields.items() if uses[name] <= times)
    assert not dead, f"declared and never used: {dead}"


@pytest.mark.parametrize("name", SEAMS)
def test_every_seam_is_driven_by_tests(name: str) -> None:
    drivers = [p for s in ("*.pyx", "*.pxi") for p in (ROOT / "tests").rglob(s)]
    assert any(f"{name}(" in path.read_text() for path in drivers)


def definitions(tree: ast.Module) -> Iterator[str]:
    """Functions, methods, classes and a module's constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def uses_in(tree: ast.Module) -> Iterator[str]:
    """Names that are read, and words of texts, by which attributes are set; but no docstrings."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.ImportFrom):
            yield from (name.name for name in node.names if name.asname != name.name)
        elif isinstance(node, ast.Constant) and id(node) not in told:
            yield from WORD.findall(str(node.value)[:100])


def python_sources(*folders: str) -> dict[Path, ast.Module]:
    paths = [p for f in folders for p in sorted((ROOT / f).rglob("*.py"))]
    paths += [*sorted(ROOT.glob("*.py")), *sorted((ROOT / "pipeline").glob("*.py"))]
    own = [p for p in paths if "__pycache__" not in p.parts and not p.is_symlink()]
    return {p: ast.parse(p.read_text()) for p in own}


def test_every_name_of_the_control_plane_is_used_outside_tests() -> None:
    trees = python_sources(*PRODUCT)
    uses = Counter(name for tree in trees.values() for name in uses_in(tree))
    uses.update(w for text in cython_sources().values() for w in WORD.findall(text))
    dead = []
    for path, tree in trees.items():
        checked = any(map(path.is_relative_to, (ROOT / "jsserver", ROOT / "pipeline" / "src")))
        if checked and path != CATALOGUE:
            dead += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in definitions(tree)
                if not uses[name] and not name.startswith("__") and name not in CALLED_FROM_OUTSIDE
            ]
    assert not dead, "defined and used by tests at most:\n" + "\n".join(dead)
