"""Random subscriptions at servers that are linked, and what each of them must get."""

from random import Random
from typing import Any

from nats.aio.client import Client

from tests.client.aio import until
from tests.client.mesh import meet
from tests.client.proxy import Proxy

CHECK_EVERY = 20
"""Steps from one check to the next."""
SUBJECTS = ("a", "a.b", "a.*", "*.b", "a.>", ">", "c.d.e")
PUBLISHED = ("a", "a.b", "a.c", "c.b", "c.d.e", "none.at.all.x")
QUEUES = ("", "", "q", "r")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subscription to the pattern gets messages on the subject."""
    wanted, found = pattern.split("."), subject.split(".")
    for at, token in enumerate(wanted):
        if token == ">":
            return len(found) > at
        if at >= len(found) or token not in ("*", found[at]):
            return False
    return len(wanted) == len(found)


class Sub:
    """A subscription of a member's client, and what it got."""

    def __init__(self, member: int, subject: str, queue: str) -> None:
        self.member, self.subject, self.queue = member, subject, queue
        self.got: list[bytes] = []
        self.subscription: Any = None

    async def take(self, message: Any) -> None:
        if not message.subject.startswith(("probe.", "_INBOX.")):
            self.got.append(message.data)


class World:
    """Subscriptions of clients of all members, and what they must get."""

    def __init__(self, members: list[Client]) -> None:
        self.members = members
        self.subs: list[Sub] = []
        self.published = 0

    async def step(self, random: Random) -> None:
        """One subscription more or less."""
        if self.subs and random.random() < 0.45:
            gone = self.subs.pop(random.randrange(len(self.subs)))
            await gone.subscription.unsubscribe()
        else:
            member = random.randrange(len(self.members))
            sub = Sub(member, random.choice(SUBJECTS), random.choice(QUEUES))
            client = self.members[member]
            sub.subscription = await client.subscribe(sub.subject, sub.queue, cb=sub.take)
            self.subs.append(sub)

    async def check(self) -> None:
        """A message on each subject from each member reaches every plain subscription once, and
        one member of each queue group."""
        for client in self.members:
            await client.flush()
        await meet(self.members)
        for sub in self.subs:
            sub.got.clear()
        sent: dict[bytes, str] = {}
        for client in self.members:
            for subject in PUBLISHED:
                self.published += 1
                data = b"%d" % self.published
                sent[data] = subject
                await client.publish(subject, data)
            await client.flush()
        plain = [sub for sub in self.subs if not sub.queue]
        queues = {sub.queue for sub in self.subs if sub.queue}

        def expected(*patterns: str) -> list[bytes]:
            return sorted(d for d, subj in sent.items() if any(matches(p, subj) for p in patterns))

        # A queue group is one of its name, whatever its members subscribe to.
        groups = {queue: [s for s in self.subs if s.queue == queue] for queue in queues}
        of_groups = {queue: expected(*(s.subject for s in of)) for queue, of in groups.items()}
        wanted = sum(len(expected(sub.subject)) for sub in plain)
        wanted += sum(map(len, of_groups.values()))
        await until(lambda: sum(len(sub.got) for sub in self.subs) >= wanted)
        await meet(self.members)  # whatever was sent twice has come by now
        for sub in plain:
            assert sorted(sub.got) == expected(sub.subject), (sub.member, sub.subject)
        for queue, of in groups.items():
            assert sorted(data for sub in of for data in sub.got) == of_groups[queue], queue

    async def play(self, random: Random, steps: int) -> None:
        """So many steps, with a check now and then."""
        for step in range(1, steps + 1):
            await self.step(random)
            if step % CHECK_EVERY == 0:
                await self.check()

    async def play_over_cuts(self, random: Random, proxy: Proxy, cuts: int) -> None:
        """Steps before and while connections through the proxy are cut, and a check after each
        cut."""
        for _ in range(cuts):
            for _ in range(10):
                await self.step(random)
            proxy.cut()
            for _ in range(3):
                await self.step(random)
            await self.check()
