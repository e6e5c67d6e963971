"""The same configuration files and flags given to nats-server and to this server.

Compared: the verdict of `-t`, its message with the place, the digest (and with it every parsed
value), the exit code and the streams. What differs on purpose is listed and tested as such.
"""

import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jsserver.cli import main
from jsserver.text.identity import PREFIX_USER, encode_public
from tests.peer import REASON, find_peer

PEER = find_peer()
pytestmark = pytest.mark.skipif(PEER is None, reason=REASON)

Output = pytest.CaptureFixture[str]

NKEY = encode_public(PREFIX_USER, bytes(range(32)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "inc.conf").write_text("X=1\nserver_tags: [$X_TAG]\nmax_payload: 5\n")
    (tmp_path / "bad.conf").write_text("foo = bar baz\n")
    (tmp_path / "unknown.conf").write_text("\n  nope: 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("X_TAG", "tag")
    monkeypatch.setenv("P", "4222")
    monkeypatch.setenv("LIST", "[a, b]")
    monkeypatch.setenv("BAD", "x y")
    monkeypatch.setenv("LOOP", "$LOOP")
    yield tmp_path


def peer(*arguments: str) -> tuple[int, str, str]:
    assert PEER is not None
    run = subprocess.run(
        [PEER, *arguments], capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    out, err = (stream.decode("utf-8", "replace") for stream in (run.stdout, run.stderr))
    return run.returncode, out, err


def ours(capsys: Output, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


VALID = ": configuration file "
WANTED = re.compile(
    r" \((a text|true or false|a whole number|a block) is wanted here\)$"
    r"| \(a value that begins like a number is read as one: put quotes around a text\)$",
    re.MULTILINE,
)
"""What this server says more."""


def problems(err: str) -> list[str]:
    """The lines of a message; nats-server gives several problems in no particular order. What the
    check warns of before it says that a file is valid, nats-server says at the start."""
    if VALID in err:
        return [err.splitlines()[-1]]
    err = WANTED.sub("", err)
    return sorted(err.removeprefix("nats-server: ").splitlines())


def check(text: str | bytes, capsys: Output) -> None:
    raw = text.encode() if isinstance(text, str) else text
    Path("x.conf").write_bytes(raw)
    code, out, err = peer("-t", "-c", "x.conf")
    our_code, our_out, our_err = ours(capsys, "-t", "-c", "x.conf")
    assert "nats-server: " in our_err
    if our_code > code:  # what only the start of nats-server looks at
        assert (our_code, our_out, our_err) == peer("-c", "x.conf"), raw
    else:
        assert (our_code, our_out, problems(our_err)) == (code, out, problems(err)), raw


# Values: the digest covers a value when its key is used as a variable in an option that a later
# line sets anew.
VALUES = """
1 | -1 | 0 | 007 | 1k | 1K | 1kb | 1Ki | 1KiB | 2m | 64MB | 1g | 1t | 1p | 1e | 8eb
10e | 9223372036854775807 | 9223372036854775808 | -9223372036854775808 | 1kx | 1k5 | 12abc
1.5 | -1.5 | 1.0 | 0.00000012 | 123456789.25 | 1. | .5 | 1.5m | 1.5.6 | 127.0.0.1:4222 | 0.0.0.0:-1
true | TRUE | yes | on | off | No | truer | "true" | 'true'
10ms | 30s | 1h | 2m30s | 1d | 1-2 | 2016-05-04T18:53:41Z | 2016-05-04 | 2016-13-04T18:53:41Z
abc | a.b.> | $JS.API.> | _INBOX.* | a#b | a//b | a=b | a:b | a{b | a"b | a'b | é☺ | /a/b | *
"a b" | 'a b' | "a\\nb\\t\\"\\\\" | "\\x41\\xc3\\xa9" | "\\q" | "\\x4" | "unterminated
'x | "" | ''
(\n block\n text\n)\n | (\n no end\n | (x)
[] | [1, 2 ] | [1,2] | [1\n2\n] | [a,b] | [a,,b] | [,a] | [a,] | [a b] | ["a" "b"] | [a | [
[[a],[b]] | [{a 1}, {b 2}] | [{a 1} {b 2}] | [a # c\n b\n] | ["<&>", "\u2028"] | ["\\x01"]
{} | {a 1} | {a: 1, b: 2} | {a 1\nb 2\n} | {a: 1 b: 2} | {a | {a} | {a=b;c=d}
{"a": {"b": [x, 1.5 ]}}
{a=1,,b=2} | {a:} | {=1} | {]} | {a=,} | {"a" 1} | {'a'=1} | {a\n=1} | {a=\n1}
$P | $LIST | $BAD | $LOOP | $NOPE | "$P" | x$P | $2a$11$abcdefgh | $2b$11$abc | [$P]
{a=$P}
""".strip()

CASES = [
    value.replace("\\n", "\n").replace("\\\\", "\\")
    for line in VALUES.splitlines()
    for value in line.split(" | ")
]


@pytest.mark.parametrize("value", CASES)
def test_values(value: str, capsys: Output) -> None:
    check(f"VALUE = {value}\nport = $VALUE\nport = 4222\n", capsys)


FILES = [
    "feature_flags {}",
    "feature_flags {js_ack_fc_v2: false, nope: true}",
    "feature_flags: 5",
    "feature_flags {js_ack_fc_v2: 5}",
    "default_js_domain {}",
    "default_js_domain: 5",
    "leafnodes {}",
    "cluster {}",
    "mqtt {}",
    "write_timeout: default",
    "port: 1234\n",
    '{"port": 1234, "debug": true}',
    "{port: 1234\ndebug: true}\ntrace: true",
    "port 1234; debug on, trace off",
    "port\n1234",
    "port = 1\nport = 2",
    "PORT: 5\nServer_Name: x",
    "\r\nport: 1234\r\n",
    "port: 5}",
    "port: 5\n}",
    "# c\nport: 5 // c",
    "",
    "# only a comment\n",
    "port",
    "port:",
    "=5",
    "port: 5 6",
    "foo: 1",
    "\n  foo: 1\n",
    "a=1;bbb=2",
    '"a b": 1',
    "é: 1; foo: 2",
    "X: 1\nport: $X",
    "port: $X",
    "port: $P",
    "authorization {X: a, user: $X, password: b}",
    "include inc.conf",
    "include 'inc.conf'; debug: true",
    "include nope.conf",
    "include bad.conf",
    "include unknown.conf",
    "include /inc.conf",
    "include ./inc.conf",
    "include .",
    "include\ninc.conf",
    "jetstream { include inc.conf }",
    # options
    "port: x",
    "port: 1.5",
    "port: [a]",
    "port {a: 1}",
    "host: 5",
    "debug: x",
    "listen: 5",
    'listen: "127.0.0.1:-1"',
    'listen: "[::1]:5"',
    'listen: "::1:5"',
    "listen: x",
    'listen: "x:y"',
    "listen: true",
    "http: {}",
    "http: '127.0.0.1:5'",
    'server_name: "a b"',
    "server_tags: 5",
    "server_tags: [a, B]",
    "server_metadata: {a: b}",
    "server_metadata: 5",
    "max_payload: 2147483647",
    "max_payload: 2147483648",
    "max_payload: 100MB",
    "max_control_line: 3GB",
    "max_sub_tokens: 0",
    "max_sub_tokens: 256",
    "max_connections: -1",
    "ping_interval: 5",
    'ping_interval: "5"',
    'ping_interval: "5x"',
    'ping_interval: "1m"',
    "ping_interval: true",
    "write_deadline: 5",
    'write_deadline: "10ms"',
    "write_timeout: x",
    "lame_duck_duration: 30",
    'lame_duck_duration: "5s"',
    'lame_duck_grace_period: "-5s"',
    "system_account: 5",
    "no_auth_user: x",
    "store_dir: 5",
    "store_dir: a\njetstream { max_mem: 5 }",
    "connect_error_reports: 5\nreconnect_error_reports: 6",
    "no_header_support: true\ndisable_sublist_cache: true",
    "ping_interval: 5\nport: x",
    # websocket
    "websocket {}",
    "websocket: 5",
    "websocket: [a]",
    "ws {port: 5}",
    "websocket {port: x}",
    "websocket {listen: x}",
    "websocket {listen: true}",
    "websocket {listen: '127.0.0.1:5', no_tls: true, advertise: 'a:5'}",
    "websocket {foo: 1}",
    "websocket {Bar: 5, port: $Bar}",
    "websocket {host: 5}",
    "websocket {no_tls: 1}",
    "websocket {same_origin: x}",
    "websocket {compress: on, compression: off}",
    "websocket {origin: a, allow_origins: [b, c]}",
    "websocket {allowed_origins: 5}",
    "websocket {allowed_origins: [a, 5, true]}",
    "websocket {handshake_timeout: 5}",
    'websocket {handshake_timeout: "1s"}',
    'websocket {handshake_timeout: "x"}',
    "websocket {handshake_timeout: true}",
    "websocket {headers: 5}",
    "websocket {headers {a: 5, b: c}}",
    "websocket {headers {Host: x}}",
    "websocket {ping_interval: 5}",
    'websocket {ping_interval: "1m"}',
    'websocket {ping_interval: "x"}',
    "websocket {authorization {user: a, password: b, token: c, timeout: 5}}",
    "websocket {authentication {username: a, pass: b, timeout: x}}",
    "websocket {authorization {foo: 1}}",
    "websocket {authorization {users: []}}",
    "websocket {jwt_cookie: a, user_cookie: b, pass_cookie: c, token_cookie: d}",
    "websocket {jwt_cookie: 5}",
    "websocket {no_auth_user: 5}",
    # jetstream
    "jetstream: enabled",
    "jetstream: off",
    "jetstream: maybe",
    "jetstream: 5",
    "jetstream {}",
    "jetstream {foo: 1}",
    "jetstream {max_mem: 1GB, max_file: '5G', domain: x, strict: false}",
    "jetstream {max_mem: '1g'}",
    "jetstream {max_mem: '1GB'}",
    "jetstream {max_mem: '9999999999999999999G'}",
    "jetstream {max_mem: true}",
    "jetstream {max_file: '-'}",
    "jetstream {strict: x}",
    "jetstream {sync: always}",
    "jetstream {sync_interval: '10s'}",
    "jetstream {sync_interval: 10}",
    "jetstream {sync_interval: x}",
    "jetstream {limits: 5}",
    "jetstream {limits {foo: 1}}",
    "jetstream {limits {max_ack_pending: 5, duplicate_window: '1m', batch {max_msgs: 5}}}",
    "jetstream {limits {batch: 5}}",
    "jetstream {max_buffered_msgs: x}",
    "jetstream {max_buffered_size: x}",
    "jetstream {request_queue_limit: '5'}",
    "jetstream {meta_compact: -5}",
    "jetstream {meta_compact_size: -5}",
    "jetstream {max_concurrent_io: 3}",
    "jetstream {unique_tag: x, extension_hint: y, max_outstanding_catchup: 5}",
    # authorization
    "authorization {user: a, password: b, timeout: 2}",
    "authorization {username: a, pass: b, timeout: '500ms'}",
    "authorization {timeout: x}",
    "authorization {timeout: true}",
    "authorization {timeout: 90}",
    "authorization {timeout: '90s'}",
    "authorization {timeout: 60.5}",
    "authorization {token: a}",
    "authorization {user: a, password: b, token: c}",
    "authorization {user: a, users: [{user: b}]}",
    "authorization {token: a, users: [{user: b}]}",
    "authorization {foo: 1}",
    "authorization {users: {}}",
    "authorization {users: 5}",
    "authorization {users: [a]}",
    "authorization {users: [{}]}",
    "authorization {users: [{password: b}]}",
    "authorization {users: [{user: a, password: b}, {user: a, password: c}]}",
    "authorization {users: [{user: 5}]}",
    "authorization {users: [{user: a, foo: 1}]}",
    "authorization {users: [{user: a, permissions: 5}]}",
    "authorization {users: [{user: a, permissions: {foo: 1}}]}",
    "authorization {users: [{user: a, permissions: {publish: [a, 'b.*', '>'], sub: 'q q.*'}}]}",
    "authorization {users: [{user: a, permissions: {publish: {foo: 1}}}]}",
    "authorization {users: [{user: a, permissions: {publish: {allow: 5}}}]}",
    "authorization {users: [{user: a, permissions: {publish: {allow: 'a..b', deny: 5}}}]}",
    "authorization {users: [{user: a, permissions: {subscribe: {deny: 'a b c'}}}]}",
    "authorization {users: [{user: a, permissions: {subscribe: {deny: 'a >.b'}}}]}",
    "authorization {users: [{user: a, permissions: {publish: [5 ]}}]}",
    "authorization {users: [{user: a, permissions: {allow_responses: true}}]}",
    "authorization {users: [{user: a, permissions: {allow_responses: 5}}]}",
    "authorization {users: [{user: a, permissions: {allow_responses: {max: 5, ttl: '1m'}}}]}",
    "authorization {users: [{user: a, permissions: {allow_responses: {ttl: 5}}}]}",
    "authorization {users: [{user: a, permissions: {allow_responses: {ttl: x}}}]}",
    "authorization {users: [{user: a, permissions: {allow_responses: {foo: 5}}}]}",
    "authorization {users: [{user: a, allowed_connection_types: [FOO, MQTT]}]}",
    "authorization {users: [{user: a, connection_types: [standard]}]}",
    "authorization {users: [{user: a, clients: 5}]}",
    "authorization {users: [{user: a, clients: [5 ]}]}",
    "P: {publish: x}\nauthorization {default_permissions: $P, users: [{user: a, password: b}]}",
    "authorization {default_permissions: 5, users: [{user: a, password: b}]}",
    "accounts {}",
    "accounts: [A, B]",
    "accounts: [A, A]",
    "accounts: [A, 5]",
    "accounts {A: 1}",
    "accounts {$G {}}",
    "accounts {$SYS {users: [{user: a, password: b}]}}",
    "accounts {A {foo: 1}}",
    "accounts {A {users: [{user: a, password: b}, {user: a, password: c}]}}",
    "accounts {A {users: [{user: a, foo: b}]}}",
    "accounts {A {users: [{password: b}]}}",
    "accounts {A {users: [{user: a, account: B}]}}",
    "accounts {A {users: [{nkey: UX}]}}",
    f"accounts {{A {{users: [{{nkey: {NKEY}}}, {{nkey: {NKEY}}}]}}}}",
    f"accounts {{A {{nkey: {NKEY}}}}}",
    f"authorization {{users: [{{nkey: {NKEY}}}]}}",
    "accounts {A {nkey: foo}}",
    "accounts {A {limits {max_conn: 1, max_subs: 2, max_pay: 1k}}}",
    "accounts {A {limits {max_connections: 1, foo: 2}}}",
    "accounts {A {limits {max_connections: x}}}",
    "accounts {A {limits: 5}}",
    "accounts {A {jetstream: enabled}, B {jetstream: DISABLED}, C {jetstream: true}}",
    "accounts {A {jetstream {max_mem: 1G, max_file: -1, max_streams: 3, max_consumers: 4}}}",
    "accounts {A {jetstream {max_bytes_required: true, max_ack_pending: 5}}}",
    "accounts {A {jetstream {max_memory: x}}}",
    "accounts {A {jetstream {max_mem: x}}}",
    "accounts {A {jetstream {streams: [1]}}}",
    "accounts {A {jetstream {max_bytes: 5}}}",
    "accounts {A {jetstream {max_stream_bytes: true, mem_max_stream_bytes: 1, "
    "disk_max_stream_bytes: 2, foo: 1}}}",
    "accounts {A {default_permissions {publish: x}, users: [{user: a, password: b}]}}",
    "system_account: A\naccounts {A {}}",
    "no_system_account: true",
]  # fmt: skip


# Which of two places nats-server names here changes from run to run.
@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            "accounts {A {users: [{user: a, password: b}]}, B {users: [{user: a, password: b}]}}",
            {"1:13", "1:50"},
        ),
        (
            "accounts {A {users: [{user: a, password: b}]}}\nauthorization {users: [{user: a}]}",
            {"1:13", "2:1"},
        ),
    ],
)
def test_a_user_in_two_places(text: str, places: set[str], capsys: Output) -> None:
    Path("x.conf").write_text(text)
    answers = {f'x.conf:{place}: Duplicate user "a" detected' for place in places}
    code, _, err = peer("-t", "-c", "x.conf")
    our_code, _, our_err = ours(capsys, "-t", "-c", "x.conf")
    assert (code, our_code) == (1, 1)
    assert problems(err)[-1] in answers
    assert problems(our_err)[-1] in answers


@pytest.mark.parametrize("text", FILES)
def test_files(text: str, capsys: Output) -> None:
    check(text, capsys)


def test_bytes_that_are_no_utf8(capsys: Output) -> None:
    check(b"server_name: \xff\n", capsys)
    check(b"server_name: \xff \xfe\n", capsys)


ATOMS = [
    "port", "x", "include", "true", "1", "-1", "-", "1k", "2m", "10ms", "1kb", "1.5", ".", "1.2.3",
    "2016-05-04T18:53:41Z", '"', "'", '"s"', "'q'", "{", "}", "[", "]", "(", ")", "(\n", "\n)\n",
    " ", " ", " ", "\n", "\n", "\t", "\r\n", ",", ";", ":", "=", " = ", ": ", "{ ", " }", "#", "//",
    "/", "# c\n", "\\", "\\n", "\\x41", "$", "$P", "$X", "X=1\n", "port = ", "x {\n", "[1 ]", "é",
]  # fmt: skip


def _loose_end(text: str) -> bool:
    """Whether the text may end within a string after an escape: places differ there, see below."""
    return "\\" in text or text.count('"') % 2 == 1 or text.count("'") % 2 == 1


@pytest.mark.parametrize("seed", range(8))
def test_random_texts(seed: int, capsys: Output) -> None:
    """Whatever the text, both refuse it with the same words or both take it."""
    chance = random.Random(seed)
    for _ in range(12):
        text = "".join(chance.choice(ATOMS) for _ in range(chance.randint(1, 10)))
        text = chance.choice(["", "port=", "x={a=", "x=[", "{"]) + text
        Path("x.conf").write_text(text)
        code, _, err = peer("-t", "-c", "x.conf")
        our_code, _, our_err = ours(capsys, "-t", "-c", "x.conf")
        if "not available" in our_err or _loose_end(text):
            continue
        assert (our_code, problems(our_err)) == (code, problems(err)), text


# What differs on purpose.


@pytest.mark.parametrize(
    ("text", "theirs", "message"),
    [
        # An array or a string that the file ends in: nats-server takes what came before.
        ('a=["', 1, "config is invalid (x.conf:1:4)"),
        # A suffix that is none: nats-server forgets the key.
        ("port: 5kbb", 1, "integer '5kbb' has an unknown suffix"),
        # A place where nats-server gives none, or that of the whole block.
        (
            "authorization {users: [{user: a, permissions: {publish: 'a..b'}}]}",
            1,
            'x.conf:1:47: subject "a..b" is not a valid subject\n',
        ),
        (
            "jetstream {limits {duplicate_window: x}}",
            1,
            'x.conf:1:19: time: invalid duration "x"\n',
        ),
        (
            "jetstream {domain: 5}",
            1,
            "x.conf:1:11: interface conversion: interface {} is int64, not string"
            " (a text is wanted here)\n",
        ),
        # Values that nats-server takes and cannot use.
        (
            "max_closed_clients: -1",
            0,
            "x.conf:1:0: max_closed_clients value can not be negative\n",
        ),
        ('write_deadline: "-1s"', 0, "x.conf:1:0: invalid write_deadline, needs to be positive\n"),
    ],
)
def test_differences_of_the_check(text: str, theirs: int, message: str, capsys: Output) -> None:
    Path("x.conf").write_text(text)
    assert ours(capsys, "-t", "-c", "x.conf") == (1, "", f"nats-server: {message}\n")
    code, _, err = peer("-t", "-c", "x.conf")
    assert code == theirs
    assert err != f"nats-server: {message}\n"


# Flags.


@pytest.mark.parametrize("arguments", ["-v", "--version", "version", "-p 5 version"])
def test_versions(arguments: str, capsys: Output) -> None:
    """Scripts look at the first line; the second one is of this program."""
    code, out, err = ours(capsys, *arguments.split())
    first, second = out.splitlines(keepends=True)
    assert (code, first, err) == peer(*arguments.split())
    assert second.startswith("jsserver: v")


@pytest.mark.parametrize("target", ["abc", "nope.pid"])
def test_a_pid_that_is_none_is_told_with_the_reason(target: str, capsys: Output) -> None:
    code, out, err = peer("-sl", f"stop={target}")
    reason = ": no process id, nor a file with one (no such file or directory)\n"
    assert ours(capsys, "-sl", f"stop={target}") == (code, out, err.rstrip("\n") + reason)


@pytest.mark.parametrize(
    "arguments",
    [
        "foo", "-T false", "-p 5 foo", "-- -p", "-",
        "-t", "-c nope.conf", "-t -c nope.conf", "-t -c .", "--signal=foo=1",
        "-sl reload=99999999", "-c bad.conf",
        "-c unknown.conf -p 5",
    ],
)  # fmt: skip
def test_flags(arguments: str, capsys: Output) -> None:
    words = arguments.split()
    assert ours(capsys, *words) == peer(*words)


@pytest.mark.parametrize(
    "arguments",
    ["-bogus", "--x=5", "-p", "-c", "-p abc", "-p 1.5", "-p 99999999999999999999", "-D=x", "---p 5",
     "-=5", "-h -x", "--host x"],
)  # fmt: skip
def test_unreadable_flags(arguments: str, capsys: Output) -> None:
    """The same words on standard error, a usage text (of one's own) on standard output, exit 0."""
    code, out, err = peer(*arguments.split())
    our_code, our_out, our_err = ours(capsys, *arguments.split())
    assert (our_code, our_err) == (code, err)
    first = [text.strip().splitlines()[0] for text in (out, our_out)]
    assert first[0] == first[1] == "Usage: nats-server [options]"


@pytest.mark.parametrize(
    "text",
    [
        "max_payload: 100MB",
        'lame_duck_duration: "30s"\nlame_duck_grace_period: "31s"',
        "no_auth_user: x",
        "no_auth_user: x\nauthorization {users: [{user: a, password: b}]}",
        "system_account: X",
        "system_account: $SYS",
        "no_auth_user: x\naccounts {A {users: [{user: a, password: b}]}}",
        "no_auth_user: x\naccounts {A {}}",
        "jetstream {domain: 'a.b'}",
        "jetstream {domain: 'a b'}",
        "default_js_domain: {X: d}",
        "default_js_domain: {A: 'a b'}\naccounts {A {}}",
        "default_js_domain: {A: d}\naccounts {A {jetstream: enabled}}\njetstream: enabled",
        "default_js_domain: {$SYS: d}",
    ],
)
def test_what_cannot_be_set_together(text: str, capsys: Output) -> None:
    Path("x.conf").write_text(f"{text}\nlisten: '127.0.0.1:-1'\nstore_dir: store\n")
    assert ours(capsys, "-c", "x.conf") == peer("-c", "x.conf")


def test_the_peer_is_not_this_server() -> None:
    assert PEER is not None
    assert os.access(PEER, os.X_OK)
    assert peer("--help_tls")[0] == 0
