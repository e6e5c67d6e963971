"""What an account uses, reserves and may use in a whole cluster: the answer to INFO.

Plain data, from the assets and the usage of the account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsserver import API_LEVEL
from jsserver.api.responses import TYPE_PREFIX, AccountInfo, ApiStats, TierInfo
from jsserver.assets.limits import OF_TIERS, AccountLimits

if TYPE_CHECKING:
    from jsserver.assets.assignments import Assignments
    from jsserver.cluster.moves import Usage


def account_info(assets: Assignments, used: Usage, domain: str) -> AccountInfo:
    """The answer; `used`: on all members."""
    claims = assets.claims
    reserved, limits = claims.reserved, claims.limits
    return AccountInfo(
        type=f"{TYPE_PREFIX}account_info_response",
        memory=used.memory,
        storage=used.storage,
        reserved_memory=reserved.memory,
        reserved_storage=reserved.storage,
        streams=reserved.streams,
        consumers=reserved.consumers,
        limits=OF_TIERS if limits.tiers else limits,
        tiers={name: _tier(assets, used, name, of) for name, of in limits.tiers.items()},
        domain=domain,
        api=ApiStats(level=API_LEVEL, total=used.requests, errors=used.errors),
    )


def _tier(assets: Assignments, used: Usage, name: str, limits: AccountLimits) -> TierInfo:
    """The same for the account's streams in one tier, such as R3."""
    replicas = int(name[1:]) if name[1:].isdecimal() else 1
    reserved = assets.claims.of_replicas(replicas)
    of_tier = [
        stream
        for stream in assets.streams.values()
        if max(stream.config.num_replicas, 1) == replicas
    ]
    memory, storage = used.tiers.get(name, (0, 0))
    return TierInfo(
        memory=memory,
        storage=storage,
        reserved_memory=reserved.memory,
        reserved_storage=reserved.storage,
        streams=len(of_tier),
        consumers=sum(len(stream.consumers) for stream in of_tier),
        limits=limits,
    )
