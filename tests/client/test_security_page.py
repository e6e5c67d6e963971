"""Each configuration that docs/security.md shows starts a server, and whom it names gets in."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.client.raw import RawClient
from tests.jwts import Operator
from tests.servers import Servers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
#: By heading: a user that its configuration names, whose password is `secret`.
USERS = {"Users and passwords": "orders", "Accounts, and what crosses between them": "shop"}


def blocks() -> Iterator[object]:
    """The page's configurations, named after the headings that they stand under."""
    last = ""
    for heading, block in re.findall(r"^##+ (.+)$|^```\n([^`]*)^```$", PAGE.read_text(), re.M):
        last = heading or last
        if block:
            yield pytest.param(last, block, id=last)


def with_files(block: str, folder: Path) -> str:
    """With the files that it names, which are made."""
    if "operator.jwt" in block:
        operator = Operator()
        (folder / "operator.jwt").write_text(operator.token)
        (folder / "accounts").mkdir()
        (folder / "accounts" / f"{operator.sys.public}.jwt").write_text(operator.sys.token)
        block = block.replace("SYSTEM_ACCOUNT_KEY", operator.sys.public)
    if "server.pem" in block:
        authority = Authority(folder)
        authority.server("server")
        (folder / "clients.pem").write_bytes(authority.cert.read_bytes())
    return re.sub(r'"(operator\.jwt|accounts|\w+\.pem|server\.key)"', rf'"{folder}/\1"', block)


@pytest.mark.parametrize(("heading", "block"), list(blocks()))
def test_the_configuration_is_served(
    servers: Servers, tmp_path: Path, heading: str, block: str
) -> None:
    jetstream = "jetstream:" in block
    server = servers.under_test(config=with_files(block, tmp_path), jetstream=jetstream)
    if heading in USERS:
        with RawClient(server.port) as client:
            login = f'{{"user":"{USERS[heading]}","pass":"secret","verbose":false}}'
            client.send(f"CONNECT {login}\r\nPING\r\n".encode())
            heard = client.until("PONG")
        assert not [frame for frame in heard if frame.verb == "-ERR"]
