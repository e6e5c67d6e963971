"""What an auth callout is asked about a connection, and what its answer makes of it (ADR-26).

Everything here is computed from what it is handed: nothing is sent and nothing waits.
"""

from __future__ import annotations

import base64
import time
from typing import NamedTuple

from jsserver import NATS_VERSION
from jsserver.access.certificates import read_all, read_secured
from jsserver.access.clients import HIDDEN, Connect
from jsserver.access.refusal import Refused
from jsserver.jwt.claims import AuthorizationResponse, User
from jsserver.jwt.tokens import TokenError, decode_as, encode
from jsserver.jwt.validation import issues_of
from jsserver.text.goformat import quote
from jsserver.text.identity import decode_public
from jsserver.text.nkeys import BoxPair, SigningPair

AUDIENCE = "nats-authorization-request"
XKEY_HEADER = "Nats-Server-Xkey"
_TOKEN = b"eyJ"
_END_OF_PEM = "-----END CERTIFICATE-----\n"


class Asked(NamedTuple):
    """A question that was asked: in which account, about the holder of which new key, of whom, and
    who may have signed the answer (None: anybody)."""

    account: str
    user: str
    xkey: str
    signers: frozenset[str] | None


class Caller(NamedTuple):
    """The server that asks; `timeout` is how long it waits, in seconds, and `verifies` whether it
    lets in over TLS only whose certificate it could check."""

    name: str
    host: str
    tags: list[str]
    signer: SigningPair
    box: BoxPair
    timeout: float
    verifies: bool


class About(NamedTuple):
    """The connection that is asked about, and what its token says of its user; `secured` is what
    the data plane says of its TLS."""

    cid: int
    host: str
    nonce: str
    options: Connect
    user: str = ""
    tags: tuple[str, ...] = ()
    name_tag: str = ""
    secured: bytes = b""


def question(caller: Caller, about: About, asked: Asked, subject: str) -> tuple[bytes, bytes]:
    """The headers and the payload of a request; `subject` is whom it is for. ValueError where it
    cannot be sealed for the xkey."""
    now = int(time.time())
    o = about.options
    server: dict[str, object] = {"name": caller.name, "host": caller.host}
    server |= {"id": caller.signer.public, "version": NATS_VERSION, "tags": caller.tags}
    server["xkey"] = caller.box.public if asked.xkey else ""
    info: dict[str, object] = {"host": about.host, "id": about.cid, "user": about.user}
    info |= {"name": o.name, "tags": about.tags, "name_tag": about.name_tag}
    info |= {"kind": "Client", "type": "nats", "nonce": about.nonce if o.sig else ""}
    options: dict[str, object] = {"jwt": o.jwt, "nkey": o.nkey, "sig": o.sig}
    options |= {"auth_token": o.auth_token, "user": o.user, "pass": o.password}
    options |= {"name": o.name, "lang": o.lang, "version": o.version}
    told = _tls(about.secured, caller.verifies)
    claims = {
        "aud": AUDIENCE,
        "exp": now + int(caller.timeout),
        "iat": now,
        "iss": caller.signer.public,
        "sub": subject,
        "nats": {
            "server_id": _said(server),
            "user_nkey": asked.user,
            "client_info": _said(info),
            "connect_opts": {**_said(options), "protocol": o.protocol or 0},
            **({"client_tls": told} if told else {}),
            "type": "authorization_request",
            "version": 2,
        },
    }
    payload = encode(claims, caller.signer.sign).encode()
    if not asked.xkey:
        return b"", payload
    _, key = decode_public(asked.xkey)
    headers = f"NATS/1.0\r\n{XKEY_HEADER}: {caller.box.public}\r\n\r\n".encode()
    return headers, caller.box.seal(payload, key)


def _tls(secured: bytes, verified: bool) -> dict[str, object]:
    """How a connection is secured, with the certificates that its peer showed in PEM; the authority
    that these were checked against is not among them."""
    found = read_secured(secured)
    if found is None:
        return {}
    told: dict[str, object] = {"version": found.version, "cipher": found.cipher_suite}
    shown = []
    for value in read_all(secured.split(b"\n", 3)[3]):
        text = base64.encodebytes(value.whole).decode().replace("\n", "")
        lines = [text[at : at + 64] for at in range(0, len(text), 64)]
        shown.append("\n".join(["-----BEGIN CERTIFICATE-----", *lines, _END_OF_PEM]))
    if shown:
        told |= {"verified_chains": [shown]} if verified else {"certs": shown}
    return told


def _said(members: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if value}


def shown_user(options: Connect) -> str:
    """Who a connection says it is, where nothing is known of it yet."""
    return options.nkey or options.user or (HIDDEN if options.auth_token else "")


def answered(caller: Caller, asked: Asked, payload: bytes) -> User:
    """The user that an answer makes of the connection; Refused says why it makes none."""
    where = f"on account {quote(asked.account)}"
    if not payload:
        raise Refused(f'Auth callout violation: "no reason supplied" {where}')
    sealed = bool(asked.xkey) and not payload.startswith(_TOKEN)
    if sealed:
        try:
            _, key = decode_public(asked.xkey)
            payload = caller.box.open(payload, key)
        except ValueError as error:
            what = "Error decrypting auth callout response"
            raise Refused(f"{what} {where}: {error}") from None
    try:
        response = decode_as(payload.decode("ascii", "replace"), AuthorizationResponse)
    except TokenError as error:
        raise Refused(title(str(error))) from None
    now = int(time.time())
    issues = issues_of(response, now)
    if issues:
        what = "Authorization response had validation errors"
        raise Refused(f"{what}: {issues[0].text}")
    if response.sub != asked.user:
        what = "auth callout response is not for expected user"
        raise Refused(f"Auth callout violation: {what}")
    if response.aud != caller.signer.public:
        raise Refused("Auth callout violation: auth callout response is not for server")
    if response.nats.error:
        raise Refused(f"Auth callout service returned an error: {response.nats.error}")
    if asked.signers is not None and not sealed:
        # Only the callout can have sealed an answer; any other one its account's keys have signed.
        for_account = response.nats.issuer_account or asked.account
        if response.iss not in asked.signers or for_account != asked.account:
            raise Refused("Auth callout signing key is unknown")
    try:
        user = decode_as(response.nats.jwt, User)
    except TokenError as error:
        raise Refused(title(str(error))) from None
    issues = issues_of(user, now)
    if issues:
        raise Refused(f"Error validating user JWT: {issues[0].text}")
    if user.sub != asked.user:
        raise Refused(
            f"Expected authorized user of {quote(asked.user)} but got {quote(user.sub)} {where}"
        )
    return user


def title(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]
