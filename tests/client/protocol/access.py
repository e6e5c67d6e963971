"""Conversations about authorization, permissions and JetStream's subjects."""

from tests.client.protocol.case import BCRYPT, CONNECT, HEADERS, PAUSE, SYNC, case, one, user

# authorization

one("auth_ok", user("u", "p"), b"SUB a 1\r\nPUB a 1\r\nx\r\n", config="single")
one("auth_ok_verbose", b'CONNECT {"user":"u","pass":"p"}\r\n', config="single")
one("auth_bad_pass", user("u", "q"), config="single")
one("auth_bad_user", user("v", "p"), config="single")
one("auth_empty_pass", user("u", ""), config="single")
one("auth_missing", CONNECT, config="single")
one("auth_token_instead", b'CONNECT {"auth_token":"p"}\r\n', config="single")
one("auth_wrong_type", b'CONNECT {"user":1,"pass":"p"}\r\n', config="single")
for verb in (
    "PING",
    "PONG",
    "SUB a 1",
    "PUB a 0",
    "UNSUB 1",
    "+OK",
    "INFO {}",
    "FOO",
    "",
    "-ERR x",
    "HPUB a 0 0",
):
    one(
        f"auth_before_connect_{verb.partition(' ')[0] or 'empty'}",
        f"{verb}\r\n".encode(),
        config="single",
    )
one("auth_before_connect_token", b"PING\r\n", config="token")
one(
    "auth_twice",
    user("u", "p"),
    b"SUB a 1\r\n",
    user("u", "p"),
    b"PUB a 1\r\nx\r\n",
    config="single",
)
one(
    "auth_twice_bad",
    user("u", "p"),
    b"SUB a 1\r\n",
    user("u", "q"),
    b"PUB a 1\r\nx\r\n",
    config="single",
)
one(
    "auth_with_pipelined_work",
    user("u", "p") + b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n" * 1,
    config="single",
)
one("auth_bcrypt_ok", user("u", "secret"), b"PING\r\n", config="single_bcrypt")
one(
    "auth_bcrypt_pipelined",
    user("u", "secret"),
    b"SUB a 1\r\n",
    b"PUB a 1\r\nx\r\n" * 20,
    config="single_bcrypt",
)
one("auth_bcrypt_bad", user("u", "Secret"), config="single_bcrypt")
one("auth_bcrypt_the_hash_itself", user("u", BCRYPT), config="single_bcrypt")
one("token_ok", b'CONNECT {"auth_token":"tok"}\r\n', config="token")
one("token_bad", b'CONNECT {"auth_token":"tuk"}\r\n', config="token")
one("token_missing", b"CONNECT {}\r\n", config="token")
one("token_as_pass", b'CONNECT {"user":"tok","pass":"tok"}\r\n', config="token")
one("token_as_user", b'CONNECT {"user":"tok"}\r\n', config="token")
one("token_bcrypt_ok", b'CONNECT {"auth_token":"secret"}\r\n', config="token_bcrypt")
one("token_bcrypt_bad", b'CONNECT {"auth_token":"secre"}\r\n', config="token_bcrypt")
one("users_bad_pass", user("all", "y"), config="users")
one("users_allowed_standard", user("standard"), b"PING\r\n", config="users")
one("users_allowed_elsewhere_only", user("elsewhere"), b"PING\r\n", config="users")
one("users_allowed_elsewhere_bad_pass", user("elsewhere", "y"), b"PING\r\n", config="users")
one("users_allowed_anywhere", user("anywhere"), b"PING\r\n", config="users")
one("users_unknown", user("nobody"), config="users")
one("users_bcrypt", user("hash", "secret"), b"PING\r\n", config="users")
one("users_bcrypt_bad", user("hash", "x"), config="users")
one(
    "no_auth_user_without_connect",
    b"SUB open.a 1\r\nPUB open.a 1\r\nx\r\nPUB shut 1\r\nx\r\n",
    config="no_auth_user",
)
one("no_auth_user_ping_first", b"PING\r\n", config="no_auth_user")
one(
    "no_auth_user_empty_connect",
    CONNECT,
    b"SUB open.a 1\r\nPUB open.a 1\r\nx\r\nSUB shut 2\r\n",
    config="no_auth_user",
)
one(
    "no_auth_user_other_user",
    user("a"),
    b"SUB shut 1\r\nPUB shut 1\r\nx\r\n",
    config="no_auth_user",
)
one("no_auth_user_bad_credentials", user("a", "z"), config="no_auth_user")
one("no_auth_user_unknown_user", user("zz", "z"), config="no_auth_user")
one("no_auth_user_token", b'CONNECT {"auth_token":"zz"}\r\n', config="no_auth_user")
case(
    "accounts_apart",
    ("b", user("b") + b"SUB > 1\r\n"),
    ("b", SYNC),
    ("a", user("a") + b"SUB > 1\r\nPUB x 1\r\nx\r\n"),
    config="no_auth_user",
)
case(
    "accounts_joined",
    ("b", user("a") + b"SUB > 1\r\n"),
    ("b", SYNC),
    ("a", CONNECT + b"PUB open.x 1\r\nx\r\n"),
    config="no_auth_user",
)

# permissions

one(
    "perm_allow_pub",
    user("allow"),
    b"SUB b.> 1\r\nPUB b.x 1\r\nx\r\nPUB a.x 1\r\nx\r\nPUB c 1\r\nx\r\n",
    b"PUB b 1\r\nx\r\nPUB d 1\r\nx\r\nPUB a.x.y 1\r\nx\r\n",
    config="users",
)
one(
    "perm_allow_sub",
    user("allow"),
    b"SUB a.x 1\r\nSUB a.* 2\r\nSUB a.> 3\r\nSUB a 4\r\nSUB c 5\r\n",
    b"SUB > 6\r\nSUB b.x.y 7\r\nSUB b.* 8\r\nSUB * 9\r\nPUB a.x 1\r\nx\r\nPUB b.x 1\r\nx\r\n",
    config="users",
)
one("perm_allow_sub_queue", user("allow"), b"SUB a.x q 1\r\nSUB c q 2\r\n", config="users")
one(
    "perm_deny_pub",
    user("deny"),
    b"SUB yes.> 1\r\nPUB yes.a 1\r\nx\r\nPUB no.a 1\r\nx\r\nPUB no 1\r\nx\r\n",
    b"PUB x.y.z 1\r\nx\r\nPUB x.y.y 1\r\nx\r\n",
    config="users",
)
one(
    "perm_deny_sub",
    user("deny"),
    b"SUB no.a 1\r\nSUB no.> 2\r\nSUB no.* 3\r\nSUB no 4\r\n",
    b"SUB x.y.z 5\r\nSUB x.*.z 6\r\nSUB x.*.* 7\r\nSUB x.> 8\r\n",
    config="users",
)
case(
    "perm_deny_sub_filtered",
    ("b", user("deny") + b"SUB > 1\r\nSUB *.* 2\r\n"),
    ("b", SYNC),
    (
        "a",
        user("all")
        + b"PUB no.a 1\r\nx\r\nPUB yes.a 1\r\ny\r\nPUB x.y.z 1\r\nz\r\nPUB x.y.y 1\r\nw\r\n",
    ),
    config="users",
)
case(
    "perm_deny_sub_filtered_queue",
    ("b", user("deny") + b"SUB > q 1\r\n"),
    ("b", SYNC),
    ("a", user("all") + b"PUB no.a 1\r\nx\r\nPUB yes.a 1\r\ny\r\n"),
    config="users",
)
one(
    "perm_both",
    user("both"),
    b"SUB p.> 1\r\nSUB p.secret 2\r\nPUB p.a 1\r\nx\r\nPUB p.secret 1\r\nx\r\nPUB q 1\r\nx\r\n",
    config="users",
)
one(
    "perm_default",
    user("dflt"),
    b"SUB dflt.a 1\r\nSUB other 2\r\nPUB dflt.a 1\r\nx\r\nPUB other 1\r\nx\r\n",
    config="users",
)
one("perm_none_listed", user("all"), b"SUB > 1\r\nPUB other 1\r\nx\r\n", config="users")
one("perm_deny_all", user("mute"), b"SUB a 1\r\nSUB > 2\r\nPUB a 1\r\nx\r\n", config="users")
one(
    "perm_verbose",
    b'CONNECT {"verbose":true,"pedantic":false,"user":"allow","pass":"x"}\r\n',
    b"SUB d 1\r\nSUB a.x 2\r\nPUB d 1\r\nx\r\nPUB a.x 1\r\nx\r\n",
    config="users",
)
one(
    "perm_pedantic",
    b'CONNECT {"verbose":false,"pedantic":true,"user":"allow","pass":"x"}\r\n',
    b"PUB d.* 1\r\nx\r\nPUB b.* 1\r\nx\r\n",
    config="users",
)
one(
    "perm_wildcard_publish",
    user("allow"),
    b"SUB b.> 1\r\nPUB b.* 1\r\nx\r\nPUB b.> 1\r\nx\r\nPUB a.> 1\r\nx\r\nPUB > 1\r\nx\r\n",
    config="users",
)
one("perm_reply_not_checked", user("allow"), b"SUB a.x 1\r\nPUB a.x d 1\r\nx\r\n", config="users")
case(
    "perm_wide_sub_of_narrow_allow",
    ("b", user("allow") + b"SUB a.> 1\r\n"),
    ("b", SYNC),
    ("a", user("all") + b"PUB a.x 1\r\nx\r\nPUB a.x.y 1\r\ny\r\n"),
    config="users",
)
one(
    "perm_quoting",
    user("allow"),
    b'PUB d"q\\r 1\r\nx\r\nSUB d"q 1\r\nSUB d"q w"z 2\r\n',
    config="users",
)
one(
    "perm_quoting_utf8",
    user("allow"),
    "PUB ключ.🔑 1\r\nx\r\nSUB ключ 1\r\n".encode(),
    b"PUB d\x01\x7f 1\r\nx\r\nPUB d\xff 1\r\nx\r\n",
    b"PUB d\xe2\x82 1\r\nx\r\nPUB \xed\xa0\x80 1\r\nx\r\n",
    b"PUB \xf4\x90\x80\x80\xc0\xaf\xc3 1\r\nx\r\n",
    config="users",
)
one(
    "perm_invalid_subject",
    user("allow"),
    b"SUB d..e 1\r\nSUB a..e 1\r\nPUB d..e 1\r\nx\r\n",
    config="users",
)
one(
    "perm_queue_any",
    user("queues"),
    b"SUB q.any 1\r\nSUB q.any v 2\r\nSUB q.any bad 3\r\n",
    config="users",
)
one(
    "perm_queue_one",
    user("queues"),
    b"SUB q.one 1\r\nSUB q.one v1 2\r\nSUB q.one v2 3\r\n",
    config="users",
)
one(
    "perm_queue_wildcard",
    user("queues"),
    b"SUB q.wild 1\r\nSUB q.wild v1 2\r\nSUB q.wild v* 3\r\nSUB q.wild w 4\r\n",
    config="users",
)
one(
    "perm_queue_token_wildcard",
    user("queues"),
    b"SUB q.tok 1\r\nSUB q.tok v.1 2\r\nSUB q.tok v.* 3\r\nSUB q.tok v.1.2 4\r\n",
    config="users",
)
one(
    "perm_queue_both",
    user("queues"),
    b"SUB q.both 1\r\nSUB q.both v1 2\r\nSUB q.both v2 3\r\n",
    config="users",
)
one(
    "perm_request_no_responder",
    b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"user":"allow","pass":"x"}\r\n',
    b"SUB _INBOX.1 1\r\nPUB a.none _INBOX.1 0\r\n\r\nPUB z _INBOX.1 0\r\n\r\n",
    config="users",
)
case(
    "allow_responses",
    ("b", user("service") + b"SUB svc 1\r\n"),
    ("b", SYNC),
    ("a", user("all") + b"SUB in 1\r\nPUB svc in 1\r\nx\r\n"),
    ("a", SYNC),
    ("b", 1),
    ("b", b"PUB other 1\r\nx\r\nPUB in 1\r\ny\r\nPUB in 1\r\nz\r\n"),
    ("b", SYNC),
    config="users",
)
case(
    "allow_responses_before_request",
    ("b", user("service") + b"SUB svc 1\r\nPUB in 1\r\ny\r\n"),
    ("b", SYNC),
    config="users",
)
case(
    "allow_responses_max",
    ("b", user("service2") + b"SUB svc 1\r\n"),
    ("b", SYNC),
    ("a", user("all") + b"SUB in.* 1\r\nPUB svc in.1 1\r\nx\r\nPUB svc in.2 1\r\nx\r\n"),
    ("a", SYNC),
    ("b", 2),
    ("b", b"PUB in.1 1\r\n1\r\nPUB in.2 1\r\n2\r\nPUB in.1 1\r\n3\r\nPUB in.1 1\r\n4\r\n"),
    ("b", SYNC),
    config="users",
)
case(
    "allow_responses_expired",
    ("b", user("service2") + b"SUB svc 1\r\n"),
    ("b", SYNC),
    ("a", user("all") + b"SUB in 1\r\nPUB svc in 1\r\nx\r\n"),
    ("a", SYNC),
    ("b", 1),
    ("b", PAUSE(0.6)),
    ("b", b"PUB in 1\r\ny\r\n"),
    ("b", SYNC),
    config="users",
)

# JetStream's subjects, byte by byte

JS = HEADERS + b"SUB in 1\r\n"
one("js_unknown_stream_publish", JS, b"PUB nothing in 1\r\nx\r\n", config="jetstream")
one("js_direct_get_missing", JS, b"PUB $JS.API.DIRECT.GET.NOPE in 0\r\n\r\n", config="jetstream")
one(
    "js_next_missing", JS, b"PUB $JS.API.CONSUMER.MSG.NEXT.NOPE.NO in 0\r\n\r\n", config="jetstream"
)
one("js_ack_missing", JS, b"PUB $JS.ACK.S.C.1.1.1.1.1 in 0\r\n\r\n", config="jetstream")
one("js_off_api", JS, b"PUB $JS.API.INFO in 0\r\n\r\n")
one("js_api_prefix_only", JS, b"PUB $JS.API in 0\r\n\r\n", config="jetstream")
one("js_other_domain", JS, b"PUB $JS.hub.API.INFO in 0\r\n\r\n", config="jetstream")
