"""What accounts that share must do, in plain Python: random configurations, and who hears what."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

from jsserver.cext.bytes import subject_is_literal, subject_matches
from jsserver.config.links import LinkError, Sharing
from jsserver.config.options import ServiceExport, ServiceImport, StreamExport, StreamImport
from jsserver.text.transforms import TransformError, parse

ACCOUNTS = ("A", "B", "C")
WORDS = ("a", "b", "c")
PATTERNS = ("a", "*", "*.b", "*.*", ">", "a.>", "*.>", "a.*", "b.c")
HEARD = (">", "*.>", "e0.>", "e1.*", "m0.a", "p.>", "p.e0.*", "*.a", "*.*.b", "q.*", "e2.a", "m1.>")
REPLIES = "inbox"


@dataclass
class User:
    """A client's user, and its subscriptions: the sid is the place."""

    account: str
    name: str
    publish: dict[str, list[str]] = field(default_factory=dict)
    deny: list[str] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)

    def may_publish(self, subject: str) -> bool:
        allow, deny = self.publish.get("allow"), self.publish.get("deny", [])
        return (allow is None or matches(allow, subject)) and not matches(deny, subject)

    def may_hear(self, subject: str) -> bool:
        return not matches(self.deny, subject)


def matches(patterns: list[str], subject: str) -> bool:
    return any(subject_matches(pattern, subject) for pattern in patterns)


@dataclass
class World:
    """A configuration, and what it means."""

    users: list[User] = field(default_factory=list)
    mappings: dict[str, dict[str, str]] = field(default_factory=dict)
    exports: dict[str, list[tuple[str, str, list[str] | None]]] = field(default_factory=dict)
    imports: dict[str, list[tuple[str, str, str, str, str]]] = field(default_factory=dict)
    """(stream or service, exporter, subject, subject here, the export's subject)"""

    # ---- who hears what

    def hears(self, user: User, subject: str) -> Counter[tuple[str, str, str]]:
        """Who hears what this user publishes: (user, sid, subject), and how often."""
        subject = self._mapped(user.account, subject)
        if not user.may_publish(subject):
            return Counter()
        return self._routed(user.account, subject, ())

    def _mapped(self, account: str, subject: str) -> str:
        for source, destination in self.mappings[account].items():
            if subject_matches(source, subject):
                return renamed(source, destination, subject)
        return subject

    def _routed(
        self, account: str, subject: str, through: tuple[tuple[str, str], ...]
    ) -> Counter[tuple[str, str, str]]:
        heard: Counter[tuple[str, str, str]] = Counter()
        self._told(heard, account, subject)
        for importer in ACCOUNTS:
            for kind, exporter, wanted, here, _ in self.imports[importer]:
                is_heard = kind == "stream" and exporter == account and not through
                if is_heard and subject_matches(wanted, subject):
                    self._told(heard, importer, renamed(wanted, here, subject))
        for kind, exporter, wanted, here, export in self.imports[account]:
            passes = kind == "service" and (exporter, export) not in through
            if passes and subject_matches(here, subject):
                there = self._mapped(exporter, renamed(here, wanted, subject))
                heard += self._routed(exporter, there, (*through, (exporter, export)))
        return heard

    def _told(self, heard: Counter[tuple[str, str, str]], account: str, subject: str) -> None:
        for user in self.users:
            if user.account == account and user.may_hear(subject):
                for sid, pattern in enumerate(user.patterns):
                    if subject_matches(pattern, subject):
                        heard[user.name, str(sid), subject] += 1

    # ---- the configuration

    def config(self) -> str:
        accounts = {
            account: {
                "users": [self._user(user) for user in self.users if user.account == account],
                "mappings": self.mappings[account],
                "exports": [
                    {kind: subject}
                    | ({} if accounts is None else {"accounts": accounts})
                    | ({"response": "stream"} if kind == "service" else {})
                    for kind, subject, accounts in self.exports[account]
                ],
                "imports": [
                    {kind: {"account": exporter, "subject": subject}, "to": here}
                    for kind, exporter, subject, here, _ in self.imports[account]
                ],
            }
            for account in ACCOUNTS
        }
        return json.dumps({"server_name": "one", "accounts": accounts}, indent=1)

    def _user(self, user: User) -> dict[str, object]:
        may = {"publish": user.publish, "subscribe": {"deny": user.deny}}
        return {"user": user.name, "password": "x", "permissions": may}


def renamed(source: str, destination: str, subject: str) -> str:
    """What becomes of a subject; `*` in a destination stands for those of the source in turn."""
    stars = 0
    tokens = destination.split(".")
    for at, token in enumerate(tokens):
        if token == "*":
            stars += 1
            tokens[at] = f"${stars}"
    transform = parse(source, ".".join(tokens))
    return "" if transform is None else transform.compiled()(subject).decode()


Imported = tuple[str, str, str, str, str]


def _import_of(rng: random.Random, kind: str, exporter: str, export: str) -> Imported:
    subject = export
    if rng.random() < 0.3:
        subject = export.replace("*", rng.choice(WORDS), 1)
    here = rng.choice((subject, subject, f"p.{subject}", "q." + subject.partition(".")[2]))
    return kind, exporter, subject, here, export


def _is_let(sharing: Sharing, account: str, wanted: Imported) -> bool:
    kind, exporter, subject, here, _ = wanted
    try:
        if kind == "stream":
            stream = StreamImport(account=exporter, subject=subject, to=here)
            sharing.import_stream(account, stream)
        else:
            service = ServiceImport(account=exporter, subject=subject, to=here)
            sharing.import_service(account, service)
    except LinkError:
        return False
    return True


def _mappings(rng: random.Random) -> dict[str, str]:
    found: dict[str, str] = {}
    for at in range(rng.randrange(3)):
        source = f"m{at}.{rng.choice(('a', '*', '*.*', '>'))}"
        destination = rng.choice((f"e{at}", "p", f"m{1 - at}")) + source.removeprefix(f"m{at}")
        stars = 0
        while "*" in destination:
            stars += 1
            destination = destination.replace("*", f"${stars}", 1)
        try:
            parse(source, destination)
        except TransformError:
            continue
        found[source] = destination
    return found


def _user(rng: random.Random, account: str, name: str) -> User:
    user = User(account, name)
    if rng.random() < 0.3:
        user.publish["allow"] = [f"e{rng.randrange(3)}.>", "p.>", "*.a", "_R_.>", REPLIES]
    if rng.random() < 0.3:
        user.publish["deny"] = [rng.choice(("e0.a", "e1.>", "*.b", "p.*.a"))]
    if rng.random() < 0.4:
        user.deny = [rng.choice(("e0.a", "p.e1.>", "*.b", "q.>", "e2.*.b"))]
    for pattern in rng.sample(HEARD, rng.randrange(1, 4)):
        if user.may_hear(pattern):
            user.patterns.append(pattern)
    return user


def world(rng: random.Random) -> World:
    """Any world; its imports are those that `Sharing` lets through."""
    made = World(mappings={account: _mappings(rng) for account in ACCOUNTS})
    sharing = Sharing()
    for account in ACCOUNTS:
        made.users += [_user(rng, account, f"{account}{i}") for i in range(2)]
        made.exports[account] = []
        made.imports[account] = []
        for at in range(3):
            kind = rng.choice(("stream", "service"))
            subject = f"e{at}.{rng.choice(PATTERNS)}"
            allowed = rng.choice((None, None, [rng.choice(ACCOUNTS)]))
            made.exports[account].append((kind, subject, allowed))
            if kind == "stream":
                sharing.export_stream(account, StreamExport(subject=subject, accounts=allowed))
            else:
                sharing.export_service(account, ServiceExport(subject=subject, accounts=allowed))
    asked: list[tuple[str, Imported]] = []
    for _ in range(8):
        account, exporter = rng.sample(ACCOUNTS, 2)
        kind, export, _ = rng.choice(made.exports[exporter])
        asked.append((account, _import_of(rng, kind, exporter, export)))
    # in the order of the configuration, on which it depends what looks like a cycle
    for account, wanted in sorted(asked, key=lambda one: (one[1][0] == "service", one[0])):
        if _is_let(sharing, account, wanted):
            made.imports[account].append(wanted)
    return made


def subjects(rng: random.Random, count: int) -> list[str]:
    """Literal subjects, near to what is exported, mapped and renamed."""
    found = []
    for _ in range(count):
        first = rng.choice(("e0", "e1", "e2", "p.e0", "p.e1", "q", "m0", "m1"))
        found.append(".".join([first, *(rng.choice(WORDS) for _ in range(rng.randrange(1, 3)))]))
    assert all(map(subject_is_literal, found))
    return found
