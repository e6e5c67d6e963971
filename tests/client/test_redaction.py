"""Passwords, tokens, signatures and JWTs are in no log, trace, page, event or error."""

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.client.raw import EOF, RawApp, RawClient
from tests.client.tokens import Client, configured
from tests.jwts import Account, Operator, User
from tests.nkeys import Signer
from tests.servers import Servers, command_under_test

SECRET = "s3cr3t"
CONFIG = f"""
accounts {{
    A {{ users: [{{ user: a, password: "{SECRET}" }}, {{ user: b, password: "{SECRET}2" }}] }}
    S {{ users: [{{ user: s, password: "{SECRET}3" }}] }}
}}
system_account: S
"""
CONNECTS = (
    '{"user":"a","pass":"%s"}',
    '{"user":"a","pass":"%s","verbose":"no"}',
    '{"user":"a","pass":"%s"',
    '{"user":"a","PASS":"%s"}',
    '{"user":"a","p\\u0061ss":"%s"}',
    '{"user":"a","pass":"x\\"%s"}',
    '{"user":"a","pass":["%s"]}',
    '{"user":"a","pass":{"x":"%s"}}',
    '{"user":"a","pass":"%s","pass":"x"}',
    '{"user":"a","password":"%s"}',
    '{"auth_token":"%s"}',
    '{"auth_token":"%s","nope":}',
    '{"jwt":"%s","sig":"%s","proxy_sig":"%s"}',
    '"%s"',
    '["%s"]',
    "pass: %s",
    '{"user":"a","pass":"%s","name":"\xff"}',
)


def test_nothing_tells_a_secret(servers: Servers) -> None:
    server = servers.under_test(config=CONFIG, monitor=True, args=["-DV"])
    options = {"verbose": False, "user": "s", "pass": f"{SECRET}3"}
    listener = RawApp(server.port, options=json.dumps(options).encode())
    listener.subscribe("$SYS.>")
    listener.sync()
    said = b""
    for text in CONNECTS:
        connect = text.replace("%s", SECRET).encode("latin-1")
        with RawClient(server.port) as client:
            client.frame()
            client.send(b"CONNECT " + connect + b"\r\nPING\r\n")
            frames = client.until("PONG")
            said += b"".join(frame.line + frame.payload for frame in frames)
            accepted = frames[-1].verb != EOF
            if accepted:
                client.send(b"PUB $SYS.REQ.USER.INFO x 0\r\n\r\n")
                client.sync()
            for page in ("/connz?auth=1&state=any&subs=detail", "/varz", "/accountz?acc=A"):
                with urllib.request.urlopen(server.monitor_url + page, timeout=10) as answer:
                    said += answer.read()
    said += b"".join(frame.payload for frame in listener.quiet(0.5))
    listener.close()
    server.stop()
    assert b"client_disconnect" in said
    assert SECRET.encode() not in said
    assert SECRET not in server.log()
    assert "CONNECT" in server.log() and "[REDACTED]" in server.log()


def test_tokens_and_signatures_are_in_no_log(servers: Servers) -> None:
    """In operator mode; pages show only tokens that need a signature."""
    operator = Operator()
    account = Account(operator)
    proxy = Signer()
    config = configured(operator, [account], f"proxies {{ trusted: [{{ key: {proxy.public} }}] }}")
    server = servers.under_test(config=config, monitor=True, args=["-DV"])
    bearer, user, stranger = (
        User(account, bearer_token=True),
        User(account),
        User(Account(operator)),
    )
    secrets = [bearer.token, stranger.token]
    with Client(server, User(operator.sys)) as listener:
        listener.send(b"SUB $SYS.> 1\r\n")
        listener.sync()
        for who in (bearer, user, stranger):
            for more in ({}, {"proxy_sig": "s3cr3t"}, {"user": "u", "pass": "s3cr3t"}):
                with RawClient(server.port) as client:
                    nonce = str(client.frame().json["nonce"])
                    sig = who.signature(nonce)
                    secrets.append(sig)
                    options = {"jwt": who.token, "sig": sig, **more}
                    if not more:
                        options["proxy_sig"] = proxy.signature(nonce)
                        secrets.append(options["proxy_sig"])
                    client.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
                    client.until("PONG")
                    for path in (
                        "/connz?auth=1&state=any",
                        "/varz",
                        f"/accountz?acc={account.public}",
                    ):
                        with urllib.request.urlopen(
                            server.monitor_url + path, timeout=10
                        ) as answer:
                            told = answer.read().decode()
                        assert not [s for s in secrets if s in told] and "s3cr3t" not in told
        said = "".join(frame.payload.decode() for frame in listener.quiet(0.3))
    server.stop()
    assert "client_disconnect" in said
    assert user.token in said, "it needs a signature, and who came is told by it"
    assert not [s for s in secrets if s in said]
    log = server.log()
    assert "[REDACTED]" in log
    assert not [s for s in [*secrets, "s3cr3t"] if s in log]
    told = [line for line in log.splitlines() if user.token in line]
    assert all("MSG_PAYLOAD" in line for line in told), "but in events that somebody listens to"


@pytest.mark.parametrize(
    "text",
    [
        'authorization { user: a, password: "%s", nope: 1 }',
        'authorization { user: a, password: "%s", token: "%s" }',
        'authorization { user: a, password: ["%s"] }',
        'authorization { user: a, password: { x: "%s" } }',
        'authorization { token: ["%s"] }',
        'authorization { users: [{ user: a, password: "%s", nkey: "%s" }] }',
        'authorization { users: [{ password: "%s" }] }',
        'authorization { users: [{ user: a, password: ["%s"] }] }',
        'accounts { A { users: [{ user: a, password: "%s" }, { user: a, password: "%s" }] } }',
    ],
)
def test_errors_of_a_configuration_tell_no_secret(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.conf"
    path.write_text(text.replace("%s", SECRET))
    run = subprocess.run(
        [*command_under_test(), "-c", str(path), "-p", "-1"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 1
    assert SECRET not in run.stdout + run.stderr, run.stderr
