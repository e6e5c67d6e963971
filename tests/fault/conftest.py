"""What several of these tests need."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that records what a server does to its files."""
    source = Path(__file__).parent / "powercut" / "recorder.c"
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library
