"""Conversations about sizes, counts and timers."""

from tests.client.protocol.case import (
    CLOSE,
    CONNECT,
    END,
    HELLO,
    PAUSE,
    SHORT_HEADERS,
    SUB_ALL,
    SYNC,
    VERBOSE,
    case,
    one,
)

# limits

one("payload_at_limit", SUB_ALL, b"PUB a 100\r\n" + b"x" * 100 + b"\r\n", config="limits")
one("payload_over_limit", SUB_ALL, b"PUB a 101\r\n" + b"x" * 101 + b"\r\n", config="limits")
one("payload_over_limit_line_only", SUB_ALL, b"PUB a 101\r\n", config="limits")
one(
    "payload_headers_count",
    SHORT_HEADERS,
    b"SUB a 1\r\nHPUB a 18 100\r\n",
    HELLO,
    b"x" * 82,
    b"\r\nHPUB a 18 101\r\n",
    HELLO,
    b"x" * 83,
    b"\r\n",
    config="limits",
)
one(
    "payload_over_default",
    CONNECT,
    b"PUB a 1048576\r\n" + b"x" * 1048576 + b"\r\nPUB a 1048577\r\n",
)
# What begins with publishes in their usual form, and goes beyond a limit behind them.
for name, over in (
    ("payload", b"PUB a 101\r\n" + b"x" * 101 + b"\r\n"),
    ("line", b"PUB " + b"a" * 63 + b" 1\r\nx\r\n"),
):
    case(
        f"{name}_over_limit_in_a_row",
        ("a", CONNECT + b"SUB > 1\r\n"),
        ("a", SYNC),
        ("a", b"PUB a 3\r\nxyz\r\n" * 3 + over + b"PUB a 3\r\nend\r\n"),
        ("a", END),
        config="limits",
    )
for size in (64, 65):
    one(
        f"line_pub_{size}",
        CONNECT,
        b"SUB > 1\r\nPUB " + b"a" * (size - 2) + b" 1\r\nx\r\n",
        config="limits",
    )
    one(f"line_sub_{size}", CONNECT, b"SUB " + b"a" * (size - 2) + b" 1\r\n", config="limits")
    one(f"line_unsub_{size}", CONNECT, b"UNSUB " + b"1" * size + b"\r\n", config="limits")
    one(
        f"line_hpub_{size}",
        SHORT_HEADERS,
        b"HPUB " + b"a" * (size - 6) + b" 18 18\r\n" + HELLO + b"\r\n",
        config="limits",
    )
    connect = b'{"verbose":true,"name":"' + b"a" * (size - 26) + b'"}'
    one(f"line_connect_{size}", b"CONNECT " + connect + b"\r\n", config="limits")
    one(f"line_blanks_{size}", CONNECT, b"SUB a" + b" " * (size - 2) + b"1\r\n", config="limits")
    one(
        f"line_blanks_before_{size}",
        CONNECT,
        b"SUB" + b" " * size + b"a 1\r\nPUB a 1\r\nx\r\n",
        config="limits",
    )
    one(
        f"line_blanks_after_{size}",
        CONNECT,
        b"SUB a 1" + b" " * (size - 3) + b"\r\nPUB a 1\r\nx\r\n",
        config="limits",
    )
one("line_endless_sub", CONNECT, b"SUB " + b"a" * 70, config="limits")
one("line_endless_connect", b"CONNECT {" + b" " * 70, config="limits")
one("line_ping_long", CONNECT, b"PING" + b"x" * 500 + b"\r\n", config="limits")
one("line_info_long", CONNECT, b"INFO {" + b" " * 500 + b"}\r\n", config="limits")
one("line_err_long", CONNECT, b"-ERR '" + b"x" * 500 + b"'\r\n", config="limits")
for size in (4096, 4097):
    connect = b'{"verbose":true,"name":"' + b"a" * (size - 26) + b'"}'
    one(f"line_default_connect_{size}", b"CONNECT " + connect + b"\r\n")
    one(f"line_default_sub_{size}", CONNECT, b"SUB " + b"a" * (size - 2) + b" 1\r\n")
one(
    "max_subscriptions",
    CONNECT,
    b"".join(b"SUB a %d\r\n" % n for n in range(1, 6)),
    b"PUB a 1\r\nx\r\n",
    config="limits",
)
one(
    "max_subscriptions_verbose",
    VERBOSE,
    b"".join(b"SUB a %d\r\n" % n for n in range(1, 6)),
    config="limits",
)
one(
    "max_subscriptions_room_again",
    CONNECT,
    b"SUB a 1\r\nSUB a 2\r\nSUB a 3\r\nSUB a 4\r\nUNSUB 2\r\nSUB a 5\r\nPUB a 1\r\nx\r\n",
    config="limits",
)
one(
    "max_subscriptions_same_sid",
    CONNECT,
    b"SUB a 1\r\nSUB a 2\r\nSUB a 3\r\nSUB a 3\r\nPUB a 1\r\nx\r\n",
    config="limits",
)
one(
    "max_sub_tokens",
    CONNECT,
    b"SUB a.b.c 1\r\nSUB a.b.c.d 2\r\nSUB a.b.> 3\r\nSUB *.*.*.* 4\r\nPUB a.b.c.d 1\r\nx\r\n",
    config="tokens",
)
case(
    "max_connections",
    ("a", CONNECT),
    ("a", SYNC),
    ("b", CONNECT),
    ("b", SYNC),
    ("c", END),
    config="connections",
)
case(
    "max_connections_room_again",
    ("a", CONNECT),
    ("a", SYNC),
    ("b", CONNECT),
    ("b", SYNC),
    ("b", CLOSE),
    ("d", PAUSE(0.2)),
    ("c", CONNECT),
    ("c", SYNC),
    config="connections_again",
)

# timers

case("ping_unanswered", ("a", CONNECT), ("a", END), config="timers")
case("ping_unanswered_without_connect", ("a", END), config="timers")
case(
    "ping_answered_goes_on",
    ("a", CONNECT),
    ("a", 1),
    ("a", b"PONG\r\n"),
    ("a", 1),
    ("a", b"PONG\r\n"),
    ("a", 1),
    ("a", b"PONG\r\n"),
    config="timers",
)
case(
    "ping_data_does_not_clear",
    ("a", CONNECT),
    ("a", 2),
    ("a", b"PUB a 1\r\nx\r\n"),
    ("a", END),
    config="timers",
)
case("auth_timeout", ("a", END), config="single")
case("auth_timeout_token", ("a", END), config="token")
case("auth_timeout_users", ("a", END), config="users")
