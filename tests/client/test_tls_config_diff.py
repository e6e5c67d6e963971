"""`tls` blocks and flags given to nats-server and to this server: the verdict and its words."""

from pathlib import Path

import pytest

from tests.client.test_config_diff import ours, peer, problems
from tests.client.tls import Site
from tests.peer import REASON, find_peer

pytestmark = pytest.mark.skipif(find_peer() is None, reason=REASON)
Output = pytest.CaptureFixture[str]

PIN = "0123456789abcdef" * 4
GOOD = [
    "verify: true, ca_file: CA",
    "verify: true",
    "verify_and_map: true, ca_file: CA",
    "verify_and_map: false, verify: false",
    "insecure: true",
    "timeout: 3",
    "timeout: 0.5",
    'timeout: "1500ms"',
    'min_version: "1.2"',
    'min_version: "1.3"',
    "handshake_first: true",
    "handshake_first: false",
    "first: auto",
    "immediate: on",
    'handshake_first: "auto_fallback"',
    'handshake_first: "300ms"',
    'handshake_first: "OFF"',
    f'pinned_certs: ["{PIN}"]',
    f'pinned_certs: ["{PIN.upper()}"]',
    "pinned_certs: []",
    "connection_rate_limit: 5",
    "cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]",
    "cipher_suites: [TLS_AES_128_GCM_SHA256]",
    "cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256], allow_insecure_cipher_suites: true",
    "curve_preferences: [X25519, CurveP256, CurveP384, CurveP521]",
    "curve_preferences: [X25519MLKEM768, X25519]",
    "CERT_FILE: CERT, Key_File: KEY",
    "ocsp_peer: false",
    "ocsp_peer: true, verify: true",
    "ocsp_peer {}",
    "ocsp_peer { verify: true, ca_timeout: 5, allowed_clockskew: '1m' }",
    "ocsp_peer { Verify: true, ca_timeout: -5, cache_ttl_when_next_update_unset: 0.5 }",
    "ocsp_peer { warn_only: true, unknown_is_good: false, allow_when_ca_unreachable: true }",
    "verify_cert_and_check_known_urls: false",
]
BAD = [
    "ocsp_peer: 5",
    "ocsp_peer: [1]",
    "ocsp_peer { nope: 5 }",
    "ocsp_peer { verify: 5 }",
    "ocsp_peer { warn_only: 5 }",
    "ocsp_peer { ca_timeout: true }",
    "ocsp_peer { ca_timeout: x }",
    "ocsp_peer { allowed_clockskew: [1] }",
    "nope: 1",
    "cert_file: 5",
    "key_file: 5",
    "ca_file: true",
    "ca_file: /nowhere.pem",
    "ca_file: KEY",
    "insecure: 5",
    "verify: 1",
    "verify_and_map: yep",
    "verify_cert_and_check_known_urls: true",
    "verify_cert_and_check_known_urls: 5",
    "allow_insecure_cipher_suites: 5",
    "cipher_suites: []",
    "cipher_suites: TLS",
    "cipher_suites: [NOPE]",
    "cipher_suites: [5]",
    "cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]",
    "curve_preferences: []",
    "curve_preferences: [NOPE]",
    "curve_preferences: 5",
    "timeout: x",
    "timeout: true",
    "timeout: []",
    "connection_rate_limit: x",
    "pinned_certs: 5",
    "pinned_certs: [5]",
    "pinned_certs: [abc]",
    "min_version: 1.2",
    'min_version: "1.0"',
    'min_version: "1.1"',
    'min_version: "x"',
    "handshake_first: 5",
    "handshake_first: sometimes",
    "certs: 5",
    "certs: [5]",
    "certs: [{cert_file: CERT}]",
    "certs: [{cert_file: 5, key_file: KEY}]",
    "certs: [{nope: x}]",
    "certs: [{cert_file: CERT, key_file: KEY}]",
    "cert_file: /nowhere.pem",
    "key_file: /nowhere.key",
    "cert_file: KEY",
    "key_file: CA_KEY",
    "cert_file: EMPTY",
    "key_file: EMPTY",
    "key_file: CERT",
]
WHOLE = [
    "tls { cert_file: CERT }",
    "tls { key_file: KEY }",
    "tls { certs: [{cert_file: CERT, key_file: KEY}, {cert_file: CA, key_file: CA_KEY}] }",
    "tls { certs: [{cert_file: CERT, key_file: KEY}, {cert_file: CA, key_file: KEY}] }",
    "tls { certs: [{cert_file: CERT, key_file: KEY}, {cert_file: /nowhere, key_file: KEY}] }",
    "ocsp_cache: true",
    "ocsp_cache: false",
    "ocsp_cache {}",
    "ocsp_cache { type: Local, local_store: x, preserve_revoked: true, save_interval: 5 }",
    "ocsp_cache { type: none, save_interval: '1m' }",
    "ocsp_cache { save_interval: 0 }",
    "ocsp_cache { type: nope }",
    "ocsp_cache { type: 5 }",
    "ocsp_cache { local_store: 5 }",
    "ocsp_cache { preserve_revoked: 5 }",
    "ocsp_cache { save_interval: true }",
    "ocsp_cache { save_interval: x }",
    "ocsp_cache { nope: 5 }",
    "ocsp_cache: 5",
    "ocsp: true",
    "ocsp: false",
    "ocsp {}",
    "ocsp { mode: always, url: 'http://x' }",
    "ocsp { mode: Never }",
    "ocsp { mode: sometimes }",
    "ocsp { mode: 5 }",
    "ocsp { nope: 5 }",
    "ocsp { url: 5 }",
    "ocsp: 5",
    "ocsp: yep",
    "ocsp: [1]",
    "tls: 5",
    "tls: true",
    "tls: []",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "empty").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def filled(text: str, site: Site) -> str:
    """Words in capitals are files."""
    authority = site.authority.cert
    for word, path in {
        "CA_KEY": authority.with_suffix(".key"),
        "CERT": site.server.cert,
        "EMPTY": "empty",
        "KEY": site.server.key,
        "CA": authority,
    }.items():
        for end in (",", "}", " ", "\n"):
            text = text.replace(f": {word}{end}", f': "{path}"{end}')
    return text


def compare(config: str, capsys: Output) -> tuple[int, str]:
    Path("a.conf").write_text(config)
    ours_code, _, ours_err = ours(capsys, "-t", "-c", "a.conf")
    peer_code, _, peer_err = peer("-t", "-c", "a.conf")
    assert (ours_code, problems(ours_err)) == (peer_code, problems(peer_err))
    return ours_code, ours_err


def block(entry: str, site: Site) -> str:
    entries = [entry]
    if "certs:" not in entry or "pinned" in entry:
        for key, word in (("cert_file", "CERT"), ("key_file", "KEY")):
            if key not in entry.lower():
                entries.append(f"{key}: {word}")
    elif "CERT, key_file: KEY" in entry:
        entries.append("cert_file: CERT\nkey_file: KEY")
    return filled("tls {\n" + "\n".join(entries) + "\n}\n", site)


@pytest.mark.parametrize("entry", GOOD)
def test_what_is_taken(entry: str, site: Site, capsys: Output) -> None:
    assert compare(block(entry, site), capsys)[0] == 0


@pytest.mark.parametrize("entry", BAD)
def test_what_is_refused(entry: str, site: Site, capsys: Output) -> None:
    assert compare(block(entry, site), capsys)[0] == 1


@pytest.mark.parametrize("config", WHOLE)
def test_whole_blocks(config: str, site: Site, capsys: Output) -> None:
    compare(filled(config + "\n", site), capsys)


@pytest.mark.parametrize(
    "flags",
    [
        ["--tls"],
        ["--tlscert", "CERT"],
        ["--tls", "--tlskey", "KEY"],
        ["--tls", "--tlscert", "/nowhere", "--tlskey", "KEY"],
        ["--tlsverify", "--tlscert", "CERT", "--tlskey", "KEY", "--tlscacert", "/nowhere"],
    ],
)
def test_flags_that_are_refused(flags: list[str], site: Site, capsys: Output) -> None:
    words = [filled(f": {word} ", site)[2:].strip().strip('"') for word in flags]
    ours_code, _, ours_err = ours(capsys, *words)
    peer_code, _, peer_err = peer(*words)
    assert (ours_code, ours_err) == (peer_code, peer_err)
    assert ours_code == 1
