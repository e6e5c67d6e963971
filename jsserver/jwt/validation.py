"""What is wrong with claims whose signature is right, in nats-server's words."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from jsserver.jwt.claims import (
    ALL,
    NO_LIMIT,
    Account,
    AccountBody,
    Activation,
    AuthorizationResponse,
    Claims,
    Export,
    Import,
    Operator,
    Permissions,
    Scope,
    User,
    UserLimits,
    Weighted,
)
from jsserver.jwt.tokens import TokenError, decode_as
from jsserver.text.goformat import quote
from jsserver.text.identity import (
    PREFIX_ACCOUNT,
    PREFIX_CURVE,
    PREFIX_OPERATOR,
    PREFIX_SERVER,
    PREFIX_USER,
    decode_public,
)

INFO_MAX = 8 << 10
"""Bytes of a description or of a URL for people."""
_CLOCK = re.compile(r"(?:[01]?\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?", re.ASCII)
_REFERENCE = re.compile(r"\$([+-]?\d+)", re.ASCII)
_RESPONSE_TYPES = ("", "Singleton", "Stream", "Chunked")
_TRAFFIC = ("", "system", "owner")


class Issue(NamedTuple):
    """Something that is wrong: `blocking` whenever it is looked at, or only at this time."""

    text: str
    blocking: bool = True
    of_time: bool = False


def is_key(text: str, prefix: int) -> bool:
    """Whether the text is a public key of this kind."""
    try:
        return decode_public(text)[0] == prefix
    except ValueError:
        return False


def refusal(issues: list[Issue], times: bool = True) -> str:
    """The first reason not to take the claims; "" if there is none. `times`: whether a time that is
    over, or has not come, is one."""
    return next((i.text for i in issues if i.blocking or (times and i.of_time)), "")


def issues_of(claims: Claims, now: int) -> list[Issue]:
    """Everything that is wrong with claims at a time, in seconds since the epoch."""
    found = []
    if 0 < claims.exp < now:
        found.append(Issue("claim is expired", False, True))
    if 0 < now < claims.nbf:
        found.append(Issue("claim is not yet valid", False, True))
    if isinstance(claims, User):
        found += _user(claims)
    elif isinstance(claims, Account):
        found += _account(claims)
    elif isinstance(claims, Operator):
        found += _operator(claims)
    elif isinstance(claims, Activation):
        found += _activation(claims)
    elif isinstance(claims, AuthorizationResponse):
        found = _response(claims) + found
    return found


# ---- subjects


def has_wildcards(subject: str) -> bool:
    return (
        subject in ("*", ">")
        or subject.endswith((".>", ".*"))
        or subject.startswith("*.")
        or ".*." in subject
    )


def is_contained(subject: str, other: str) -> bool:
    """Whether all that a subject stands for is within what the other one stands for."""
    mine, others = subject.split("."), other.split(".")
    if (len(mine) > len(others) and others[-1] != ">") or len(mine) < len(others):
        return False
    for at, token in enumerate(others):
        if token == ">" and at == len(others) - 1:
            return True
        if token not in (mine[at], "*"):
            return False
    return True


def _subject(subject: str) -> list[Issue]:
    if not subject:
        return [Issue("subject cannot be empty")]
    found = []
    if " " in subject:
        found.append(Issue(f"subject {quote(subject)} cannot have spaces"))
    if subject[0] == "." or subject[-1] == ".":
        found.append(Issue(f"subject {quote(subject)} cannot start or end with a `.`"))
    if ".." in subject:
        found.append(Issue(f"subject {quote(subject)} cannot contain consecutive `.`"))
    return found


def _renamed(local: str, subject: str) -> list[Issue]:
    """A local subject, which refers to the wildcards of the one that it stands for."""
    found = _subject(local)
    if not subject:
        found.append(Issue("subject cannot be empty"))
    if (local.split(".")[-1] == ">") != (subject.split(".")[-1] == ">"):
        found.append(Issue("both, renaming subject and subject, need to end or not end in >"))
    wildcards = subject.split(".").count("*")
    references = 0
    for token in local.split("."):
        reference = _REFERENCE.fullmatch(token)
        if token == "*":
            references += 1
        elif reference is not None and int(reference[1]) > wildcards:
            what = f"Reference ${int(reference[1])} in {quote(local)} reference * in "
            found.append(Issue(f"{what}{quote(subject)} that do not exist"))
        elif reference is not None:
            references += 1
    if references != wildcards:
        found.append(Issue("subject does not contain enough * or reference wildcards $[0-9]"))
    return found


# ---- what users may do


def _rule(rule: str, queues: bool) -> list[Issue]:
    parts = rule.split(" ")
    if len(parts) > 2:
        return [Issue(f'Permission Subject "{rule}" contains too many spaces')]
    found = [issue for part in parts for issue in _subject(part)]
    if len(parts) == 2 and not queues:
        found.append(Issue(f'Permission Subject "{rule}" is not allowed to contain queue'))
    return found


def _permissions(rules: Permissions) -> list[Issue]:
    return [
        issue
        for permission, queues in ((rules.sub, True), (rules.pub, False))
        for rule in (*permission.allow, *permission.deny)
        for issue in _rule(rule, queues)
    ]


def _limits(limits: UserLimits) -> list[Issue]:
    found = []
    for network in limits.sources:
        try:
            if "/" not in network:
                raise ValueError(network)
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            found.append(Issue(f"invalid cidr {quote(network)} in user src limits"))
    for span in limits.times:
        for what, time, article in (("start", span.start, "a"), ("end", span.end, "an")):
            if not time:
                found.append(Issue(f"time ranges {what} must contain {article} {what}"))
            elif _CLOCK.fullmatch(time) is None:
                found.append(Issue(f"{what} in time range is invalid {quote(time)}"))
    if limits.times_location and zone_of(limits.times_location) is None:
        name = limits.times_location
        found.append(Issue(f"could not parse iana time zone by name: unknown time zone {name}"))
    return found


def zone_of(name: str):  # type: ignore[no-untyped-def]  # zoneinfo is loaded with the first
    """The time zone of this name in the database of zones; None if there is none."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


def _user(user: User) -> list[Issue]:
    found = _permissions(user.nats) + _limits(user.nats)
    if user.nats.issuer_account and not is_key(user.nats.issuer_account, PREFIX_ACCOUNT):
        found.append(Issue("account_id is not an account public key"))
    return found


# ---- accounts


def _account(account: Account) -> list[Issue]:
    body, limits = account.nats, account.nats.limits
    found = [issue for i in body.imports for issue in _import(i, account.sub)]
    found += _exports(body.exports)
    if limits.tiered_limits and "" in limits.tiered_limits:
        found.append(Issue('Tiered JetStream Limits can not contain a blank "" tier name'))
    found += _permissions(body.default_permissions)
    found += [i for subject, to in body.mappings.items() for i in _mapping(subject, to)]
    found += _authorization(body)
    if body.trace is not None:
        trace = body.trace
        found += [Issue(f"the account Trace.Destination {i.text}") for i in _subject(trace.dest)]
        if has_wildcards(trace.dest):
            what = f"subject {quote(trace.dest)} is not a valid publish subject"
            found.append(Issue(f"the account Trace.Destination {what}"))
        if not 0 <= trace.sampling <= 100:
            found.append(
                Issue(
                    f"the account Trace.Sampling value '{trace.sampling}' is not valid, "
                    "should be in the range [1..100]"
                )
            )
    if limits.imports != NO_LIMIT and len(body.imports) > limits.imports:
        found.append(Issue("the account contains more imports than allowed by the operator"))
    if limits.exports != NO_LIMIT:
        if len(body.exports) > limits.exports:
            found.append(Issue("the account contains more exports than allowed by the operator"))
        if not limits.wildcards and any(has_wildcards(e.subject) for e in body.exports):
            found.append(
                Issue("the account contains wildcard exports that are not allowed by the operator")
            )
    for key in body.signing_keys:
        if isinstance(key, Scope):
            if not is_key(key.key, PREFIX_ACCOUNT):
                found.append(Issue(f"{key.key} is not an account public key"))
        elif not is_key(key, PREFIX_ACCOUNT):
            found.append(Issue(f"{quote(key)} is not a valid account signing key"))
    found += _info(body)
    if body.cluster_traffic not in _TRAFFIC:
        found.append(Issue(f"unknown cluster traffic option: {quote(body.cluster_traffic)}"))
    if is_key(account.iss, PREFIX_ACCOUNT):
        found.append(
            Issue("self-signed account JWTs shouldn't contain operator limits", blocking=False)
        )
    return found


def _info(of: AccountBody | Export) -> list[Issue]:
    found = []
    if len(of.description.encode("utf-8", "surrogatepass")) > INFO_MAX:
        found.append(Issue("Description is too long"))
    if of.info_url:
        if len(of.info_url.encode("utf-8", "surrogatepass")) > INFO_MAX:
            found.append(Issue("Info URL is too long"))
        try:
            url = urlsplit(of.info_url)
            complete = bool(url.scheme and url.hostname)
        except ValueError:
            complete = False
        if not complete:
            found.append(Issue("error parsing info url: no hostname or scheme"))
    return found


def _mapping(subject: str, destinations: list[Weighted]) -> list[Issue]:
    found = _subject(subject)
    shares: dict[str, int] = {}
    for to in destinations:
        weight = to.weight or 100
        found += _subject(to.subject)
        if weight > 100:
            what = f"Mapping {quote(subject)} has a weight {weight} that exceeds 100"
            found.append(Issue(what))
        shares[to.cluster] = shares.get(to.cluster, 0) + weight
        if to.cluster and shares[to.cluster] > 100:
            what = f"Mapping {quote(subject)} in cluster {quote(to.cluster)} exceeds 100% among"
            found.append(Issue(f"{what} all of it's weighted to mappings"))
    if shares.get("", 0) > 100:
        found.append(
            Issue(f"Mapping {quote(subject)} exceeds 100% among all of it's weighted to mappings")
        )
    return found


def _authorization(body: AccountBody) -> list[Issue]:
    outside = body.authorization
    found = []
    if outside.allowed_accounts and not outside.auth_users:
        found.append(Issue("External authorization cannot have accounts without users specified"))
    for user in outside.auth_users:
        if not is_key(user, PREFIX_USER):
            found.append(Issue(f"AuthUser {quote(user)} is not a valid user public key"))
    for account in outside.allowed_accounts:
        if account == ALL:
            if len(outside.allowed_accounts) > 1:
                what = f"AllowedAccounts can only be a list of accounts or {quote(ALL)}"
                found.append(Issue(what))
        elif not is_key(account, PREFIX_ACCOUNT):
            found.append(Issue(f"Account {quote(account)} is not a valid account public key"))
    if outside.xkey and not is_key(outside.xkey, PREFIX_CURVE):
        found.append(Issue(f"XKey {quote(outside.xkey)} is not a valid public xkey"))
    return found


class _Tree:
    """Different subjects by their tokens: those that contain another one are found without a look
    at each."""

    def __init__(self, subjects: Iterable[str]) -> None:
        self._root = _Branch()
        for number, subject in enumerate(subjects):
            branch = self._root
            for token in subject.split("."):
                branch = branch.next.setdefault(token, _Branch())
            branch.ends = (number, subject)

    def containing(self, subject: str) -> list[str]:
        """Those that `is_contained` says it is within, in their order."""
        found: set[tuple[int, str]] = set()
        branches = [self._root]
        for token in subject.split("."):
            tails = [branch.next[">"].ends for branch in branches if ">" in branch.next]
            found.update(tail for tail in tails if tail is not None)
            follow = {token, "*"}
            branches = [b.next[t] for b in branches for t in follow if t in b.next]
        found.update(branch.ends for branch in branches if branch.ends is not None)
        return [other for _, other in sorted(found)]


class _Branch:
    __slots__ = ("ends", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Branch] = {}
        self.ends: tuple[int, str] | None = None


def _exports(exports: list[Export]) -> list[Issue]:
    found = [issue for export in exports for issue in _export(export)]
    for kind in ("service", "stream"):
        subjects = [e.subject for e in exports if (e.type == "service") == (kind == "service")]
        counts = Counter(subjects)
        tree = _Tree(counts)
        within: dict[str, str] = {}
        for subject in subjects:
            for other in tree.containing(subject):
                if other != subject or counts[subject] > 1:
                    within.setdefault(other, subject)
        found += [
            Issue(f"{kind} export subject {quote(other)} already exports {quote(subject)}")
            for other, subject in within.items()
        ]
    return found


def _export(export: Export) -> list[Issue]:
    found = []
    service, stream = export.type == "service", export.type == "stream"
    if not (service or stream):
        found.append(Issue('invalid export type: "unknown"'))
    answers = quote(export.response_type)
    if service and export.response_type not in _RESPONSE_TYPES:
        found.append(Issue(f"invalid response type for service: {answers}"))
    if stream and export.response_type:
        found.append(Issue(f"invalid response type for stream: {answers}"))
    if stream and export.allow_trace:
        found.append(Issue("AllowTrace only valid for service export"))
    latency = export.service_latency
    if latency is not None:
        if not service:
            found.append(Issue("latency tracking only permitted for services"))
        share = latency.sampling
        if isinstance(share, str):
            if share.lower() != "headers":
                found.append(Issue("sampling percentage needs to be between 1-100"))
        elif share and not 1 <= share <= 100:
            found.append(Issue("sampling percentage needs to be between 1-100"))
        found += _subject(latency.results)
        if has_wildcards(latency.results):
            found.append(Issue("results subject can not contain wildcards"))
    if export.response_threshold < 0:
        found.append(Issue("negative response threshold is invalid"))
    if export.response_threshold > 0 and not service:
        found.append(Issue("response threshold only valid for services"))
    found += _subject(export.subject)
    return found + _token_position(export) + _info(export)


def _token_position(export: Export) -> list[Issue]:
    """Where the importing account's name stands has to be a wildcard."""
    position, subject = export.account_token_position, export.subject
    if position <= 0:
        return []
    if not has_wildcards(subject):
        what = "Account Token Position can only be used with wildcard subjects"
        return [Issue(f"{what}: {subject}")]
    tokens = subject.split(".")
    if position > len(tokens):
        return [Issue(f"Account Token Position {position} exceeds length of subject '{subject}'")]
    token = tokens[position - 1]
    if token != "*":
        what = f"Account Token Position {position} matches '{token}' but must match a * in"
        return [Issue(f"{what}: {subject}")]
    return []


def _import(i: Import, account: str) -> list[Issue]:
    found = []
    service = i.type == "service"
    if not i.type:
        found.append(Issue('invalid import type: "unknown"'))
    if service and i.allow_trace:
        found.append(Issue("AllowTrace only valid for stream import"))
    if not i.account:
        found.append(Issue("account to import from is not specified"))
    if i.to:
        what = "the field to has been deprecated (use LocalSubject instead)"
        found.append(Issue(what, blocking=False))
    found += _subject(i.subject)
    if i.local_subject:
        found += _renamed(i.local_subject, i.subject)
        if i.to:
            found.append(Issue("Local Subject replaces To"))
    if i.share and not service:
        what = "sharing information (for latency tracking) is only valid for services"
        found.append(Issue(f"{what}: {quote(i.subject)}"))
    if i.token:
        try:
            token = decode_as(i.token, Activation)
        except TokenError:
            what = f"import {quote(i.subject)} contains an invalid activation token"
            found.append(Issue(what))
        else:
            found += _activates(token, i, account)
    return found


def _activates(token: Activation, i: Import, account: str) -> list[Issue]:
    """Whether the token is for this import of this account; its times are no matter here."""
    found = []
    if i.account not in (token.iss, token.nats.issuer_account):
        what = f"activation token doesn't match account for import {quote(i.subject)}"
        found.append(Issue(what))
    if token.sub != account:
        what = "activation token doesn't match account it is being included in"
        found.append(Issue(f"{what}, {quote(i.subject)}"))
    if token.nats.kind != i.type:
        kinds = [kind or "unknown" for kind in (token.nats.kind, i.type)]
        what = f"mismatch between token import type {kinds[0]} and type of import {kinds[1]}"
        found.append(Issue(what))
    found += _activation(token)
    subject = i.to if i.type == "service" and i.to else i.subject
    if not is_contained(subject, token.nats.subject):
        what = f"activation token import subject {quote(token.nats.subject)}"
        found.append(Issue(f"{what} doesn't match import {quote(i.subject)}"))
    return found


# ---- the others


def _activation(token: Activation) -> list[Issue]:
    found = [] if token.nats.kind else [Issue('invalid import type: "unknown"')]
    found += _subject(token.nats.subject)
    if token.nats.issuer_account and not is_key(token.nats.issuer_account, PREFIX_ACCOUNT):
        found.append(Issue("account_id is not an account public key"))
    return found


def server_version(text: str) -> tuple[int, int, int]:
    """The release that a server has to be at least, (0, 0, 0) for any; ValueError."""
    if not text:
        return 0, 0, 0
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError("asserted server version must be of the form <major>.<minor>.<update>")
    numbers = []
    for part in parts:
        if not re.fullmatch(r"[+-]?\d{1,18}", part, re.ASCII):
            raise ValueError(f"asserted server version cant parse {part} to int")
        numbers.append(int(part))
    if min(numbers) < 0:
        raise ValueError(f"asserted server version can'b contain negative values: {text}")
    return numbers[0], numbers[1], numbers[2]


def _operator(operator: Operator) -> list[Issue]:
    body = operator.nats
    found = [
        Issue(f"{key} is not an operator public key")
        for key in body.signing_keys
        if not is_key(key, PREFIX_OPERATOR)
    ]
    if body.system_account and not is_key(body.system_account, PREFIX_ACCOUNT):
        found.append(Issue(f"{body.system_account} is not an account public key"))
    try:
        server_version(body.assert_server_version)
    except ValueError as error:
        found.append(Issue(f"assert server version error: {error}"))
    return found


def _response(response: AuthorizationResponse) -> list[Issue]:
    body = response.nats
    found = []
    if not is_key(response.sub, PREFIX_USER):
        found.append(Issue("Subject must be a user public key"))
    if not is_key(response.aud, PREFIX_SERVER):
        found.append(Issue("Audience must be a server public key"))
    if not body.error and not body.jwt:
        found.append(Issue("Error or Jwt is required"))
    if body.error and body.jwt:
        found.append(Issue("Only Error or Jwt can be set"))
    if body.issuer_account and not is_key(body.issuer_account, PREFIX_ACCOUNT):
        found.append(Issue("issuer_account is not an account public key"))
    return found
