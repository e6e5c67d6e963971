"""What tokens say, by their type: the claims of operators, accounts, users and activations.

Members that are left out have the values that they have for Go's decoder: 0, "" and nothing. A
limit of -1 is none; times are seconds since the epoch, durations nanoseconds.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
NO_LIMIT = -1
ALL = "*"
"""In revocations: everybody; in allowed accounts: any."""


def limit_of(claimed: int) -> int:
    """A limit as it is held to: of the negative ones NO_LIMIT alone is none, others let nothing
    through."""
    return claimed if claimed >= NO_LIMIT else 0


class Permission(msgspec.Struct):
    """Subjects; of subscriptions also "subject queue"."""

    allow: list[str] = []
    deny: list[str] = []


class Responses(msgspec.Struct):
    """Leave to publish to the reply subjects of delivered messages."""

    max: Int64 = 0
    ttl: Int64 = 0


class Permissions(msgspec.Struct, kw_only=True):
    pub: Permission = field(default_factory=Permission)
    sub: Permission = field(default_factory=Permission)
    resp: Responses | None = None


class TimeRange(msgspec.Struct):
    """A part of each day, as HH:MM:SS; one that ends before it starts goes over midnight."""

    start: str = ""
    end: str = ""


class UserLimits(Permissions, kw_only=True):
    """What a user may do, from where and when."""

    src: list[str] | str = []
    times: list[TimeRange] = []
    times_location: str = ""
    subs: Int64 = 0
    data: Int64 = 0
    payload: Int64 = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: list[str] = []

    @property
    def sources(self) -> list[str]:
        """Networks that the user may come from; none: from anywhere."""
        if isinstance(self.src, list):
            return self.src
        parts = (part.strip() for part in self.src.lower().split(","))
        return [part for part in parts if part]


class Template(UserLimits, kw_only=True):
    """The limits of all users whose tokens a scoped key signs."""

    subs: Int64 = NO_LIMIT
    data: Int64 = NO_LIMIT
    payload: Int64 = NO_LIMIT


class Scope(msgspec.Struct, kw_only=True):
    """A signing key that makes users of one role alone."""

    kind: Literal["user_scope"]
    key: str = ""
    role: str = ""
    template: Template = field(default_factory=Template)
    description: str = ""


class Generic(msgspec.Struct, kw_only=True):
    """What the bodies of all types have."""

    tags: list[str] = []
    type: str = ""
    version: Int64 = 0


class OperatorBody(Generic, kw_only=True):
    signing_keys: list[str] = []
    account_server_url: str = ""
    operator_service_urls: list[str] = []
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False


class JetStreamLimits(msgspec.Struct, kw_only=True):
    """0 bytes of both kinds of storage: JetStream is off."""

    mem_storage: Int64 = 0
    disk_storage: Int64 = 0
    streams: Int64 = 0
    consumer: Int64 = 0
    max_ack_pending: Int64 = 0
    mem_max_stream_bytes: Int64 = 0
    disk_max_stream_bytes: Int64 = 0
    max_bytes_required: bool = False

    @property
    def enabled(self) -> bool:
        """Whether anything may be stored."""
        return self.mem_storage != 0 or self.disk_storage != 0


class AccountLimits(JetStreamLimits, kw_only=True):
    subs: Int64 = 0
    data: Int64 = 0
    payload: Int64 = 0
    imports: Int64 = 0
    exports: Int64 = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: Int64 = 0
    leaf: Int64 = 0
    tiered_limits: dict[str, JetStreamLimits] = {}


class Import(msgspec.Struct, kw_only=True):
    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: Literal["stream", "service", ""] = ""
    share: bool = False
    allow_trace: bool = False


class Latency(msgspec.Struct, kw_only=True):
    """Which share of a service's requests is measured, in percent, and where that is told."""

    sampling: Int64 | str = "headers"
    results: str = ""


class Export(msgspec.Struct, kw_only=True):
    description: str = ""
    info_url: str = ""
    name: str = ""
    subject: str = ""
    type: Literal["stream", "service", ""] = ""
    token_req: bool = False
    revocations: dict[str, Int64] = {}
    response_type: str = ""
    response_threshold: Int64 = 0
    service_latency: Latency | None = None
    account_token_position: Int64 = 0
    advertise: bool = False
    allow_trace: bool = False


class Weighted(msgspec.Struct, kw_only=True):
    """A destination of a mapping; weight in percent, 0 is 100."""

    subject: str = ""
    weight: Annotated[int, Meta(ge=0, le=255)] = 0
    cluster: str = ""


class Authorization(msgspec.Struct, kw_only=True):
    """The auth callout of an account: clients that log in as one of `auth_users` decide."""

    auth_users: list[str] = []
    allowed_accounts: list[str] = []
    xkey: str = ""


class Trace(msgspec.Struct, kw_only=True):
    dest: str = ""
    sampling: Int64 = 0


class AccountBody(Generic, kw_only=True):
    description: str = ""
    info_url: str = ""
    imports: list[Import] = []
    exports: list[Export] = []
    limits: AccountLimits = field(default_factory=AccountLimits)
    signing_keys: list[str | Scope] = []
    revocations: dict[str, Int64] = {}
    default_permissions: Permissions = field(default_factory=Permissions)
    mappings: dict[str, list[Weighted]] = {}
    authorization: Authorization = field(default_factory=Authorization)
    trace: Trace | None = None
    cluster_traffic: str = ""


class UserBody(UserLimits, kw_only=True):
    tags: list[str] = []
    type: str = ""
    version: Int64 = 0
    issuer_account: str = ""


class OldUserBody(Template, kw_only=True):
    """Of version 1, where a limit that is left out is none."""

    tags: list[str] = []
    type: str = ""
    version: Int64 = 0
    issuer_account: str = ""


class ActivationBody(Generic, kw_only=True):
    subject: str = ""
    kind: Literal["stream", "service", ""] = ""
    issuer_account: str = ""


class ResponseBody(Generic, kw_only=True):
    """What an auth callout decided: a user's token, or why there is none."""

    jwt: str = ""
    error: str = ""
    issuer_account: str = ""


class Claims(msgspec.Struct, kw_only=True):
    """Who says something of whom, and for how long."""

    aud: str = ""
    exp: Int64 = 0
    jti: str = ""
    iat: Int64 = 0
    iss: str = ""
    name: str = ""
    nbf: Int64 = 0
    sub: str = ""


class Operator(Claims, kw_only=True):
    nats: OperatorBody = field(default_factory=OperatorBody)


class Account(Claims, kw_only=True):
    nats: AccountBody = field(default_factory=AccountBody)

    @property
    def jetstream(self) -> bool:
        """Whether the account has JetStream, by its tiers or without any."""
        tiers = self.nats.limits.tiered_limits
        if tiers:
            return any(tier.enabled for tier in tiers.values())
        return self.nats.limits.enabled


class User(Claims, kw_only=True):
    nats: UserBody = field(default_factory=UserBody)


class Activation(Claims, kw_only=True):
    nats: ActivationBody = field(default_factory=ActivationBody)


class AuthorizationResponse(Claims, kw_only=True):
    nats: ResponseBody = field(default_factory=ResponseBody)


class Other(Claims, kw_only=True):
    """Of a type that says nothing here; its body as it came."""

    nats: dict[str, object] = {}
