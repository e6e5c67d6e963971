"""Reloads of users, permissions and accounts: the same change with the same clients connected, on
both servers."""

import time

import pytest

from tests.client.reloads import Actor, Client, password, reload, user, watched
from tests.nkeys import Signer
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

SIGNER, OTHER = Signer(), Signer()
HASHED = "$2a$04$1b0NjWBF2jG9/jtceL3zJuXng2odOKJamg1ysuSwZR96ZwH.rB/Vy"  # of "x"
SUBS = b"SUB a 1\r\nSUB b 2\r\nSUB c q 3\r\n"
PUBS = b"PUB a 1\r\nA\r\nPUB b 1\r\nB\r\nPUB c 1\r\nC\r\n"


def users(*rows: str) -> str:
    return "authorization { users: [" + ", ".join(f"{{ {row} }}" for row in rows) + "] }"


def accounts(**blocks: str) -> str:
    return "accounts {" + "\n".join(f"{name} {{ {text} }}" for name, text in blocks.items()) + "}"


def own(*names: str, more: str = "") -> str:
    """Users of an account, all with the password x."""
    return "users: [" + ", ".join(f"{{ user: {n}, password: x {more} }}" for n in names) + "]"


A, B = "user: a, password: x", "user: b, password: x"
SIGNED = Actor({"signs": SIGNER}, SUBS)
STAYS, CHANGES = user("a", SUBS.replace(b"q", b"p"), PUBS), user("b", SUBS, PUBS)

CASES: dict[str, tuple[str, str, list[Actor]]] = {
    "nothing": (users(A, B), users(A, B), [STAYS, CHANGES]),
    "a password": (users(A, B), users(A, "user: b, password: y"), [STAYS, CHANGES]),
    "a password that is stored otherwise": (
        users(A, B),
        users(A, f'user: b, password: "{HASHED}"'),
        [STAYS, CHANGES],
    ),
    "a password that is stored otherwise and another": (
        users(A, "user: b, password: y"),
        users(A, f'user: b, password: "{HASHED}"'),
        [STAYS, user("b", SUBS, PUBS, "y")],
    ),
    "a user goes": (users(A, B), users(A), [STAYS, CHANGES]),
    "a user comes": (users(A), users(A, B), [STAYS]),
    "all users go": (users(A, B), "", [STAYS, CHANGES]),
    "all users go and one has no name": (
        users(A, B) + "\nno_auth_user: a",
        "",
        [Actor({}, SUBS, PUBS), CHANGES],
    ),
    "users come": ("", users(A), [STAYS, CHANGES, Actor({}, SUBS, PUBS)]),
    "users come with rules": (
        "",
        users(A + ", permissions: { subscribe: [a, b], publish: a }"),
        [STAYS],
    ),
    "an nkey": (
        users(A, f"nkey: {SIGNER.public}"),
        users(A, f"nkey: {OTHER.public}"),
        [STAYS, SIGNED],
    ),
    "an nkey stays": (
        users(B, f"nkey: {SIGNER.public}"),
        users(A, f"nkey: {SIGNER.public}, permissions: {{ subscribe: a }}"),
        [SIGNED, STAYS],
    ),
    "nkeys come": ("", users(f"nkey: {SIGNER.public}"), [Actor({}, SUBS), STAYS]),
    "a token": (
        "authorization { token: t }",
        "authorization { token: u }",
        [Actor({"auth_token": "t"}, SUBS, PUBS)],
    ),
    "a token stays": (
        "authorization { token: t }\nmax_payload: 1000",
        "authorization { token: t }\nmax_payload: 2000",
        [Actor({"auth_token": "t"}, SUBS, PUBS)],
    ),
    "a token goes": (
        "authorization { token: t }",
        "",
        [Actor({"auth_token": "t"}, SUBS, PUBS)],
    ),
    "a token comes": (
        "",
        "authorization { token: t }",
        [Actor({"auth_token": "t"}, SUBS, PUBS), Actor({"auth_token": "u"}), Actor({}), STAYS],
    ),
    "users instead of a token": (
        "authorization { token: t }",
        users(A),
        [Actor({"auth_token": "t"}, SUBS, PUBS)],
    ),
    "one user's password": (
        "authorization { user: a, password: x }",
        "authorization { user: a, password: y }",
        [STAYS],
    ),
    "the user of guests goes": (
        users(A, B) + "\nno_auth_user: b",
        users(A),
        [STAYS, CHANGES, Actor({}, SUBS, PUBS)],
    ),
    "types of connections": (
        users(A, B),
        users(A, B + ", allowed_connection_types: [WEBSOCKET]"),
        [STAYS, CHANGES],
    ),
    # ---- permissions
    "subscriptions are no longer allowed": (
        users(A, B),
        users(A, B + ", permissions: { subscribe: { deny: [a, 'c q'] } }"),
        [STAYS, CHANGES],
    ),
    "only some are allowed": (
        users(A, B + ", permissions: { subscribe: [a, b, c], publish: [a, b] }"),
        users(A, B + ", permissions: { subscribe: b, publish: b }"),
        [STAYS, CHANGES],
    ),
    "more is allowed": (
        users(A, B + ", permissions: { subscribe: [a, b], publish: b }"),
        users(A, B),
        [STAYS, CHANGES],
    ),
    "patterns that are denied in part": (
        users(A, B),
        users(A, B + ", permissions: { subscribe: { deny: in.no } }"),
        [
            user("a", b"", b"PUB in.no 1\r\n1\r\nPUB in.yes 1\r\n2\r\n"),
            user("b", b"SUB in.* 1\r\nSUB > 2\r\nSUB in.no 3\r\n"),
        ],
    ),
    "leave to answer": (
        users(A, B + ", permissions: { publish: b, allow_responses: true }"),
        users(A, B + ", permissions: { publish: b }"),
        [
            user("a", b"SUB r 1\r\n", b"PUB s r 1\r\n1\r\n"),
            user("b", b"SUB s 1\r\n", b"PUB r 1\r\n2\r\n"),
        ],
    ),
    "default permissions of accounts": (
        accounts(X=own("a", "b"), Y=own("c")),
        accounts(
            X=own("a", "b") + ", default_permissions: { subscribe: { deny: b } }",
            Y=own("c"),
        ),
        [STAYS, CHANGES, user("c", SUBS, PUBS)],
    ),
    # ---- accounts
    "a user moves": (
        accounts(X=own("a", "b"), Y=own("c")),
        accounts(X=own("a"), Y=own("b", "c")),
        [STAYS, CHANGES, user("c", SUBS, PUBS)],
    ),
    "an account comes": (accounts(X=own("a")), accounts(X=own("a"), Y=own("b")), [STAYS]),
    "an account goes": (
        accounts(X=own("a"), Y=own("b")),
        accounts(X=own("a")),
        [STAYS, CHANGES],
    ),
    "a name of an account": (
        accounts(X=own("a"), Y=own("b")),
        accounts(X=own("a"), Z=own("b")),
        [STAYS, CHANGES],
    ),
    "accounts instead of users": (users(A, B), accounts(X=own("a"), Y=own("b")), [STAYS, CHANGES]),
    "users instead of accounts": (accounts(X=own("a"), Y=own("b")), users(A, B), [STAYS, CHANGES]),
    "less may be sent": (
        accounts(X=own("a")),
        accounts(X=own("a") + ", limits: { max_payload: 2 }"),
        [user("a", b"SUB a 1\r\n", b"PUB a 2\r\n12\r\nPUB a 3\r\n123\r\n")],
    ),
    "more may be subscribed to": (
        accounts(X=own("a") + ", limits: { max_subscriptions: 4 }"),
        accounts(X=own("a") + ", limits: { max_subscriptions: 5 }"),
        [user("a", SUBS, b"SUB d 4\r\nSUB e 5\r\nSUB f 6\r\n")],
    ),
    "less may be subscribed to": (
        accounts(X=own("a", "b")),
        accounts(X=own("a", "b") + ", limits: { max_subscriptions: 2 }"),
        [user("a", b"SUB a 1\r\n", PUBS), CHANGES],
    ),
    "mappings come": (
        accounts(X=own("a")),
        accounts(X=own("a") + ", mappings: { a: b }"),
        [STAYS],
    ),
    "mappings go": (
        accounts(X=own("a") + ", mappings: { a: b }"),
        accounts(X=own("a")),
        [STAYS],
    ),
    "mappings of the global account": (
        "mappings: { a: b }",
        "mappings: { b: a }",
        [Actor({}, SUBS, PUBS)],
    ),
    # ---- what accounts share
    "a stream is imported": (
        accounts(X=own("a") + ", exports: [{ stream: a }, { stream: 'w.>' }]", Y=own("b")),
        accounts(
            X=own("a") + ", exports: [{ stream: a }, { stream: 'w.>' }]",
            Y=own("b") + ", imports: [{ stream: { account: X, subject: a }, to: i.a }]",
        ),
        [user("a", b"", PUBS), user("b", b"SUB i.a 1\r\nSUB i.* q 2\r\nSUB > 3\r\n")],
    ),
    "a stream is imported no more": (
        accounts(
            X=own("a") + ", exports: [{ stream: a }]",
            Y=own("b") + ", imports: [{ stream: { account: X, subject: a } }]",
        ),
        accounts(X=own("a") + ", exports: [{ stream: a }]", Y=own("b")),
        [user("a", b"", PUBS), user("b", SUBS)],
    ),
    "another stream is imported": (
        accounts(
            X=own("a") + ", exports: [{ stream: a }, { stream: b }]",
            Y=own("b") + ", imports: [{ stream: { account: X, subject: a } }]",
        ),
        accounts(
            X=own("a") + ", exports: [{ stream: a }, { stream: b }]",
            Y=own("b") + ", imports: [{ stream: { account: X, subject: b }, prefix: p }]",
        ),
        [user("a", b"", PUBS), user("b", SUBS + b"SUB p.> 9\r\n")],
    ),
    "a service is imported": (
        accounts(X=own("a") + ", exports: [{ service: s }]", Y=own("b")),
        accounts(
            X=own("a") + ", exports: [{ service: s }]",
            Y=own("b") + ", imports: [{ service: { account: X, subject: s }, to: t }]",
        ),
        [user("b", b"SUB r 1\r\n", b"PUB t 1\r\n1\r\n"), user("a", b"SUB s 1\r\n")],
    ),
    "a service is imported no more": (
        accounts(
            X=own("a") + ", exports: [{ service: s }]",
            Y=own("b") + ", imports: [{ service: { account: X, subject: s } }]",
        ),
        accounts(X=own("a") + ", exports: [{ service: s }]", Y=own("b")),
        [user("b", b"SUB r 1\r\n", b"PUB s r 1\r\n1\r\n"), user("a", b"SUB s 1\r\n")],
    ),
    "permissions hold for what is imported": (
        accounts(
            X=own("a") + ", exports: [{ stream: '>' }]",
            Y=own("b") + ", imports: [{ stream: { account: X, subject: '>' } }]",
        ),
        accounts(
            X=own("a") + ", exports: [{ stream: '>' }]",
            Y=own("b")
            + ", imports: [{ stream: { account: X, subject: '>' } }]"
            + ", default_permissions: { subscribe: { deny: [a, in.no] } }",
        ),
        [
            user("a", b"", PUBS + b"PUB in.no 1\r\n1\r\nPUB in.yes 1\r\n2\r\n"),
            user("b", SUBS + b"SUB in.* 4\r\n"),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_is_connected_over_a_reload(servers: Servers, case: str) -> None:
    before, after, actors = CASES[case]
    shown = [
        watched(start(config=f"server_name: one\n{before}"), f"server_name: one\n{after}", actors)
        for start in (servers.under_test, servers.peer)
    ]
    assert shown[0] == shown[1]


MUTE = ", permissions: { publish: { deny: '>' } }"
EXPORTS, IMPORTS = "exports: [{ service: s }]", "imports: [{ service: { account: X, subject: s } }]"
ASKED = accounts(X=f"{own('a')}, {EXPORTS}", Y=f"{own('b')}, {IMPORTS}")
ANSWERED = {
    "nothing changes": ASKED + "\nmax_payload: 1000",
    "the import goes": accounts(X=f"{own('a')}, {EXPORTS}", Y=own("b")),
    "the export goes": accounts(X=own("a"), Y=own("b")),
    "another is exported": accounts(
        X=f"{own('a')}, exports: [{{ service: t }}]",
        Y=f"{own('b')}, imports: [{{ service: {{ account: X, subject: t }} }}]",
    ),
    "it gets another name": accounts(
        X=f"{own('a')}, {EXPORTS}",
        Y=f"{own('b')}, imports: [{{ service: {{ account: X, subject: s }}, to: t }}]",
    ),
    "the service may answer nobody": accounts(
        X=f"{own('a', more=MUTE)}, {EXPORTS}",
        Y=f"{own('b')}, {IMPORTS}",
    ),
    "who asked may not hear": accounts(
        X=f"{own('a')}, {EXPORTS}",
        Y=f"{own('b', more=', permissions: { subscribe: { deny: [r] } }')}, {IMPORTS}",
    ),
    "who asked moves": accounts(X=f"{own('a')}, {EXPORTS}", Y=f"{own('c')}, {IMPORTS}", Z=own("b")),
    "the service moves": accounts(
        X=f"{own('c')}, {EXPORTS}", Y=f"{own('b')}, {IMPORTS}", Z=own("a")
    ),
}

CUT = {"the import goes", "the export goes", "another is exported", "it gets another name"}


@pytest.mark.parametrize("change", ANSWERED)
def test_answers_that_are_under_way(servers: Servers, change: str) -> None:
    """A service knows where to answer, and does after a reload, twice. Where the import itself is
    cut or changed nobody hears it here; nats-server lets it through."""
    shown = []
    for start in (servers.under_test, servers.peer):
        server = start(config=f"server_name: one\n{ASKED}")
        serves, asks, other = (Client(server, **password(u)) for u in ("a", "b", "b"))
        serves.send(b"SUB s 1\r\n")
        asks.send(b"SUB r 1\r\nSUB r.> 2\r\n")
        other.send(b"SUB > 1\r\n")
        for client in (serves, asks, other):
            client.heard()
        asks.send(b"PUB s r 1\r\n1\r\nPUB s r.x 1\r\n2\r\n")
        replies = [frame.reply for frame in (serves.message(), serves.message())]
        reload(server, f"server_name: one\n{ANSWERED[change]}")
        time.sleep(0.05)  # clients that are cut have heard of it
        if not serves.closed:
            for reply in replies * 2:
                serves.send(f"PUB {reply} 1\r\n3\r\n".encode())
            serves.heard()
        shown.append([[f.shown() for f in c.heard()] for c in (asks, other) if not c.closed])
    if change in CUT:
        heard, theirs = ([f for c in said for f in c if f[0] == "MSG"] for said in shown)
        assert heard == [f for f in theirs if f[3] != b"3"]
    else:
        assert shown[0] == shown[1]


LIMITS = {
    "max_payload": ("", "max_payload: 3", b"PUB a 3\r\n123\r\n", b"PUB a 4\r\n1234\r\n"),
    "max_control_line": ("", "max_control_line: 20", b"", b"PUB a.b.c.d.e.f.g.h.i.j.k 0\r\n\r\n"),
    "max_connections": ("", "max_connections: 0", b"", b""),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_who_is_connected(servers: Servers, name: str) -> None:
    before, after, fits, beyond = LIMITS[name]
    actors = [Actor({}, SUBS, fits), Actor({}, SUBS, beyond)]
    shown = [
        watched(start(config=f"server_name: one\n{before}"), f"server_name: one\n{after}", actors)
        for start in (servers.under_test, servers.peer)
    ]
    assert shown[0] == shown[1]


def test_too_many_of_an_account_are_cut(servers: Servers) -> None:
    """nats-server cuts any of them, this one the youngest."""
    shown = []
    for start in (servers.under_test, servers.peer):
        server = start(config=accounts(X=own("a")))
        clients = [Client(server, **password("a")) for _ in range(4)]
        reload(server, accounts(X=own("a") + ", limits: { max_connections: 2 }"))
        said = [[frame.shown() for frame in client.heard()] for client in clients]
        shown.append(sorted(said))
        for client in clients:
            client.close()
    assert shown[0] == shown[1]
