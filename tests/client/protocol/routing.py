"""Conversations about echo, queue groups, headers and requests that nobody answers."""

from tests.client.protocol.case import CLOSE, CONNECT, HEADERS, HELLO, PAUSE, SYNC, case, one

# several connections, echo, queue groups

case(
    "two_connections",
    ("b", CONNECT + b"SUB a.* 1\r\n"),
    ("b", SYNC),
    ("a", CONNECT + b"PUB a.b r 3\r\nabc\r\n"),
)
case(
    "order_per_publisher",
    ("b", CONNECT + b"SUB > 9\r\n"),
    ("b", SYNC),
    ("a", CONNECT + b"".join(b"PUB a.%d 2\r\n%02d\r\n" % (n, n) for n in range(60))),
)
case(
    "close_removes_subs",
    ("b", HEADERS + b"SUB a 1\r\n"),
    ("b", SYNC),
    ("b", CLOSE),
    ("c", PAUSE(0.1)),
    ("a", HEADERS + b"SUB in 1\r\nPUB a in 1\r\nx\r\n"),
)
one(
    "echo_false",
    b'CONNECT {"verbose":false,"echo":false}\r\nSUB a 1\r\nSUB a q 2\r\nPUB a 1\r\nx\r\n',
)
case(
    "echo_false_others_get",
    ("b", CONNECT + b"SUB a 1\r\n"),
    ("b", SYNC),
    ("a", b'CONNECT {"verbose":false,"echo":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n'),
)
case(
    "echo_false_queue_other_member",
    ("b", CONNECT + b"SUB a q 1\r\n"),
    ("b", SYNC),
    ("a", b'CONNECT {"verbose":false,"echo":false}\r\nSUB a q 1\r\n' + b"PUB a 1\r\nx\r\n" * 8),
)
one("queue_one_member", CONNECT, b"SUB a q 1\r\nPUB a 1\r\nx\r\n")
one("queue_and_plain", CONNECT, b"SUB a q 1\r\nSUB a 2\r\nPUB a 1\r\nx\r\n")
one("queue_two_groups", CONNECT, b"SUB a q 1\r\nSUB a r 1b\r\nPUB a 1\r\nx\r\n")
case(
    "queue_members_share",
    ("a", CONNECT + b"SUB a q 1\r\nSUB a q 2\r\n" + b"PUB a 1\r\nx\r\n" * 10),
    counted=True,
)
case(
    "queue_across_patterns",
    ("a", CONNECT + b"SUB a.* q 1\r\nSUB a.b q 2\r\nSUB a.> q 3\r\n" + b"PUB a.b 1\r\nx\r\n" * 10),
    counted=True,
)
case(
    "queue_names_differ_in_case",
    ("a", CONNECT + b"SUB a q 1\r\nSUB a Q 2\r\n" + b"PUB a 1\r\nx\r\n" * 4),
    counted=True,
)
case(
    "queue_member_leaves",
    ("b", CONNECT + b"SUB a q 1\r\n"),
    ("b", SYNC),
    ("b", CLOSE),
    ("c", PAUSE(0.1)),
    ("a", CONNECT + b"SUB a q 1\r\n" + b"PUB a 1\r\nx\r\n" * 5),
)
one("queue_wildcard_name", CONNECT, b"SUB a q.* 1\r\nSUB a > 2\r\nPUB a 1\r\nx\r\n")

# headers and no responders

one("hpub", HEADERS, b"SUB a 1\r\nHPUB a 18 20\r\n", HELLO, b"hi\r\n")
one("hpub_reply", HEADERS, b"SUB a 1\r\nHPUB a r 18 20\r\n", HELLO, b"hi\r\n")
one("hpub_no_payload", HEADERS, b"SUB a 1\r\nHPUB a 18 18\r\n", HELLO, b"\r\n")
one("hpub_tabs", HEADERS, b"SUB a 1\r\nHPUB\ta \t r  18\t20 \r\n", HELLO, b"hi\r\n")
one("hpub_lower", HEADERS, b"SUB a 1\r\nhpub a 18 20\r\n", HELLO, b"hi\r\n")
one("hpub_zero_header", HEADERS, b"SUB a 1\r\nHPUB a 0 2\r\nhi\r\n")
one("hpub_header_over_total", HEADERS, b"SUB a 1\r\nHPUB a 18 10\r\n", HELLO, b"\r\n")
one("hpub_leading_zeros", HEADERS, b"SUB a 1\r\nHPUB a 018 0020\r\n", HELLO, b"hi\r\n")
one(
    "hpub_garbage_header",
    HEADERS,
    b"SUB a 1\r\nHPUB h 5 8\r\nabcdefgh\r\nHPUB a 5 8\r\nabcdefgh\r\n",
)
one("hpub_two_args", HEADERS, b"HPUB a 5\r\nabcde\r\n")
one("hpub_five_args", HEADERS, b"HPUB a b c 1 2\r\nab\r\n")
one("hpub_no_args", HEADERS, b"HPUB\r\n")
one("hpub_no_blank", HEADERS, b"HPUBa 18 20\r\n")
one("hpub_header_negative", HEADERS, b"HPUB a -1 2\r\nab\r\n")
one("hpub_header_word", HEADERS, b"HPUB a x 2\r\nab\r\n")
one("hpub_total_word", HEADERS, b"HPUB a 1 x\r\nab\r\n")
one("hpub_ten_digits", HEADERS, b"HPUB a 0000000018 20\r\n", HELLO, b"hi\r\n")
one(
    "hpub_verbose", b'CONNECT {"verbose":true,"headers":true}\r\nHPUB a 18 20\r\n', HELLO, b"hi\r\n"
)
one("hpub_without_headers_option", CONNECT, b"SUB a 1\r\nHPUB a 18 20\r\n", HELLO, b"hi\r\n")
one("hpub_before_connect", b"HPUB a 18 20\r\n", HELLO, b"hi\r\n")
one(
    "hpub_server_without_headers",
    HEADERS,
    b"HPUB a 18 20\r\n",
    HELLO,
    b"hi\r\n",
    config="no_headers",
)
one(
    "connect_server_without_headers",
    b'CONNECT {"verbose":true,"headers":true}\r\n',
    config="no_headers",
)
one("no_responders_server_without_headers", HEADERS, config="no_headers")
case(
    "header_to_plain_client",
    ("b", CONNECT + b"SUB a 1\r\n"),
    ("b", SYNC),
    ("a", HEADERS + b"HPUB a 18 20\r\n" + HELLO + b"hi\r\n"),
)
case(
    "header_reply_to_plain_client",
    ("b", CONNECT + b"SUB a 1\r\n"),
    ("b", SYNC),
    ("a", HEADERS + b"HPUB a r 18 18\r\n" + HELLO + b"\r\n"),
)
case(
    "header_leading_zeros_to_plain_client",
    ("b", CONNECT + b"SUB a 1\r\n"),
    ("b", SYNC),
    ("a", HEADERS + b"HPUB a 018 0020\r\n" + HELLO + b"hi\r\n"),
)
one("no_responders", HEADERS, b"SUB in 1\r\nPUB nobody in 2\r\nhi\r\n")
one(
    "no_responders_order",
    HEADERS,
    b"SUB in 1\r\nPUB nobody in 2\r\nhi\r\nPING\r\nPUB in 1\r\nx\r\nPING\r\n",
)
one("no_responders_wildcard_inbox", HEADERS, b"SUB in.* 7\r\nPUB nobody in.5 0\r\n\r\n")
one("no_responders_two_inboxes", HEADERS, b"SUB in.* 7\r\nSUB in.5 8\r\nPUB nobody in.5 0\r\n\r\n")
one("no_responders_queue_inbox", HEADERS, b"SUB in q 7\r\nPUB nobody in 0\r\n\r\n")
one("no_responders_no_inbox", HEADERS, b"PUB nobody in 0\r\n\r\n")
one("no_responders_no_reply", HEADERS, b"SUB in 1\r\nPUB nobody 0\r\n\r\n")
one("no_responders_hpub", HEADERS, b"SUB in 1\r\nHPUB nobody in 18 20\r\n", HELLO, b"hi\r\n")
one(
    "no_responders_verbose",
    b'CONNECT {"verbose":true,"headers":true,"no_responders":true}\r\n',
    b"SUB in 1\r\nPUB nobody in 0\r\n\r\n",
)
one(
    "no_responders_off",
    b'CONNECT {"verbose":false,"headers":true}\r\nSUB in 1\r\nPUB nobody in 0\r\n\r\n',
)
one(
    "no_responders_unsub_max",
    HEADERS,
    b"SUB in 1\r\nUNSUB 1 1\r\nPUB nobody in 0\r\n\r\nPUB nobody in 0\r\n\r\nPUB in 1\r\nx\r\n",
)
one(
    "no_responders_echo_false",
    b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"echo":false}\r\n',
    b"SUB in 1\r\nSUB svc 2\r\nPUB svc in 1\r\nx\r\n",
)
one("no_responders_self_service", HEADERS, b"SUB in 1\r\nSUB svc 2\r\nPUB svc in 1\r\nx\r\n")
one("no_responders_reply_is_subject", HEADERS, b"SUB in 1\r\nPUB in in 1\r\nx\r\n")
one("no_responders_long_subject", HEADERS, b"SUB in 1\r\nPUB " + b"x" * 1000 + b" in 0\r\n\r\n")
case(
    "no_responders_other_connections_inbox",
    ("b", HEADERS + b"SUB in 1\r\n"),
    ("b", SYNC),
    ("a", HEADERS + b"PUB nobody in 0\r\n\r\n"),
)
