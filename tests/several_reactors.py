"""The server's command with so many reactors, whatever its configuration says.

Suites that know nothing of reactors run with several of them so:
JSSERVER=".venv/bin/python tests/several_reactors.py 4" .venv/bin/python -m pytest tests/client
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jsserver import cli, front
from jsserver.cext.engine import DataPlane


def main() -> int:
    number = int(sys.argv[1])

    def plane(_configured: int) -> Any:
        return DataPlane(number)

    # The class itself is replaced, where the front has imported it.
    front.DataPlane = plane  # type: ignore[attr-defined, assignment]
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
