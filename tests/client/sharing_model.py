"""What accounts that share must do, in plain Python: random configurations, and who hears what.

Many of these worlds fit into one server, as their accounts have to do with each other alone.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from jsserver.cext.bytes import subject_is_literal, subject_matches, subjects_overlap
from jsserver.config.links import LinkError, Sharing
from jsserver.config.options import ServiceExport, ServiceImport, StreamExport, StreamImport
from jsserver.text.transforms import TransformError, parse

ACCOUNTS = ("A", "B", "C")
WORDS = ("a", "b", "c")
PATTERNS = ("a", "*", "*.b", "*.*", ">", "a.>", "*.>", "a.*", "b.c")
HEARD = (">", "*.>", "e0.>", "e1.*", "m0.a", "p.>", "p.e0.*", "*.a", "*.*.b", "q.*", "e2.a", "m1.>")
GROUPS = ("q", "r")
REPLIES = "inbox"

Delivery = tuple[str, str, str]
"""Whom a message goes to: the user, the sid, and the subject."""


@dataclass
class User:
    """A client's user, and its subscriptions, "subject" or "subject queue": the sid is the place.
    What it may not hear is of the same form."""

    account: str
    name: str
    publish: dict[str, list[str]] = field(default_factory=dict)
    deny: list[str] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)

    def may_publish(self, subject: str) -> bool:
        allow, deny = self.publish.get("allow"), self.publish.get("deny", [])
        return (allow is None or matches(allow, subject)) and not matches(deny, subject)

    def may_hear(self, subject: str, group: str) -> bool:
        """Whether a message comes through to a member of a group, or to none ("")."""
        for rule in self.deny:
            pattern, _, denied = rule.partition(" ")
            if subject_matches(pattern, subject) and (
                not denied or (group and subject_matches(denied, group))
            ):
                return False
        return True

    @property
    def is_filtered(self) -> bool:
        """Whether something that it may not hear is within what it has subscribed to."""
        denied = [rule.partition(" ")[0] for rule in self.deny]
        heard = [words.partition(" ")[0] for words in self.patterns]
        return any(subjects_overlap(rule, pattern) for rule in denied for pattern in heard)


def matches(patterns: list[str], subject: str) -> bool:
    return any(subject_matches(pattern, subject) for pattern in patterns)


@dataclass
class Heard:
    """Who hears a message: each of `all`, and one of each group of candidates."""

    all: Counter[Delivery] = field(default_factory=Counter)
    groups: list[list[Delivery]] = field(default_factory=list)
    hops: int = 0
    """How many services one after another it passed through at most."""

    def fits(self, found: Counter[Delivery]) -> bool:
        """Whether these deliveries are what has to be."""
        if self.all - found:
            return False
        return _are_picked(list((found - self.all).elements()), [g for g in self.groups if g])

    @property
    def count(self) -> int:
        return sum(self.all.values()) + sum(map(bool, self.groups))


def _are_picked(found: list[Delivery], groups: list[list[Delivery]]) -> bool:
    """Whether each group has just one of what was found."""
    if len(found) != len(groups):
        return False
    if not groups:
        return True
    first, rest = groups[0], groups[1:]
    return any(
        _are_picked(found[:at] + found[at + 1 :], rest)
        for at, one in enumerate(found)
        if one in first
    )


@dataclass
class World:
    """A configuration, and what it means. `tag` is in all names of accounts and users, so that many
    worlds fit into one server."""

    tag: str = ""
    of_peer: bool = False
    """Whether it is nats-server's, which holds members of groups to what they may not hear by what
    a message is called in the account that it comes from, if what they have subscribed to has to do
    with what they may not hear."""
    in_any_order: bool = True
    """Whether its imports are let through in whatever order the accounts are read."""
    users: list[User] = field(default_factory=list)
    mappings: dict[str, dict[str, str]] = field(default_factory=dict)
    exports: dict[str, list[tuple[str, str, list[str] | None]]] = field(default_factory=dict)
    imports: dict[str, list[tuple[str, str, str, str, str]]] = field(default_factory=dict)
    """(stream or service, exporter, subject, subject here, the export's subject)"""

    # ---- who hears what

    def hears(self, user: User, subject: str) -> Heard:
        """Who hears what this user publishes."""
        heard = Heard()
        subject = self._mapped(user.account, subject)
        if user.may_publish(subject):
            self._route(heard, user.account, subject, ())
        return heard

    def _mapped(self, account: str, subject: str) -> str:
        for source, destination in self.mappings[account].items():
            if subject_matches(source, subject):
                return renamed(source, destination, subject)
        return subject

    def _route(
        self, heard: Heard, account: str, subject: str, through: tuple[tuple[str, str], ...]
    ) -> None:
        heard.hops = max(heard.hops, len(through))
        groups: dict[str, list[Delivery]] = {}
        self._tell(heard, groups, account, subject, subject)
        for importer in ACCOUNTS:
            for kind, exporter, wanted, here, _ in self.imports[importer]:
                is_heard = kind == "stream" and exporter == account and not through
                if is_heard and subject_matches(wanted, subject):
                    self._tell(heard, groups, importer, renamed(wanted, here, subject), subject)
        heard.groups += groups.values()
        for kind, exporter, wanted, here, export in self.imports[account]:
            passes = kind == "service" and (exporter, export) not in through
            if passes and subject_matches(here, subject):
                there = self._mapped(exporter, renamed(here, wanted, subject))
                self._route(heard, exporter, there, (*through, (exporter, export)))

    def _tell(
        self,
        heard: Heard,
        groups: dict[str, list[Delivery]],
        account: str,
        subject: str,
        outside: str,
    ) -> None:
        """A group is one, whichever accounts its members hear the message in; `outside` is what
        it is called in the one where it was sent."""
        for user in self.users:
            if user.account != account:
                continue
            for sid, words in enumerate(user.patterns):
                pattern, _, group = words.partition(" ")
                if group and self.of_peer:
                    lets = not user.is_filtered or user.may_hear(outside, group)
                else:
                    lets = user.may_hear(subject, group)
                if subject_matches(pattern, subject) and lets:
                    delivery = (user.name, str(sid), subject)
                    if group:
                        groups.setdefault(group, []).append(delivery)
                    else:
                        heard.all[delivery] += 1

    # ---- the configuration

    def config(self) -> str:
        """Of a server that has this world alone."""
        return config([self])

    def named(self, account: str) -> str:
        """The account's name, which is no other world's."""
        return account + self.tag

    def accounts(self) -> dict[str, object]:
        """The block, by name."""
        return {
            self.named(account): {
                "users": [self._user(user) for user in self.users if user.account == account],
                "mappings": self.mappings[account],
                "exports": [
                    {kind: subject}
                    | ({} if others is None else {"accounts": [self.named(a) for a in others]})
                    | ({"response": "stream"} if kind == "service" else {})
                    for kind, subject, others in self.exports[account]
                ],
                "imports": [
                    {kind: {"account": self.named(exporter), "subject": subject}, "to": here}
                    for kind, exporter, subject, here, _ in self.imports[account]
                ],
            }
            for account in ACCOUNTS
        }

    def _user(self, user: User) -> dict[str, object]:
        may = {"publish": user.publish, "subscribe": {"deny": user.deny}}
        return {"user": user.name, "password": "x", "permissions": may}


def config(worlds: Iterable[World]) -> str:
    """Of a server that has all of them."""
    accounts = {name: block for world in worlds for name, block in world.accounts().items()}
    return json.dumps({"server_name": "one", "accounts": accounts}, indent=1)


def renamed(source: str, destination: str, subject: str) -> str:
    """What becomes of a subject; `*` in a destination stands for those of the source in turn."""
    stars = 0
    tokens = destination.split(".")
    for at, token in enumerate(tokens):
        if token == "*":
            stars += 1
            tokens[at] = f"${stars}"
    transform = parse(source, ".".join(tokens))
    made = None if transform is None else transform.compiled()(subject)
    return "" if made is None else made.decode()


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
        rules = rng.sample(("e0.a", "p.e1.>", "*.b", "q.>", "e2.*.b", "e1.>"), rng.randrange(1, 3))
        user.deny = [rng.choice((rule, f"{rule} {rng.choice((*GROUPS, '*'))}")) for rule in rules]
    for pattern in rng.sample(HEARD, rng.randrange(1, 4)):
        group = rng.choice(("", "", *GROUPS))
        if user.may_hear(pattern, group):
            user.patterns.append(f"{pattern} {group}".strip())
    return user


def _sharing(made: World) -> Sharing:
    """What is exported."""
    sharing = Sharing()
    for account in ACCOUNTS:
        for kind, subject, allowed in made.exports[account]:
            if kind == "stream":
                sharing.export_stream(account, StreamExport(subject=subject, accounts=allowed))
            else:
                sharing.export_service(account, ServiceExport(subject=subject, accounts=allowed))
    return sharing


def _are_let_in_any_order(made: World) -> bool:
    for order in itertools.permutations(ACCOUNTS):
        sharing = _sharing(made)
        for kind in ("stream", "service"):
            for account in order:
                for wanted in made.imports[account]:
                    if wanted[0] == kind and not _is_let(sharing, account, wanted):
                        return False
    return True


def world(rng: random.Random, tag: str = "") -> World:
    """Any world; its imports are those that `Sharing` lets through."""
    made = World(tag=tag, mappings={account: _mappings(rng) for account in ACCOUNTS})
    for account in ACCOUNTS:
        made.users += [_user(rng, account, f"{account}{i}{tag}") for i in range(2)]
        made.exports[account] = []
        made.imports[account] = []
        for at in range(3):
            kind = rng.choice(("stream", "service"))
            subject = f"e{at}.{rng.choice(PATTERNS)}"
            allowed = rng.choice((None, None, [rng.choice(ACCOUNTS)]))
            made.exports[account].append((kind, subject, allowed))
    sharing = _sharing(made)
    asked: list[tuple[str, Imported]] = []
    for _ in range(8):
        account, exporter = rng.sample(ACCOUNTS, 2)
        kind, export, _ = rng.choice(made.exports[exporter])
        asked.append((account, _import_of(rng, kind, exporter, export)))
    # in the order of the configuration, on which it depends what looks like a cycle
    for account, wanted in sorted(asked, key=lambda one: (one[1][0] == "service", one[0])):
        if _is_let(sharing, account, wanted):
            made.imports[account].append(wanted)
    made.in_any_order = _are_let_in_any_order(made)
    return made


def subjects(rng: random.Random, count: int) -> list[str]:
    """Literal subjects, near to what is exported, mapped and renamed."""
    found = []
    for _ in range(count):
        first = rng.choice(("e0", "e1", "e2", "p.e0", "p.e1", "q", "m0", "m1"))
        found.append(".".join([first, *(rng.choice(WORDS) for _ in range(rng.randrange(1, 3)))]))
    assert all(map(subject_is_literal, found))
    return found
