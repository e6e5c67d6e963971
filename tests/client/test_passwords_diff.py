"""What both servers warn of in passwords, and whom they let in by hashes and without any."""

import bcrypt
import pytest

from tests.client.raw import RawClient
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

HASH = bcrypt.hashpw(b"secret", b"$2a$04$Wfu2GqBYQJVGI.G/Oa4Au.").decode()
"""With a salt of its own: it is part of the names of tests, which every process has to know."""
PLAIN = "Plaintext passwords detected"


def start_pair(servers: Servers, config: str, args: tuple[str, ...] = ()) -> list[Server]:
    return [start(config=config, args=args) for start in (servers.under_test, servers.peer)]


@pytest.mark.parametrize(
    ("config", "args", "warned"),
    [
        ("", ("--auth", "abc"), False),
        ("authorization { token: abc }", (), False),
        ("", ("--user", "a", "--pass", "b"), True),
        (f"authorization {{ user: a, password: '{HASH}' }}", (), False),
        ("authorization { users: [{user: a, password: b}] }", (), True),
        (f"authorization {{ users: [{{user: a, password: '{HASH}'}}] }}", (), False),
        ("authorization { users: [{user: a}] }", (), True),
        (f"accounts {{ A: {{ users: [{{user: a, password: '{HASH}'}}] }} }}", (), False),
        ("accounts { A: { users: [{user: a, password: b}] } }", (), True),
        ("accounts { A: {} }", (), False),
    ],
)
def test_who_is_told_of_plain_passwords(
    servers: Servers, config: str, args: tuple[str, ...], warned: bool
) -> None:
    for server in start_pair(servers, config, args):
        assert (PLAIN in server.log()) == warned, server.command


@pytest.mark.parametrize(
    "first", [b'CONNECT {"verbose":false}\r\nPING\r\n', b"PING\r\n", b"PUB a 0\r\n\r\n"]
)
@pytest.mark.parametrize("password", [HASH, "plain"])
def test_no_auth_user_with_a_hash(servers: Servers, password: str, first: bytes) -> None:
    config = f"""
        authorization {{
            users: [{{user: guest, password: '{password}'}}, {{user: b, password: x}}]
        }}
        no_auth_user: guest
    """
    found = []
    for server in start_pair(servers, config):
        with RawClient(server.port) as client:
            info = client.frame().json
            client.send(first + b"PING\r\n")
            frame = client.frame()
            found.append((info.get("auth_required"), frame.verb, frame.line))
    assert found[0] == found[1]
    assert (found[0][1] == "-ERR") == (password == HASH)


def test_hashes_that_fit_no_password(servers: Servers) -> None:
    broken = {
        "short": HASH[:-1],
        "long": HASH + "x",
        "cost": "$2a$99" + HASH[6:],
        "sign": "$2a$10$!",
    }
    users = ", ".join(f"{{user: {name}, password: '{text}'}}" for name, text in broken.items())
    config = f"authorization {{ users: [{users}, {{user: ok, password: '{HASH}'}}] }}"
    server = servers.under_test(config=config)
    told = [line for line in server.log().splitlines() if "begins like a hash of bcrypt" in line]
    assert len(told) == 4 and all(
        f'"{name}"' in line for name, line in zip(broken, told, strict=True)
    )
