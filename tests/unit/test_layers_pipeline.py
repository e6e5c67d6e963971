"""The pipeline stands without the server, and the server without the pipeline."""

import re
from pathlib import Path

from tests.unit.test_layers import CIMPORT, JSSERVER, LAYERS, MODULES, ROOT, data_plane, imported

PIPELINE = ROOT / "pipeline" / "src"
#: What the pipeline's distribution has of the server's sources, by links: it stands without the
#: server. These know each other, and nothing else of the server.
SHARED_MODULES = {"client", "client.connection", "client.credentials"}
SHARED_MODULES |= {"text", "text.goformat", "text.nuid"}
SHARED_LAYERS = {"bytes", "store"}
FIRST_NAME = re.compile(r"^\s*(?:from|c?import)\s+(\w+)", re.MULTILINE)


def first_names(*folders: Path) -> set[str]:
    paths = [p for f in folders for s in ("py", "pyx", "pxd", "pxi") for p in f.rglob(f"*.{s}")]
    return {name for path in paths for name in FIRST_NAME.findall(path.read_text())}


def test_server_and_pipeline_do_not_import_each_other() -> None:
    of_the_server = first_names(*(ROOT / name for name in ("jsserver", "cext", "bench", "tests")))
    assert not of_the_server & {"jsserver_spark", "pipeline", "pyspark", "pyspark_nats"}
    assert not first_names(PIPELINE) & {"jsserver", "bench", "pipeline", "tests"}


def test_the_pipeline_shares_what_stands_by_itself() -> None:
    package = PIPELINE / "jsserver_spark"
    linked = {str(p.relative_to(package)): p for p in package.rglob("*") if p.is_symlink()}
    files = {str(MODULES[f"jsserver.{name}"].relative_to(JSSERVER)) for name in SHARED_MODULES}
    ends = ("", ".pyx", ".pxd", ".pyi")
    assert linked.keys() == files | {f"cext/{n}{end}" for n in SHARED_LAYERS for end in ends}
    for name, path in linked.items():
        assert path.resolve() == (JSSERVER / name).resolve()
    for name in SHARED_MODULES:
        module = f"jsserver.{name}"
        for target, _ in imported(module, MODULES[module]):
            ours = target.removeprefix("jsserver").removeprefix(".") if "jsserver" in target else ""
            assert not ours or ours in SHARED_MODULES, f"{module} imports {target}"
    assert all(LAYERS[layer] <= SHARED_LAYERS for layer in SHARED_LAYERS)
    absolute = [file for file, layer, _ in data_plane("jsserver.") if layer in SHARED_LAYERS]
    assert not absolute, "names neighbours by the server's package"


def test_columns_knows_bytes_and_store_alone() -> None:
    folder = PIPELINE / "jsserver_spark" / "cext"
    known = set()
    for path in (folder / "columns.pyx", *(folder / "columns").glob("*.pxi")):
        named = {whole or plain for whole, plain in CIMPORT.findall(path.read_text())}
        known |= {name for name in named if name.startswith((".", "jsserver"))}
    assert known == {f".{layer}" for layer in SHARED_LAYERS}
