"""Options: what is read, what is refused and in which words, and what may be set together."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from jsserver.config import ConfigError
from jsserver.config.accounts import is_account_name
from jsserver.config.advice import warnings
from jsserver.config.jetstreams import AUTOMATIC
from jsserver.config.load import check, load, read_file
from jsserver.config.options import AssetLimits, Options, Permissions, SubjectPermission
from jsserver.config.values import WITHOUT_EFFECT
from jsserver.text.goformat import MINUTE, SECOND
from jsserver.text.identity import PREFIX_USER, encode_public

ROOT = Path(__file__).resolve().parents[2]
COMPATIBILITY = ROOT / "docs" / "compatibility.md"


class Files:
    """Writes configuration files and reads them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "x.conf"

    def read(self, text: str, **flags: Any) -> Options:
        self.path.write_text(text)
        return load(
            str(self.path), {name.replace("__", "."): v for name, v in flags.items()}
        ).options

    def problems(self, text: str) -> list[str]:
        self.path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_file(str(self.path))
        return [line.removeprefix(f"{self.path}:") for line in str(caught.value).splitlines()]

    def refused(self, text: str, **flags: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            self.read(text, **flags)
        return str(caught.value)

    def check(self, text: str) -> str:
        self.path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            check(str(self.path), {})
        return str(caught.value).replace(str(self.path), "F")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_defaults() -> None:
    options = load("", {}).options
    assert (options.host, options.port) == ("0.0.0.0", 4222)
    assert (options.max_payload, options.max_pending) == (1 << 20, 64 << 20)
    assert (options.max_connections, options.max_control_line) == (65536, 4096)
    assert (options.ping_interval, options.ping_max) == (2 * MINUTE, 2)
    assert options.write_deadline == 10 * SECOND
    assert options.auth_timeout == 2.0
    assert not options.jetstream.enabled
    assert options.jetstream.max_memory == AUTOMATIC
    assert options.jetstream.sync_interval is None
    assert options.jetstream.info_queue_limit == 10_000


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("port: 5", "port", 5),
        ("port: -1", "port", -1),
        ("port: 0", "port", 4222),
        ("PORT: 5", "port", 5),
        ("host: h", "host", "h"),
        ("net: h", "host", "h"),
        ("listen: 5", "port", 5),
        ('listen: "1.2.3.4:99"', "host", "1.2.3.4"),
        ('listen: "[::1]:99"', "host", "::1"),
        ('listen: ":99"', "port", 99),
        ("server_name: a", "server_name", "a"),
        ("server_tags: X", "server_tags", ["x"]),
        ('server_tags: [a, a, " B "]', "server_tags", ["a", "b"]),
        ("server_metadata: {a: b}", "server_metadata", {"a": "b"}),
        ("trace_verbose: true", "trace", True),
        ("trace_headers: true\ntrace: false", "trace", True),
        ("logtime: off", "logtime", False),
        ("logfile: f", "log_file", "f"),
        ("http: '127.0.0.1:-1'", "http_port", -1),
        ("monitor_port: 5", "http_port", 5),
        ("host: h\nhttp: 5", "http_host", "h"),
        ("max_conn: 5", "max_connections", 5),
        ("max_connections: 0", "max_connections", -1),
        ("max_subscription_tokens: 5", "max_sub_tokens", 5),
        ("max_payload: 2MB", "max_payload", 2 << 20),
        ("max_payload: 0", "max_payload", 1 << 20),
        ('ping_interval: "1m"', "ping_interval", MINUTE),
        ("ping_interval: 5", "ping_interval", 5 * SECOND),
        ('write_deadline: "2s"', "write_deadline", 2 * SECOND),
        ('lame_duck_duration: "1m"', "lame_duck_duration", MINUTE),
        ("storedir: d", "store_dir", "d"),
        ("jetstream {store: d}", "store_dir", "d"),
        ("X: 5\nport: $X", "port", 5),
        ("syslog: false", "port", 4222),
        ("write_timeout: close", "port", 4222),
    ],
)
def test_top_level(files: Files, text: str, name: str, expected: Any) -> None:
    assert getattr(files.read(text), name) == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("jetstream: enabled", "enabled", True),
        ("jetstream: true", "enabled", True),
        ("jetstream {}", "enabled", True),
        ("jetstream: DISABLED", "enabled", False),
        ("jetstream {enabled: false}", "enabled", False),
        ("jetstream {max_mem: 1GB}", "max_memory", 1 << 30),
        ('jetstream {max_memory_store: "1G"}', "max_memory", 1 << 30),
        ("jetstream {max_mem: 0}", "max_memory", 0),
        ('jetstream {max_file: "5K"}', "max_store", 5120),
        ("jetstream {domain: d}", "domain", "d"),
        ("jetstream {strict: false}", "strict", False),
        ("jetstream {sync: always}", "sync_interval", None),
        ('jetstream {sync_interval: "2m"}', "sync_interval", 2 * MINUTE),
        ("jetstream {unique_tag: Az}", "unique_tag", "az"),
        ("jetstream {request_queue_limit: 5}", "info_queue_limit", 5),
    ],
)
def test_jetstream(files: Files, text: str, name: str, expected: Any) -> None:
    assert getattr(files.read(text).jetstream, name) == expected


def test_object_requests(files: Files) -> None:
    def read(text: str) -> tuple[bool, int, int]:
        objects = files.read(f"jetstream {{ {text} }}").jetstream.object_requests
        return objects.enabled, objects.max_uploads, objects.upload_timeout

    assert read("") == (False, 64, MINUTE)
    assert read("object_requests: false") == (False, 64, MINUTE)
    assert read("object_requests: true") == (True, 64, MINUTE)
    assert read("object_requests {}") == (True, 64, MINUTE)
    text = 'object_requests { max_uploads: 10000, upload_timeout: "90s" }'
    assert read(text) == (True, 10_000, 90 * SECOND)
    assert read("object_requests { enabled: false, max_uploads: 1 }") == (False, 1, MINUTE)
    for given, reason in {
        "5": "Expected map or bool to define object_requests, got int64",
        "now": "Expected map or bool to define object_requests, got string",
        "[]": "Expected map or bool to define object_requests, got []interface",
        "{ max_uploads: 0 }": "max_uploads must be between 1 and 10000, not 0",
        "{ max_uploads: -1 }": "max_uploads must be between 1 and 10000, not -1",
        "{ max_uploads: 9223372036854775807 }": "max_uploads must be between 1 and 10000",
        "{ upload_timeout: 0 }": "invalid upload_timeout, needs to be a second or more",
        '{ upload_timeout: "999ms" }': "invalid upload_timeout, needs to be a second or more",
        "{ upload_timeout: soon }": "soon",
        "{ uploads: 1 }": 'unknown field "uploads"',
    }.items():
        assert reason in files.refused(f"jetstream {{ object_requests: {given} }}"), given


def test_jetstream_limits(files: Files) -> None:
    limits = files.read(
        'jetstream { limits { max_ack_pending: 5, duplicate_window: "1m" } }'
    ).jetstream.limits
    assert (limits.max_ack_pending, limits.duplicate_window) == (5, MINUTE)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("accounts {A {limits {max_leafs: 1}}}", []),
        ("no_sublist_cache: true", ["disable_sublist_cache"]),
        ("connect_error_reports: 3600\nreconnect_error_reports: 2", []),
        ("jetstream {max_buffered_msgs: 5}", ["max_buffered_msgs"]),
        ("jetstream {max_buffered_msgs: 0, max_buffered_size: 128MB}", []),
        (
            "jetstream {meta_compact: 5, max_concurrent_io: 4}",
            ["meta_compact", "max_concurrent_io"],
        ),
        ('jetstream {limits {max_ha_assets: 1, batch {max_msgs: 7, timeout: "10s"}}}', []),
    ],
)
def test_what_has_no_effect_is_named_where_it_asks_for_something(
    files: Files, text: str, names: list[str]
) -> None:
    files.path.write_text(text)
    lines = load(str(files.path), {}).without_effect
    assert [line.split('"')[1] for line in lines] == names


def test_single_user_and_token(files: Files) -> None:
    auth = files.read('authorization {user: a, password: b, timeout: "100ms"}').authorization
    assert (auth.username, auth.password, auth.timeout) == ("a", "b", 0.1)
    assert files.read("authorization {token: t}").authorization.token == "t"
    hashed = "$2a$11$" + "x" * 53
    assert files.read(f"authorization {{user: a, pass: {hashed}}}").authorization.password == hashed


def test_users_and_permissions(files: Files) -> None:
    users = files.read(
        """
        P: { publish: x, subscribe: { allow: ["a", "b   q"], deny: "c.>" } }
        authorization {
          default_permissions { publish: d }
          users = [
            { user: a, password: b, permissions: $P }
            { user: b, password: c }
            { user: c, password: d, permissions: { allow_responses: true } }
            { user: d, password: e, permissions: { pub: [], sub: {},
              allow_responses { max: 5, ttl: "1m" } }, allowed_connection_types: [standard] }
          ]
        }
        """
    ).authorization.users
    assert [user.name for user in users] == ["a", "b", "c", "d"]
    assert users[0].permissions == Permissions(
        publish=SubjectPermission(allow=["x"]),
        subscribe=SubjectPermission(allow=["a", "b q"], deny=["c.>"]),
    )
    assert users[1].permissions == Permissions(publish=SubjectPermission(allow=["d"]))
    third = users[2].permissions
    assert third is not None
    assert third.responses is not None
    assert (third.responses.max, third.responses.ttl) == (1, 2 * MINUTE)
    assert third.publish == SubjectPermission(allow=[])
    fourth = users[3].permissions
    assert fourth is not None
    assert fourth.responses is not None
    assert (fourth.responses.max, fourth.responses.ttl) == (5, MINUTE)
    assert (fourth.publish, fourth.subscribe) == (SubjectPermission(), None)
    assert users[3].connection_types == ["STANDARD"]


def mismatch(found: str, wanted: str) -> str:
    kinds = {"int64": "a whole number", "string": "a text", "bool": "true or false"}
    words = f"interface conversion: interface {{}} is {found}, not {wanted}"
    return f"{words} ({kinds[wanted]} is wanted here)"


PROBLEMS = [
    ("foo: 1", ['1:0: unknown field "foo"']),
    (
        "\nFoo: 1\nport: x",
        ['2:1: unknown field "Foo"', "3:1: " + mismatch("string", "int64")],
    ),
    ("host: 5", ["1:0: " + mismatch("int64", "string")]),
    ("debug: [a]", ["1:0: " + mismatch("[]interface {}", "bool")]),
    ("port: 1.5", ["1:0: " + mismatch("float64", "int64")]),
    ("port {}", ["1:0: " + mismatch("map[string]interface {}", "int64")]),
    ('listen: "x"', ['1:0: could not parse address string "x"']),
    ('listen: "x:y"', ['1:0: could not parse port "y"']),
    ("listen: true", ["1:0: expected port or host:port, got bool"]),
    ('server_name: "a b"', ["1:0: server name cannot contain spaces"]),
    ("server_tags: 5", ["1:0: error parsing tags: unsupported type int64"]),
    ("max_sub_tokens: -1", ["1:0: max_sub_tokens value can not be negative"]),
    ("max_sub_tokens: 300", ["1:0: max_sub_tokens value is too big"]),
    ("max_payload: 3GB", ["1:0: max_payload value is too big"]),
    (
        'ping_interval: "5"',
        ['1:0: error parsing ping_interval: time: missing unit in duration "5"'],
    ),
    (
        "ping_interval: 5\nport: x",
        [
            '1:0: invalid use of field "ping_interval": '
            "ping_interval should be converted to a duration",
            "2:1: " + mismatch("string", "int64"),
        ],
    ),
    ('lame_duck_duration: "5s"', ["1:0: invalid lame_duck_duration of 5s, minimum is 30 seconds"]),
    ("store_dir: a\njetstream {store_dir: b}", ["2:12: Duplicate 'store_dir' configuration"]),
    ("jetstream: x", ["1:0: Expected 'enabled' or 'disabled' for string value, got 'x'"]),
    ("jetstream: 5", ["1:0: Expected map, bool or string to define JetStream, got int64"]),
    ("jetstream {foo: 1, bar: 2}", ['1:11: unknown field "foo"', '1:19: unknown field "bar"']),
    (
        'jetstream {max_mem: "1g"}',
        ["1:11: max_mem_store sizes defined as strings must end in K, M, G, T"],
    ),
    (
        'jetstream {max_file: "1GB"}',
        ['1:11: max_file_store strconv.ParseInt: parsing "1G": invalid syntax'],
    ),
    ("authorization {foo: 1}", ['1:15: unknown field "foo"']),
    ("authorization {user: a, password: b, token: c}", ["1:0: Cannot have a user/pass and token"]),
    (
        "authorization {users: [{user: a, password: b}], user: x}",
        ["1:0: Can not have a single user/pass and a users array"],
    ),
    (
        "authorization {users: [{user: a, password: b}, {user: a, password: c}]}",
        ['1:0: Duplicate user "a" detected'],
    ),
    ("authorization {users: [{password: b}]}", ["1:24: User entry requires a user"]),
    (
        'authorization {users: [{user: a, permissions: {publish: "a..b"}}]}',
        ['1:47: subject "a..b" is not a valid subject'],
    ),
    (
        'authorization {users: [{user: a, permissions: {publish: "a b"}}]}',
        ['1:47: subject "a b" is not a valid subject'],
    ),
    (
        'authorization {users: [{user: a, permissions: {subscribe: "a b..c"}}]}',
        ['1:47: queue "b..c" is not a valid queue'],
    ),
    (
        "authorization {users: [{user: a, permissions: {foo: x}}]}",
        ['1:47: Unknown field "foo" parsing permissions'],
    ),
    (
        "authorization {users: [{user: a, connection_types: [FOO]}]}",
        ['1:33: invalid connection types ["FOO"]'],
    ),
    (
        "cluster {permissions {allow_responses: true}}",
        ["1:9: Cluster permissions do not support dynamic responses"],
    ),
    (
        'cluster {permissions {export: "a b"}}',
        ['1:9: cluster export: subject "a b" is not a valid subject'],
    ),
]


@pytest.mark.parametrize(("text", "lines"), PROBLEMS)
def test_problems(files: Files, text: str, lines: list[str]) -> None:
    assert files.problems(text) == lines


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("accounts {A {trace_dest: x}}", "message tracing to a subject"),
        ("mqtt {port: 1883}", "the mqtt listener"),
        ("syslog: true", "logging to syslog"),
        ("jetstream {tpm {keys_file: x}}", "a key of JetStream in a TPM"),
    ],
)
def test_what_is_not_built_is_refused(files: Files, text: str, what: str) -> None:
    (line,) = files.problems(text)
    place, message = line.split(": ", 1)
    assert place.count(":") == 1
    assert message == f"{what} is not available in this version of jsserver"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max_payload: 100MB",
            "max_payload (104857600) cannot be higher than max_pending (67108864)",
        ),
        (
            'lame_duck_duration: "30s"\nlame_duck_grace_period: "30s"',
            "lame duck grace period (30s) should be strictly lower than lame duck duration (30s)",
        ),
        ("no_auth_user: x", 'no_auth_user: "x" present, but users/nkeys are not defined'),
        (
            "no_auth_user: x\nauthorization {users: [{user: a, password: b}]}",
            'no_auth_user: "x" not present as user or nkey in authorization block or '
            "account configuration",
        ),
        ("system_account: X", "error resolving system account: account missing"),
        ("jetstream {domain: 'a.b'}", "invalid domain name: may not contain ., * or >"),
        ("cluster {port: 70000}", "cluster port 70000 is not between 0 and 65535, nor -1"),
        ("cluster {port: -1, accounts: [X]}", 'cluster accounts: there is no account "X"'),
        (
            "cluster {port: -1, advertise: 'a:x'}",
            'invalid Cluster.Advertise value of "a:x": could not parse port "x"',
        ),
        ("port: 70000", "port 70000 is not between 0 and 65535, nor -1"),
        ("client_advertise: 'a:x'", 'client_advertise "a:x": could not parse port "x"'),
    ],
)
def test_what_cannot_be_set_together(files: Files, text: str, message: str) -> None:
    assert files.refused(text) == message
    assert files.check(text) == message


def test_no_auth_user_that_exists(files: Files) -> None:
    text = "no_auth_user: a\nauthorization {users: [{user: a, password: b}]}"
    assert files.read(text).no_auth_user == "a"


def test_check_takes_warnings_for_errors(files: Files) -> None:
    words = 'F:1:0: invalid use of field "ping_interval": '
    assert files.check("ping_interval: 5") == (
        words + "ping_interval should be converted to a duration\n"
    )
    assert files.check("# nothing") == "F: config has no values or is empty\n"
    assert files.check("authorization {timeout: 90}").startswith(
        'F:1:15: invalid use of field "timeout": timeout of 90 (90.000000 seconds) is high'
    )


def test_flags_win_over_the_file(files: Files) -> None:
    text = "port: 5\ndebug: true\njetstream {store_dir: a}\nauthorization {user: a, password: b}"
    options = files.read(
        text, port=6, store_dir="b", debug=False, jetstream__enabled=False,
        authorization__username="x",
    )  # fmt: skip
    assert (options.port, options.store_dir, options.debug) == (6, "b", False)
    assert not options.jetstream.enabled
    assert (options.authorization.username, options.authorization.password) == ("x", "b")


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Options has no such option: prot"):
        Options(prot=4222)


def test_options_do_not_share_their_lists() -> None:
    first, second = Options(), Options()
    first.server_tags.append("x")
    first.authorization.users.clear()
    first.jetstream.limits.max_ack_pending = 5
    assert second.server_tags == []
    assert second.jetstream.limits.max_ack_pending == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: {}", "integer '{}' is out of the range"),
        ("max_payload: {}k", "integer '{}' is out of the range"),
        ("max_payload: -{}", "integer '-{}' is out of the range"),
        ('ping_interval: "{}s"', 'time: invalid duration "{}s"'),
        ('jetstream {{ max_mem: "{}K" }}', 'parsing "{}": value out of range'),
        ('listen: "a:{}"', f"port {10**40} is not between 0 and 65535"),
    ],
)
def test_numbers_of_any_length_are_refused_plainly(files: Files, text: str, message: str) -> None:
    digits = "9" * 10_000
    refusal = files.refused(text.format(digits))
    assert message.format(digits) in refusal


def test_options_without_effect_are_the_documented_ones() -> None:
    section = COMPATIBILITY.read_text().split("## Options without effect")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.partition("(")[0])]
    for module in ("server", "websocket"):  # else loaded with the first such block
        importlib.import_module(f"jsserver.config.{module}")
    assert sorted(named) == sorted(WITHOUT_EFFECT)


def test_what_is_refused_as_not_built_is_documented() -> None:
    section = COMPATIBILITY.read_text().split("## Not built yet")[1].split("\n## ")[0]
    words = " ".join(section.replace("`", "").lower().split())
    refused = set()
    for path in (ROOT / "jsserver" / "config").glob("*.py"):
        readers = "unavailable|only_off|not_available|unavailable_block"
        calls = rf"(?:{readers})\(\s*f?\"([^\"]+)\""
        refused |= set(re.findall(calls, path.read_text()))
    assert len(refused) > 12
    for feature in refused:
        name = re.sub(r"^the | (listener|option)$|option \{name\} of | \(?\{name\}\)?", "", feature)
        for part in re.findall(r"[^()]+", name):
            assert part.strip().lower() in words, feature


def test_two_places_that_say_where_clients_connect(files: Files) -> None:
    files.path.write_text("port: 1\nlisten: '127.0.0.1:2'\n")
    loaded = read_file(str(files.path))
    assert loaded.options.port == 2
    assert [line.partition(".conf:")[2] for line in loaded.without_effect] == [
        '2:1: "listen" and "port" both say where clients connect: this one counts'
    ]


def test_a_value_of_another_kind_is_told_in_words(files: Files) -> None:
    (line,) = files.problems("max_payload: many")
    assert line.endswith("(a whole number is wanted here)")


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("authorization { user: a, password: 4e2abc }", True),
        ("port: 1\npassword = 4e2abc\n", True),
        ("users: [4e2abc]", True),
        ("authorization { user: a, password: abc def }", False),
        ("foo = bar baz", False),
        ("port: 5 x", False),
    ],
)
def test_a_text_that_begins_like_a_number(files: Files, text: str, hinted: bool) -> None:
    (line,) = files.problems(text)
    assert ("put quotes around a text" in line) == hinted


def test_a_store_directory_without_jetstream_is_warned_about(files: Files) -> None:
    (line,) = warnings(files.read("store_dir: /data"))
    assert line.startswith('store_dir "/data" is not used, as JetStream is off')
    assert not warnings(files.read("store_dir: /data\njetstream: enabled"))


def test_reactors(files: Files) -> None:
    assert files.read("").reactors == 1
    assert files.read("reactors: 64").reactors == 64
    for text in ("reactors: 0", "reactors: -1", "reactors: 65", "reactors: 9223372036854775807"):
        assert "reactors must be between 1 and 64" in files.refused(text)


def test_accounts(files: Files) -> None:
    nkey = encode_public(PREFIX_USER, bytes(32))
    options = files.read(
        f"""
        accounts {{
            A {{
                users: [{{user: a, password: x}}, {{nkey: {nkey}, permissions: {{publish: p}}}}]
                default_permissions: {{publish: q}}
                limits {{max_conn: 5, max_subs: 6, max_payload: 7}}
                jetstream {{max_mem: 1K, max_streams: 2}}
            }}
            B {{}}
        }}
        """
    )
    a, b = options.accounts
    assert [(u.name, u.nkey, u.account) for u in a.users] == [("a", "", "A"), ("", nkey, "A")]
    given = [u.permissions and u.permissions.publish for u in a.users]
    assert [rules and rules.allow for rules in given] == [["q"], ["p"]]
    assert (a.max_connections, a.max_subscriptions, a.max_payload) == (5, 6, 7)
    assert (b.max_connections, b.max_subscriptions, b.max_payload) == (-1, -1, -1)
    assert options.jetstream_accounts == {"A": AssetLimits(max_memory=1000, max_streams=2)}
    assert (options.system, options.auth_required) == ("$SYS", True)
    assert files.read("no_sys_acc: true").system == ""
    assert files.read("accounts {$SYS {}}").jetstream_accounts == {"$G": AssetLimits()}


def test_an_nkey_is_all_that_its_user_is_known_by(files: Files) -> None:
    nkey = encode_public(PREFIX_USER, bytes(32))
    for more in ("user: x", "password: x"):
        text = f"accounts {{A {{users: [{{nkey: {nkey}, {more}}}]}}}}"
        (line,) = files.problems(text)
        assert line.endswith("Nkey users do not take usernames or passwords")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "/", "../x", "a\x00b", "a\nb", "a\x7f", "x" * 256, "x" * 10_000,
     "\N{SNOWMAN}" * 100, "\udc80", "a\u2028b"],
)  # fmt: skip
def test_names_of_accounts_that_no_folder_and_no_line_can_have(name: str) -> None:
    assert not is_account_name(name)


@pytest.mark.parametrize(
    "name",
    ["A", "a.b", "a-b_c", "$x", "a'b", "a*", "\N{SNOWMAN}", "x" * 255, "My Team", "a\tb", ".a",
     "a..b", "...", "*", "a.>", "..\\x"],
)  # fmt: skip
def test_names_of_accounts(files: Files, name: str) -> None:
    assert files.read(f'accounts {{"{name}" {{}}}}').accounts[0].name == name


def test_a_name_that_cannot_be_used_is_told_in_short(files: Files) -> None:
    for text in (f'accounts {{"{"x" * 10_000}" {{}}}}', "accounts: [a/b]"):
        (line,) = files.problems(text)
        assert "cannot be used" in line and len(line) < 500


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("", 64 << 20),
        ("max_outstanding_catchup: 0", 64 << 20),
        ("max_outstanding_catchup: 5K", 5000),
    ],
)
def test_what_may_be_on_its_way_to_members_that_catch_up(
    files: Files, text: str, most: int
) -> None:
    options = files.read(f"jetstream {{ {text}\n enabled: true }}")
    assert options.jetstream.max_outstanding_catchup == most
