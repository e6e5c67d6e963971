"""Makes the copy of the tree that holds all mutants at once."""

import os
import shutil
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.mutants import notes, python
from tests.mutants.places import ROOT, Mutant

COPIED = (
    *("bench", "cext", "docs", "jsserver", "packaging", "tests", "tools"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "LICENSE"),
)
#: Where requests are answered: decisions that no compiler and no type sees.
FOLDERS = ("api", "objects", "instances", "access", "disk", "services")


def sources(files: Sequence[Path]) -> list[Path]:
    """The modules to change, relative to the tree: those asked for, or all that answer requests."""
    if files:
        return sorted(path.resolve().relative_to(ROOT) for path in files)
    found = (path for folder in FOLDERS for path in (ROOT / "jsserver" / folder).glob("*.py"))
    return sorted(path.relative_to(ROOT) for path in found)


class Tree:
    """A copy in `folder`, once it is made. `mutants` has those that it holds, by number."""

    def __init__(self, folder: Path, paths: Sequence[Path]) -> None:
        self.folder = folder
        self.notes = folder.parent / "notes"
        self.texts: dict[Path, str] = {}
        self.mutants: dict[int, Mutant] = {}
        numbers = count(1)
        for path in paths:
            text = (ROOT / path).read_text()
            self.texts[path], found = python.rewritten(str(path), text, lambda: next(numbers))
            self.mutants |= dict(enumerate(found, len(self.mutants) + 1))

    def make(self) -> None:
        """Copies what was built in place, too."""
        ignored = shutil.ignore_patterns("*.html", "__pycache__")
        self.folder.mkdir()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, symlinks=True, ignore=ignored)
            else:
                shutil.copy(source, self.folder / name)
        for path, text in self.texts.items():
            (self.folder / path).write_text(text)
        self.notes.write_bytes(bytes(notes.HEAD + len(self.mutants) + 1))

    def environment(self) -> dict[str, str]:
        """What its tests and their servers run with."""
        scratch = self.folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(scratch),
            "NATS_SERVER": os.environ.get("NATS_SERVER", str(ROOT / ".peer" / "nats-server")),
            notes.VARIABLE: str(self.notes),
        }

    def command(self, module: str, *words: str) -> list[str]:
        return [sys.executable, "-m", module, *words]
