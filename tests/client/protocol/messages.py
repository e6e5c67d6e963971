"""Conversations about PUB, SUB and UNSUB on one connection."""

from tests.client.protocol.case import CONNECT, PEDANTIC, SUB_ALL, VERBOSE, one

# PUB

one("pub", SUB_ALL, b"PUB foo 5\r\nhello\r\n")
one("pub_empty", SUB_ALL, b"PUB foo 0\r\n\r\n")
one("pub_reply", SUB_ALL, b"PUB foo bar 2\r\nhi\r\n")
one("pub_lower", SUB_ALL, b"pub foo 2\r\nhi\r\n")
one("pub_lf_line", SUB_ALL, b"PUB foo 2\nhi\r\n")
one("pub_tabs", SUB_ALL, b"PUB\tfoo\tbar\t2\r\nhi\r\n")
one("pub_many_blanks", SUB_ALL, b"PUB   foo  \t bar   2  \r\nhi\r\n")
one("pub_no_blank", SUB_ALL, b"PUBfoo 2\r\nhi\r\n")
one("pub_no_args", SUB_ALL, b"PUB\r\n")
one("pub_blank_args", SUB_ALL, b"PUB  \r\n")
one("pub_one_arg", SUB_ALL, b"PUB foo\r\n")
one("pub_one_arg_number", SUB_ALL, b"PUB 5\r\nhello\r\n")
one("pub_four_args", SUB_ALL, b"PUB a b c 1\r\nx\r\n")
one("pub_size_negative", SUB_ALL, b"PUB a -1\r\n\r\n")
one("pub_size_plus", SUB_ALL, b"PUB a +1\r\nx\r\n")
one("pub_size_word", SUB_ALL, b"PUB a xx\r\n\r\n")
one("pub_size_hex", SUB_ALL, b"PUB a 0x1\r\nx\r\n")
one("pub_size_float", SUB_ALL, b"PUB a 1.0\r\nx\r\n")
one("pub_size_leading_zeros", SUB_ALL, b"PUB f 0003\r\nabc\r\n")
one("pub_size_nine_digits", SUB_ALL, b"PUB f 000000003\r\nabc\r\n")
one("pub_size_ten_digits", SUB_ALL, b"PUB f 0000000003\r\nabc\r\n")
one("pub_size_huge", SUB_ALL, b"PUB f 99999999999999999999\r\nabc\r\n")
one("pub_size_over_default", SUB_ALL, b"PUB f 1048577\r\n")
one("pub_size_nine_nines", SUB_ALL, b"PUB f 999999999\r\n")
one("pub_payload_short", SUB_ALL, b"PUB f 2\r\nabc\r\n")
one("pub_payload_long", SUB_ALL, b"PUB f 4\r\nabc\r\nPING\r\n")
one("pub_payload_lf_only", SUB_ALL, b"PUB f 3\r\nabc\nPING\r\n")
one("pub_payload_no_end", SUB_ALL, b"PUB f 3\r\nabcPING\r\n")
one("pub_payload_cr_cr", SUB_ALL, b"PUB f 3\r\nabc\r\r\n")
one("pub_payload_binary", SUB_ALL, b"PUB f 8\r\n\x00\r\n\xff\xfe\r\nA\r\n")
one("pub_payload_holds_protocol", SUB_ALL, b"PUB f 13\r\nPUB a 1\r\nx\r\nz\r\n")
one(
    "pub_wildcard_star",
    CONNECT,
    b"SUB foo.* 1\r\nSUB foo.> 2\r\nSUB foo.x 3\r\nPUB foo.* 1\r\nx\r\n",
)
one(
    "pub_wildcard_full",
    CONNECT,
    b"SUB foo.* 1\r\nSUB foo.> 2\r\nSUB foo.x 3\r\nPUB foo.> 1\r\nx\r\n",
)
for name, subject in {
    "dot_end": "a.",
    "dot_start": ".a",
    "dots": "a..b",
    "dot": ".",
    "two_dots": "..",
}.items():
    one(
        f"pub_empty_token_{name}",
        SUB_ALL,
        b"SUB *.* 2\r\nSUB a.> 3\r\n",
        f"PUB {subject} 1\r\nx\r\n".encode(),
    )
    one(
        f"pub_pedantic_empty_token_{name}",
        PEDANTIC,
        f"SUB > 1\r\nPUB {subject} 1\r\nx\r\n".encode(),
    )
one("pub_pedantic_star", PEDANTIC, b"SUB foo.* 1\r\nPUB foo.* 1\r\nx\r\n")
one("pub_pedantic_full", PEDANTIC, b"SUB foo.> 1\r\nPUB foo.> 1\r\nx\r\n")
one("pub_pedantic_star_inside_token", PEDANTIC, b"SUB foo* 1\r\nPUB foo* 1\r\nx\r\n")
one("pub_pedantic_verbose", b'CONNECT {"pedantic":true,"verbose":true}\r\n', b"PUB a.* 1\r\nx\r\n")
one(
    "pub_pedantic_header",
    b'CONNECT {"pedantic":true,"verbose":true,"headers":true}\r\n',
    b"HPUB a.* 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
)
one("pub_pedantic_reply", PEDANTIC, b"SUB a 1\r\nPUB a b..c 1\r\nx\r\n")
one("pub_utf8_subject", SUB_ALL, "PUB смайл.🔑 2\r\nhi\r\n".encode())
one("pub_invalid_utf8_subject", CONNECT, b"SUB \xff.* 1\r\nPUB \xff.\xfe 2\r\nhi\r\n")
one("pub_nul_subject", CONNECT, b"SUB a\x00b 1\r\nPUB a\x00b 2\r\nhi\r\n")
one("pub_verbose", VERBOSE, b"PUB a 1\r\nx\r\nPUB a r 1\r\nx\r\n")
one("pub_reserved_gr", SUB_ALL, b"PUB _GR_.x 1\r\nx\r\n")
one("pub_reserved_reply_r", SUB_ALL, b"PUB a _R_.x 1\r\nx\r\n")
one("pub_reserved_reply_ack", SUB_ALL, b"PUB a $JS.ACK.x 1\r\nx\r\n")
one("pub_reserved_reply_gr", SUB_ALL, b"PUB a _GR_.x 1\r\nx\r\n")
one("pub_reserved_nrg", SUB_ALL, b"PUB $NRG.x 1\r\nx\r\n")
one("pub_reserved_verbose", VERBOSE, b"PUB _GR_.x 1\r\nx\r\nPUB a _R_.x 1\r\nx\r\n")
one("pub_not_reserved", SUB_ALL, b"PUB $GNR.x 1\r\nx\r\nPUB $SYS.x 1\r\ny\r\nPUB $JS.x 1\r\nz\r\n")
one("pub_reserved_case", SUB_ALL, b"PUB _gr_.x 1\r\nx\r\nPUB _GR_ 1\r\nx\r\nPUB a _R_ 1\r\nx\r\n")

# SUB and UNSUB

one("sub_verbose", VERBOSE, b"SUB a 1\r\nSUB a q 2\r\n")
one("sub_no_args", CONNECT, b"SUB\r\n")
one("sub_blank_args", CONNECT, b"SUB \r\n")
one("sub_one_arg", CONNECT, b"SUB a\r\n")
one("sub_four_args", CONNECT, b"SUB a b c d\r\n")
one("sub_no_blank", CONNECT, b"SUBa 1\r\n")
one("sub_lower", CONNECT, b"sub a 1\r\npub a 1\r\nx\r\n")
one("sub_tabs", CONNECT, b"SUB\ta\t1\r\nPUB a 1\r\nx\r\n")
one("sub_trailing_blanks", CONNECT, b"SUB a 1  \t \r\nPUB a 1\r\nx\r\n")
one("sub_lf", CONNECT, b"SUB a 1\nPUB a 1\nx\r\n")
one("sub_sid_word", CONNECT, b"SUB a my-sid_7!\r\nPUB a 1\r\nx\r\n")
one("sub_sid_bytes", CONNECT, "SUB a ключ\r\nPUB a 1\r\nx\r\n".encode())
one(
    "sub_sid_leading_zero",
    CONNECT,
    b"SUB a 007\r\nSUB b 7\r\nPUB a 1\r\nx\r\nPUB b 1\r\ny\r\n",
    b"UNSUB 7\r\nPUB b 1\r\nz\r\nPUB a 1\r\nx\r\n",
)
one("sub_duplicate_sid", CONNECT, b"SUB a 1\r\nSUB b 1\r\nPUB a 1\r\nx\r\nPUB b 1\r\ny\r\n")
one("sub_duplicate_sid_verbose", VERBOSE, b"SUB a 1\r\nSUB b 1\r\n")
one("sub_same_subject_twice", CONNECT, b"SUB a 1\r\nSUB a 2\r\nPUB a 1\r\nx\r\n")
one(
    "sub_after_unsub_same_sid",
    CONNECT,
    b"SUB a 1\r\nUNSUB 1\r\nSUB b 1\r\nPUB a 1\r\nx\r\nPUB b 1\r\ny\r\n",
)
one("sub_sys_queue", CONNECT, b"SUB a _sys_ 1\r\n")
one("sub_sys_subject", CONNECT, b"SUB $SYS.> 1\r\nPUB $SYS.foo 1\r\nx\r\n")
for name, subject in {
    "dot_end": "a.",
    "dot_start": ".a",
    "dots": "a..b",
    "dot": ".",
    "full_inside": "a.>.b",
    "full_first": ">.a",
    "full_twice": ">.>",
}.items():
    one(f"sub_invalid_{name}", VERBOSE, f"SUB {subject} 1\r\nPUB a.b 1\r\nx\r\n".encode())
for subject in (
    "foo*",
    "*foo",
    "foo>",
    ">foo",
    "foo.b*r",
    "**",
    ">>",
    "a.**",
    "a.>>",
    "*.>",
    "*.*",
):
    one(
        f"sub_pattern_{subject}",
        CONNECT,
        f"SUB {subject} 1\r\n".encode(),
        f"PUB {subject} 1\r\na\r\nPUB foo 1\r\nb\r\n".encode(),
        b"PUB foo.bar 1\r\nc\r\nPUB a.b.c 1\r\nd\r\n",
    )
one(
    "sub_full_needs_token",
    CONNECT,
    b"SUB a.> 1\r\nPUB a 1\r\nx\r\nPUB a.b 1\r\ny\r\nPUB a.b.c 1\r\nz\r\n",
)
one(
    "sub_star_one_token",
    CONNECT,
    b"SUB a.*.c 1\r\nPUB a.c 1\r\nx\r\nPUB a.b.c 1\r\ny\r\nPUB a.b.b.c 1\r\nz\r\n",
)
one(
    "sub_case_sensitive",
    CONNECT,
    b"SUB foo 1\r\nPUB FOO 1\r\nx\r\nPUB Foo 1\r\nx\r\nPUB foo 1\r\ny\r\n",
)
one(
    "sub_many_matches",
    CONNECT,
    b"".join(b"SUB a.b.c %d\r\n" % n for n in range(20)),
    b"PUB a.b.c 1\r\nx\r\n",
)
one("unsub", CONNECT, b"SUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 1\r\nPUB a 1\r\ny\r\n")
one("unsub_verbose", VERBOSE, b"SUB a 1\r\nUNSUB 1\r\nUNSUB 1\r\nUNSUB 99\r\n")
one("unsub_no_args", CONNECT, b"UNSUB\r\n")
one("unsub_blank_args", CONNECT, b"UNSUB \r\n")
one("unsub_three_args", CONNECT, b"UNSUB 1 2 3\r\n")
one("unsub_lower", CONNECT, b"SUB a 1\r\nunsub 1\r\nPUB a 1\r\nx\r\n")
one("unsub_tabs", CONNECT, b"SUB a 1\r\nUNSUB\t1\t2\r\n", b"PUB a 1\r\nx\r\n" * 3)
one("unsub_unknown", CONNECT, b"UNSUB 5\r\nUNSUB 5 5\r\n")
one("unsub_max", CONNECT, b"SUB a 1\r\nUNSUB 1 3\r\n", b"PUB a 1\r\nx\r\n" * 5)
one(
    "unsub_max_counts_from_sub",
    CONNECT,
    b"SUB a 1\r\n",
    b"PUB a 1\r\nx\r\n" * 2,
    b"UNSUB 1 3\r\n",
    b"PUB a 1\r\ny\r\n" * 3,
)
one(
    "unsub_max_reached",
    CONNECT,
    b"SUB a 1\r\n",
    b"PUB a 1\r\nx\r\n" * 3,
    b"UNSUB 1 3\r\n",
    b"PUB a 1\r\ny\r\n" * 3,
)
one(
    "unsub_max_passed",
    CONNECT,
    b"SUB a 1\r\n",
    b"PUB a 1\r\nx\r\n" * 3,
    b"UNSUB 1 2\r\n",
    b"PUB a 1\r\ny\r\n" * 3,
)
one("unsub_max_raised", CONNECT, b"SUB a 1\r\nUNSUB 1 2\r\nUNSUB 1 4\r\n", b"PUB a 1\r\nx\r\n" * 6)
one("unsub_max_lowered", CONNECT, b"SUB a 1\r\nUNSUB 1 4\r\nUNSUB 1 2\r\n", b"PUB a 1\r\nx\r\n" * 6)
one(
    "unsub_max_then_now",
    CONNECT,
    b"SUB a 1\r\nUNSUB 1 4\r\nPUB a 1\r\nx\r\nUNSUB 1\r\nPUB a 1\r\ny\r\n",
)
one("unsub_max_zero", CONNECT, b"SUB a 1\r\nUNSUB 1 0\r\nPUB a 1\r\nx\r\n")
one("unsub_max_word", CONNECT, b"SUB a 1\r\nUNSUB 1 abc\r\nPUB a 1\r\nx\r\n")
one("unsub_max_negative", CONNECT, b"SUB a 1\r\nUNSUB 1 -1\r\nPUB a 1\r\nx\r\n")
one("unsub_max_ten_digits", CONNECT, b"SUB a 1\r\nUNSUB 1 1234567890\r\nPUB a 1\r\nx\r\n")
one("unsub_max_queue", CONNECT, b"SUB a q 1\r\nUNSUB 1 2\r\n", b"PUB a 1\r\nx\r\n" * 4)
one(
    "unsub_max_resubscribe",
    CONNECT,
    b"SUB a 1\r\nUNSUB 1 1\r\nPUB a 1\r\nx\r\nSUB a 1\r\n",
    b"PUB a 1\r\ny\r\n" * 3,
)
