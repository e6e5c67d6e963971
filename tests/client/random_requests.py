"""Random messages and requests to the streams of a cluster: what those share that play them."""

import itertools
import json
import random
import time
from typing import Any


class RandomRequests:
    """A seed makes the same requests every time. How one is sent is the subclass's: `ask`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)

    async def ask(self, subject: str, body: bytes, headers: Any = None) -> Any:
        """The answer to a request."""
        raise NotImplementedError

    async def api(self, subject: str, body: object = None) -> dict[str, Any]:
        text = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads((await self.ask(f"$JS.API.{subject}", text)).data)
        return answer

    async def publish(self, name: str, subject: str, body: bytes, **lines: object) -> None:
        given = {key.replace("_", "-"): str(value) for key, value in lines.items()}
        await self.ask(f"{name}.{subject}", body, given or None)

    def body(self) -> bytes:
        size = self.random.choice([0, 1, 20, 300])
        if self.random.random() < 0.03:
            size = 12000
        return bytes([self.random.randint(0, 255)]) * size

    def scheduled(self, name: str) -> dict[str, object]:
        """Lines of a message that a stream sends itself in a second."""
        at = time.gmtime(time.time() + 1)
        return {
            "Nats_Schedule": time.strftime("@at %Y-%m-%dT%H:%M:%SZ", at),
            "Nats_Schedule_Target": f"{name}.done",
        }

    async def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.api(f"STREAM.INFO.{name}"))["state"]
        return found

    async def purge(self, name: str) -> None:
        last = (await self.state(name))["last_seq"]
        bodies: list[dict[str, object]] = [
            {},
            {"keep": 3},
            {"seq": max(1, last - 3)},
            {"filter": f"{name}.a"},
            {"filter": f"{name}.b", "keep": 1},
        ]
        await self.api(f"STREAM.PURGE.{name}", self.random.choice(bodies))

    async def batch(self, name: str) -> None:
        """An atomic one."""
        number, n = next(self.numbers), self.random.randint(1, 6)
        for at in range(1, n + 1):
            lines: dict[str, object] = {
                "Nats_Batch_Id": f"batch{number}",
                "Nats_Batch_Sequence": at,
            }
            lines |= {"Nats_Batch_Commit": 1} if at == n else {}
            await self.publish(name, self.random.choice("abc"), self.body(), **lines)
