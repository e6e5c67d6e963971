"""What a client proves itself with: credentials files, nkey seeds (ADR-14) and TLS certificates."""

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

    from nacl.signing import SigningKey

_SECTION = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s*\n(.*?)\n\s*-{3,}END", re.DOTALL)
_SEED, _USER = 18 << 3, 20 << 3
"""What the first bytes of a user's seed say: the letters S and U in base 32."""
_SEED_BYTES = 2 + 32 + 2
"""Two bytes of prefix, the Ed25519 seed, a CRC-16."""


class CredentialsError(Exception):
    """A file or text that holds no usable credentials; the text names it, never its content."""


@dataclass(frozen=True)
class Credentials:
    """Who a client is. `jwt` comes with `nkey_seed`; the seed is the text that starts with SU."""

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    nkey_seed: str = ""

    def __repr__(self) -> str:
        return "Credentials(...)"

    def connect_fields(self, nonce: str) -> dict[str, str]:
        """The fields of CONNECT; CredentialsError when the seed is none."""
        fields = {"user": self.user, "pass": self.password, "auth_token": self.token}
        if self.nkey_seed:
            key, signature = sign(self.nkey_seed, nonce.encode())
            fields["sig"] = signature
            fields.update({"jwt": self.jwt} if self.jwt else {"nkey": key})
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files; without `ca_file` the system's authorities are trusted."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True

    @property
    def wanted(self) -> bool:
        return bool(self.ca_file or self.cert_file or not self.verify)

    def context(self) -> "SSLContext":
        """CredentialsError names the file that cannot be used."""
        import ssl  # only here: few clients need it

        at = self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                at = self.cert_file
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except OSError as error:  # such as ssl.SSLError
            raise CredentialsError(f"{at}: not usable for TLS: {error}") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def read_credentials_file(path: str) -> Credentials:
    """A credentials file as nsc writes it."""
    try:
        return parse_credentials(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{path}: cannot be read: {error}") from None


def parse_credentials(text: str, name: str = "credentials") -> Credentials:
    """The text of a credentials file: a user's JWT and the seed that belongs to it."""
    found = {kind.strip(): body.strip() for kind, body in _SECTION.findall(text)}
    jwt, seed = found.get("NATS USER JWT"), found.get("USER NKEY SEED")
    if not jwt or not seed:
        missing = "no USER NKEY SEED" if jwt else "no NATS USER JWT"
        raise CredentialsError(f"{name}: not a credentials file: {missing} section in it")
    return Credentials(jwt=jwt, nkey_seed=seed)


def read_seed_file(path: str) -> Credentials:
    """A file that holds an nkey seed, alone or among other lines."""
    try:
        lines = Path(path).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{path}: cannot be read: {error}") from None
    for line in lines:
        if line.startswith("SU"):
            return Credentials(nkey_seed=line)
    raise CredentialsError(f"{path}: no user's nkey seed (SU...) in it")


def sign(seed: str, message: bytes) -> tuple[str, str]:
    """The public key of a seed and its signature of a message, both as NATS writes them."""
    kind, key = _decode_seed(seed)
    signature = base64.urlsafe_b64encode(key.sign(message).signature).decode().rstrip("=")
    return _public(kind, key), signature


def public_key_of(seed: str) -> str:
    """The public key of a user's seed; CredentialsError where that is none."""
    return _public(*_decode_seed(seed))


def _public(kind: int, key: "SigningKey") -> str:
    public = bytes([kind]) + bytes(key.verify_key)
    public += binascii.crc_hqx(public, 0).to_bytes(2, "little")
    return base64.b32encode(public).decode().rstrip("=")


def _decode_seed(seed: str) -> "tuple[int, SigningKey]":
    from nacl.signing import SigningKey

    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        raise CredentialsError("the nkey seed is no base32 text") from None
    kind = ((raw[0] & 7) << 5) | (raw[1] >> 3) if len(raw) == _SEED_BYTES else 0
    if kind != _USER or raw[0] & 0xF8 != _SEED:
        raise CredentialsError("the nkey seed is not one of a user (SU...)")
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise CredentialsError("the nkey seed's checksum is wrong: a character was mistyped")
    return kind, SigningKey(raw[2:-2])
