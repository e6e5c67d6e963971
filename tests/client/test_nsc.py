"""The tool `nsc` against a running server, where there is one: `$NSC`, or on PATH."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client as NATS

from jsserver.client.credentials import read_credentials_file, sign
from tests.client.raw import EOF, RawClient
from tests.client.refusals import said_to
from tests.servers import Server, Servers

NSC = os.environ.get("NSC") or shutil.which("nsc") or ""

pytestmark = pytest.mark.skipif(not NSC, reason="no nsc: set NSC, or put it on PATH")


class Nsc:
    """The tool with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        places = {name: str(home / name) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
        self.env = {**os.environ, **places, "NKEYS_PATH": str(home / "keys")}

    def __call__(self, *words: str) -> str:
        run = subprocess.run(
            [NSC, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        said = run.stdout + run.stderr
        assert run.returncode == 0, f"nsc {' '.join(words)}: {said}"
        return said

    def credentials(self, account: str, user: str) -> Path:
        return self.home / f"keys/creds/OP/{account}/{user}.creds"

    def login(self, server: Server, account: str, user: str) -> str:
        """What becomes of a login with the user's credentials."""
        found = read_credentials_file(str(self.credentials(account, user)))
        with RawClient(server.port) as client:
            info = client.frame().json
            _, sig = sign(found.nkey_seed, str(info["nonce"]).encode())
            say = {"jwt": found.jwt, "sig": sig}
            return said_to(client, say, info)[-1].verb


def test_accounts_are_pushed_pulled_and_pruned(servers: Servers, tmp_path: Path) -> None:
    nsc = Nsc(tmp_path / "home")
    nsc("add", "operator", "--name", "OP", "--sys", "--generate-signing-key")
    for name in ("APP", "OLD"):
        nsc("add", "account", "--name", name)
        nsc("add", "user", "--account", name, "--name", "alice")
    config = tmp_path / "resolver.conf"
    nsc("generate", "config", "--nats-resolver", "--config-file", str(config))
    text = config.read_text().replace("./jwt", str(tmp_path / "jwt"))
    text = text.replace("allow_delete: false", "allow_delete: true")
    server = servers.under_test(config=text)
    nsc("edit", "operator", "--account-jwt-server-url", server.url, "--service-url", server.url)

    assert nsc.login(server, "APP", "alice") == EOF
    assert nsc("push", "-A").count("jwt updated") == 3
    assert nsc.login(server, "APP", "alice") == nsc.login(server, "OLD", "alice") == "PONG"
    assert "stored account" in nsc("pull", "-A")
    nsc("revocations", "add-user", "--account", "APP", "--name", "alice")
    assert "jwt updated" in nsc("push", "-a", "APP")
    assert nsc.login(server, "APP", "alice") == EOF
    nsc("delete", "account", "--name", "OLD", "--revoke=false")
    assert "deleted 1 accounts" in nsc("push", "-P", "-A")
    assert nsc.login(server, "OLD", "alice") == EOF
    server.restart()
    assert "nothing to prune" in nsc("push", "-P", "-A")


def test_what_accounts_share_and_roles_allow(servers: Servers, tmp_path: Path) -> None:
    nsc = Nsc(tmp_path / "home")
    nsc("add", "operator", "--name", "OP", "--sys", "--generate-signing-key")
    for name in ("APP", "OTHER"):
        nsc("add", "account", "--name", name)
    nsc("add", "export", "--account", "APP", "--name", "priv", "--subject", "priv.>", "--private")
    token = str(tmp_path / "activation.jwt")
    target = nsc("describe", "account", "OTHER", "--field", "sub").strip().strip('"')
    activate = ("generate", "activation", "--account", "APP", "--subject", "priv.>")
    nsc(*activate, "--target-account", target, "--output-file", token)
    nsc("add", "import", "--account", "OTHER", "--token", token, "--local-subject", "got.>")
    role = ("edit", "signing-key", "--account", "APP", "--sk", "generate", "--role", "reader")
    nsc(*role, "--allow-sub", "for.{{name()}}", "--deny-pub", ">")
    for account, user, *more in (
        ("APP", "alice"),
        ("OTHER", "bob"),
        ("APP", "carol", "-K", "reader"),
    ):
        nsc("add", "user", "--account", account, "--name", user, *more)
    config = tmp_path / "resolver.conf"
    nsc("generate", "config", "--mem-resolver", "--config-file", str(config))
    server = servers.under_test(config=config.read_text())

    async def share() -> None:
        errors: list[str] = []

        async def note(error: Exception) -> None:
            errors.append(str(error))

        async def join(account: str, user: str) -> NATS:
            found = read_credentials_file(str(nsc.credentials(account, user)))
            return await nats.connect(
                server.url,
                user_jwt_cb=lambda: bytearray(found.jwt.encode()),
                signature_cb=lambda nonce: sign(found.nkey_seed, nonce.encode())[1].encode(),
                error_cb=note,
            )

        alice, bob, carol = (
            await join("APP", "alice"),
            await join("OTHER", "bob"),
            await join("APP", "carol"),
        )
        got, mail = await bob.subscribe("got.>"), await carol.subscribe("for.carol")
        for client in (bob, carol):
            await client.flush()
        assert errors == []
        await carol.subscribe("for.alice")
        await carol.publish("for.carol", b"no")
        await carol.flush()
        assert ["subscription" in errors[0], "publish" in errors[1]] == [True, True], errors
        await alice.publish("priv.x", b"secret")
        await alice.publish("for.carol", b"mail")
        message = await got.next_msg(10)
        assert (message.subject, message.data) == ("got.x", b"secret")
        assert (await mail.next_msg(10)).data == b"mail"
        for client in (alice, bob, carol):
            await client.close()

    asyncio.run(share())
