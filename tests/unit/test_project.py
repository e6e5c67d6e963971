"""What stands around the code: licence, metadata, versions, and the links of its pages."""

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

import jsserver
from jsserver.cext import engine
from tests import longest
from tests.peer import PEER_VERSION
from tools import gen_api, gen_options

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for folder in (".", "docs", "bench", "packaging", "cext/*")
    for page in ROOT.glob(f"{folder}/*.md")
)
COLUMNS = 120
GUIDES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def project() -> dict[str, object]:
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def test_the_licence_is_the_one_that_the_metadata_names() -> None:
    assert project()["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert metadata("jsserver")["License-Expression"] == "Apache-2.0"


def test_files_that_run_first_are_there() -> None:
    assert [name for name in longest.LONGEST if not (longest.ROOT / name).exists()] == []


def test_versions_are_declared_once() -> None:
    assert project()["dynamic"] == ["version"]
    assert metadata("jsserver")["Version"] == jsserver.__version__
    assert f"v{jsserver.NATS_VERSION}" == PEER_VERSION
    assert f"PEER_VERSION := {PEER_VERSION}\n" in (ROOT / "Makefile").read_text()
    assert f"\n## {jsserver.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_generated_files_are_what_their_source_makes() -> None:
    """Run tools/gen_api.py after a change of the catalogue, the API level or a stream's errors, and
    tools/gen_options.py after one of a configuration's fields."""
    for path, text in (gen_api.FILES | gen_options.FILES).items():
        assert path.read_text() == text(), path.name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_keeps_to_its_columns(page: Path) -> None:
    """Rows of tables and code are as wide as they need to be."""
    code, wide = False, []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.startswith("```"):
            code = not code
        elif not code and not line.startswith("|") and len(line) > COLUMNS:
            wide.append(number)
    assert not wide, f"lines of more than {COLUMNS} columns"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = [
        target
        for target in LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not dead


def test_every_reason_for_a_close_has_its_text() -> None:
    header = (ROOT / "cext" / "core" / "reasons.pxd").read_text()
    (body,) = re.findall(r"cdef enum CloseReason:\n(.*)", header, re.DOTALL)
    reasons = re.findall(r"^    CLOSE_\w+", body, re.MULTILINE)
    assert list(engine.CLOSE_REASONS) == list(range(len(reasons) + 1))
    assert len(set(engine.CLOSE_REASONS.values())) == len(engine.CLOSE_REASONS)


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: str(p.relative_to(ROOT)))
def test_lines_of_the_guides_fit_a_screen(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert [n for n, line in enumerate(lines, 1) if len(line) > 120] == []


def anchors(page: Path) -> set[str]:
    """What links may name of a page, as GitHub makes it of headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_name_headings_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
    dead = [
        f"{target}#{name}"
        for target, name in links
        if "://" not in target and name not in anchors(page.parent / target if target else page)
    ]
    assert not dead
