"""Services: named endpoints with discovery and statistics, over core NATS."""

import asyncio
import json
from typing import Any

import nats.micro
from nats.aio.client import Client
from nats.micro.request import Request

from tests.client.aio import asynchronous, connected, take, unique
from tests.servers import Server


async def answers(client: Client, subject: str, count: int) -> list[dict[str, Any]]:
    """The answers of `count` instances to a request on a discovery subject."""
    inbox = await client.subscribe(client.new_inbox())
    await client.publish(subject, b"", reply=inbox.subject)
    found = [json.loads(m.data) for m in await take(inbox, count)]
    await inbox.unsubscribe()
    return found


async def echo(request: Request) -> None:
    await request.respond(request.data, headers={"Length": str(len(request.data))})


async def fail(request: Request) -> None:
    await request.respond_error("400", "no good")


@asynchronous
async def test_service_answers_and_counts(core_server: Server) -> None:
    name = unique("svc")
    async with connected(core_server) as server, connected(core_server) as client:
        service = await nats.micro.add_service(
            server, name=name, version="1.2.3", description="echoes"
        )
        group = service.add_group(name=f"{name}-group")
        await group.add_endpoint(name="echo", handler=echo)
        await group.add_endpoint(name="fail", handler=fail)
        await server.flush()
        for n in range(10):
            answer = await client.request(f"{name}-group.echo", b"x" * n, timeout=30)
            assert answer.data == b"x" * n
            assert answer.headers == {"Length": str(n)}
        bad = await client.request(f"{name}-group.fail", b"", timeout=30)
        assert bad.headers == {
            "Nats-Service-Error": "no good",
            "Nats-Service-Error-Code": "400",
        }
        (ping,) = await answers(client, f"$SRV.PING.{name}", 1)
        assert (ping["name"], ping["version"], ping["id"]) == (name, "1.2.3", service.id)
        (info,) = await answers(client, f"$SRV.INFO.{name}.{service.id}", 1)
        assert info["description"] == "echoes"
        (stats,) = await answers(client, f"$SRV.STATS.{name}", 1)
        counts = {e["name"]: e["num_requests"] for e in stats["endpoints"]}
        assert counts == {"echo": 10, "fail": 1}
        await service.stop()


@asynchronous
async def test_instances_share_requests_and_all_are_found(core_server: Server) -> None:
    name = unique("svc")
    async with connected(core_server) as server, connected(core_server) as client:
        services = []
        for _ in range(3):
            service = await nats.micro.add_service(server, name=name, version="0.0.1")
            await service.add_endpoint(name="echo", subject=f"{name}.echo", handler=echo)
            services.append(service)
        await server.flush()
        found = await answers(client, f"$SRV.PING.{name}", 3)
        assert {f["id"] for f in found} == {s.id for s in services}
        requests = [client.request(f"{name}.echo", b"%d" % n, timeout=30) for n in range(90)]
        assert [m.data for m in await asyncio.gather(*requests)] == [b"%d" % n for n in range(90)]
        per_instance = [s.stats().endpoints[0].num_requests for s in services]
        assert sum(per_instance) == 90
        assert all(count > 5 for count in per_instance)
        for service in services:
            await service.stop()
