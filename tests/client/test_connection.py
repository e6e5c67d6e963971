"""The blocking client connection against real servers: credentials, TLS, requests, refusals."""

import base64
import binascii
import datetime
import hashlib
import ipaddress
import json
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from jsserver.client.connection import Connection, ConnectionFailed, Message, Refused
from jsserver.client.credentials import (
    Credentials,
    CredentialsError,
    Tls,
    parse_credentials,
    read_credentials_file,
    read_seed_file,
    sign,
)
from tests.servers import Server, Servers

USER, ACCOUNT, OPERATOR = 20, 0, 14
"""The letters U, A and O in base 32, with which public keys start."""


def base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=")


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def with_crc(data: bytes) -> str:
    return base32(data + binascii.crc_hqx(data, 0).to_bytes(2, "little"))


class Nkey:
    """A key pair of a kind; the seed starts with S and the kind's letter."""

    def __init__(self, kind: int, number: int) -> None:
        raw = hashlib.sha256(b"%d %d" % (kind, number)).digest()
        self.key = Ed25519PrivateKey.from_private_bytes(raw)
        prefix = kind << 3
        self.seed = with_crc(bytes([(18 << 3) | (prefix >> 5), (prefix & 31) << 3]) + raw)
        self.public = with_crc(bytes([prefix]) + self.key.public_key().public_bytes_raw())

    def jwt(self, subject: str, name: str, nats: dict[str, object]) -> str:
        """A token about `subject`, signed by this key."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        claims = {
            "jti": name,
            "iat": int(time.time()),
            "iss": self.public,
            "name": name,
            "sub": subject,
            "nats": {"version": 2, **nats},
        }
        text = ".".join(base64url(json.dumps(part).encode()) for part in (head, claims))
        return f"{text}.{base64url(self.key.sign(text.encode()))}"


def credentials_text(user: Nkey, jwt: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def write_certificates(folder: Path) -> None:
    """ca.pem, and cert.pem with key.pem for 127.0.0.1, signed by it."""
    now = datetime.datetime.now(datetime.UTC)
    authority = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())

    def certificate(name: str, public: ec.EllipticCurvePublicKey, ca: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(authority, hashes.SHA256())

    pem = serialization.Encoding.PEM
    ca = certificate("authority", authority.public_key(), True)
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    own = certificate("server", key.public_key(), False)
    (folder / "cert.pem").write_bytes(own.public_bytes(pem))
    plain = serialization.NoEncryption()
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(text)


def test_a_request_is_answered(core_server: Server) -> None:
    with (
        Connection(core_server.url, name="a") as asker,
        Connection(core_server.url, name="b") as helper,
    ):
        helper.subscribe("double")
        helper.flush()
        sid = asker.subscribe("inbox")
        asker.send(b"PUB double inbox 2\r\n21\r\n")
        asked = helper.next_op()
        assert isinstance(asked, Message)
        helper.send(f"PUB {asked.reply} 2\r\n42\r\n".encode())
        assert asker.next_op() == Message("inbox", sid, "", b"", b"42")


def test_headers_and_status_are_told(core_server: Server) -> None:
    with Connection(core_server.url, name="a") as connection:
        connection.subscribe("here")
        head = b"NATS/1.0 404 None\r\nA: b\r\n\r\n"
        connection.send(b"HPUB here %d %d\r\n%bhi\r\n" % (len(head), len(head) + 2, head))
        got = connection.next_op()
        assert isinstance(got, Message)
        assert (got.header, got.data, got.status) == (head, b"hi", (404, "None"))


def test_a_request_that_nobody_answers_says_so(core_server: Server) -> None:
    with (
        Connection(core_server.url, name="a") as connection,
        pytest.raises(ConnectionFailed, match="nobody answers nowhere"),
    ):
        connection.request("nowhere")


def test_a_request_without_an_answer_ends(core_server: Server) -> None:
    with (
        Connection(core_server.url, name="a", timeout=0.2) as asker,
        Connection(core_server.url, name="b") as silent,
    ):
        silent.subscribe("silence")
        silent.flush()
        with pytest.raises(ConnectionFailed, match=r"0\.2 s"):
            asker.request("silence")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1", "nats://", "me:secret@host:99999", "me:secret/@host", "nats://[::1"],
)
def test_a_url_that_is_none_is_told_without_its_password(url: str) -> None:
    with pytest.raises(ConnectionFailed, match="not a nats:// or tls:// URL") as failed:
        Connection(url, name="t")
    assert "secret" not in str(failed.value)


def test_the_next_server_is_tried(core_server: Server) -> None:
    with Connection(["nats://127.0.0.1:1", core_server.url], name="a") as connection:
        assert connection.url == core_server.url
    with pytest.raises(ConnectionFailed, match=r"cannot connect to nats://127\.0\.0\.1:1"):
        Connection("nats://127.0.0.1:1", name="a")


@pytest.mark.parametrize(
    ("config", "url", "good", "bad"),
    [
        (
            'authorization: {user: "ada", password: "s3cret"}',
            "nats://ada:s3cret@",
            Credentials(user="ada", password="s3cret"),
            Credentials(user="ada", password="guess"),
        ),
        (
            'authorization: {token: "t0ken"}',
            "nats://t0ken@",
            Credentials(token="t0ken"),
            Credentials(token="guess"),
        ),
    ],
)
def test_passwords_and_tokens(
    servers: Servers, config: str, url: str, good: Credentials, bad: Credentials
) -> None:
    server = servers.under_test(config=config)
    Connection(server.url, name="a", credentials=good).close()
    Connection(server.url.replace("nats://", url), name="a").close()
    with pytest.raises(Refused, match="Authorization Violation"):
        Connection(server.url, name="a", credentials=bad)


@pytest.mark.usefixtures("peer_present")
def test_nkeys_and_credentials_files(servers: Servers, tmp_path: Path) -> None:
    operator, account, user = Nkey(OPERATOR, 1), Nkey(ACCOUNT, 1), Nkey(USER, 1)
    token = operator.jwt(operator.public, "op", {"type": "operator"})
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1}
    limits |= {"payload": -1, "wildcards": True}
    about = operator.jwt(account.public, "acc", {"type": "account", "limits": limits})
    server = servers.peer(
        config=f"operator: {token}\nresolver: MEMORY\n"
        f"resolver_preload: {{{account.public}: {about}}}"
    )
    mine = {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
    jwt = account.jwt(user.public, "me", mine)
    path = tmp_path / "me.creds"
    path.write_text(credentials_text(user, jwt))
    for credentials in (read_credentials_file(str(path)), parse_credentials(path.read_text())):
        with Connection(server.url, name="a", credentials=credentials) as connection:
            connection.subscribe("x")
            connection.flush()
    other = Credentials(jwt=jwt, nkey_seed=Nkey(USER, 2).seed)
    with pytest.raises(Refused, match="Authorization Violation"):
        Connection(server.url, name="a", credentials=other)

    plain = servers.peer(config=f"authorization: {{users: [{{nkey: {user.public}}}]}}")
    seed = tmp_path / "seed.nk"
    seed.write_text(f"# mine\n{user.seed}\n")
    Connection(plain.url, name="a", credentials=read_seed_file(str(seed))).close()


def test_credentials_that_are_none_are_refused(tmp_path: Path) -> None:
    user = Nkey(USER, 3)
    assert sign(user.seed, b"")[0] == user.public
    with pytest.raises(CredentialsError, match="checksum"):
        sign(user.seed[:-3] + ("A" if user.seed[-3] != "A" else "B") + user.seed[-2:], b"")
    with pytest.raises(CredentialsError, match="not one of a user"):
        sign(Nkey(ACCOUNT, 3).seed, b"")
    with pytest.raises(CredentialsError, match="base32"):
        sign("SU!", b"")
    with pytest.raises(CredentialsError, match="no NATS USER JWT"):
        parse_credentials("hello")
    with pytest.raises(CredentialsError, match=r"missing\.creds: cannot be read"):
        read_credentials_file(str(tmp_path / "missing.creds"))
    (tmp_path / "none").write_text("nothing")
    with pytest.raises(CredentialsError, match="no user's nkey seed"):
        read_seed_file(str(tmp_path / "none"))
    assert "s3cret" not in repr(Credentials(password="s3cret"))


@pytest.mark.usefixtures("peer_present")
def test_tls(servers: Servers, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    cert, key, ca = (str(tmp_path / name) for name in ("cert.pem", "key.pem", "ca.pem"))
    tls = f'tls: {{cert_file: "{cert}", key_file: "{key}", ca_file: "{ca}"}}'
    server = servers.peer(config=tls)
    with Connection(server.url, name="a", tls=Tls(ca_file=ca)) as connection:
        connection.flush()
    Connection(server.url.replace("nats:", "tls:"), name="a", tls=Tls(ca_file=ca)).close()
    Connection(server.url, name="a", tls=Tls(verify=False)).close()
    with pytest.raises(ConnectionFailed, match=r"TLS failed.*certificate"):
        Connection(server.url, name="a")
    with pytest.raises(CredentialsError, match=r"none\.pem: not usable for TLS"):
        Connection(server.url, name="a", tls=Tls(ca_file=str(tmp_path / "none.pem")))

    strict = servers.peer(config=tls.replace("}", ", verify: true}"))
    mine = Tls(ca_file=ca, cert_file=cert, key_file=key)
    with Connection(strict.url, name="a", tls=mine) as connection:
        connection.flush()
    with pytest.raises(ConnectionFailed):
        Connection(strict.url, name="a", tls=Tls(ca_file=ca))


def test_tls_where_there_is_none(core_server: Server) -> None:
    with pytest.raises(ConnectionFailed, match="does not offer TLS"):
        Connection(core_server.url, name="a", tls=Tls(verify=False))


@pytest.mark.usefixtures("peer_present")
def test_what_nats_server_says_of_itself(servers: Servers) -> None:
    accounts = "accounts { SYS { users: [{ user: sys, password: sys }] } }, system_account: SYS"
    server = servers.peer(config=accounts)
    login = Credentials(user="sys", password="sys")
    with Connection(server.url, name="a", credentials=login, timeout=5) as connection:
        answer = connection.request(f"$SYS.REQ.SERVER.{connection.info['server_id']}.VARZ")
    assert json.loads(answer.data)["server"]["id"] == connection.info["server_id"]
