"""The handler of INFO: what an account may have, and what it has."""

from msgspec import structs

from jsserver import API_LEVEL
from jsserver.assets.limits import OF_TIERS

from .call import Call
from .responses import AccountInfo, ApiStats, TierInfo

ONE_REPLICA = "R1"


async def info(call: Call) -> AccountInfo:
    """INFO: usage, limits and request counts."""
    account = call.account
    usage = account.handle.usage()
    requests = account.requests()
    used = TierInfo(
        memory=usage.memory,
        storage=usage.storage,
        reserved_memory=account.reserved.memory,
        reserved_storage=account.reserved.storage,
        streams=account.reserved.streams,
        consumers=account.reserved.consumers,
    )
    tiers = {name: TierInfo(limits=limits) for name, limits in account.limits.tiers.items()}
    if ONE_REPLICA in tiers:  # alone, a server has no others
        tiers[ONE_REPLICA] = structs.replace(used, limits=tiers[ONE_REPLICA].limits)
    return AccountInfo(
        memory=used.memory,
        storage=used.storage,
        reserved_memory=used.reserved_memory,
        reserved_storage=used.reserved_storage,
        streams=used.streams,
        consumers=used.consumers,
        limits=OF_TIERS if tiers else account.limits,
        tiers=tiers,
        domain=call.shared.settings.domain,
        api=ApiStats(
            level=API_LEVEL,
            total=requests.total,
            errors=requests.errors,
            inflight=requests.inflight - 1,
        ),
    )
