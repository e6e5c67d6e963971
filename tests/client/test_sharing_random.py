"""Random accounts that share: both servers deliver what the plain model says, to nobody else.

`SHARING_SEED` and `SHARING_ROUNDS` repeat a run, or make it longer.
"""

import os
import random
from collections import Counter, defaultdict

import pytest

from tests.client.raw import Frame
from tests.client.sharing import Member
from tests.client.sharing_model import REPLIES, Delivery, User, World, config, subjects, world
from tests.seeds import seed_of
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

SEED = seed_of("SHARING_SEED")
ROUNDS = int(os.environ.get("SHARING_ROUNDS", "24"))
TOGETHER = 50
"""Worlds of one server."""
PUBLISHED, ASKED = 60, 20

Spoken = list[tuple[User, str]]


class Meeting:
    """All users of a world, connected to one server."""

    def __init__(self, server: Server, made: World) -> None:
        self.made = made
        self.members: dict[str, Member] = {}
        for user in made.users:
            member = Member(server, user.account, user=user.name)
            self.members[user.name] = member
            for sid, words in enumerate(user.patterns):
                member.send(f"SUB {words} {sid}\r\n".encode())
            member.send(f"SUB {REPLIES} r\r\n".encode())
        self._settle()

    def close(self) -> None:
        for member in self.members.values():
            member.close()

    def _settle(self) -> list[tuple[str, Frame]]:
        """What everybody hears of what all have said until now."""
        frames = []
        for _ in range(2):  # the last speaker has been heard by then
            for name, member in self.members.items():
                frames += [(name, frame) for frame in member.taken() if frame.verb != "PING"]
        return frames

    def heard(self, spoken: Spoken) -> list[Counter[Delivery]]:
        """Who hears each of these, and nothing else."""
        for number, (user, subject) in enumerate(spoken):
            self.members[user.name].publish(subject, b"%d" % number)
        found: list[Counter[Delivery]] = [Counter() for _ in spoken]
        for name, frame in self._settle():
            if frame.verb in ("MSG", "HMSG") and frame.sid != "r":
                found[int(frame.payload)][name, frame.sid, frame.subject] += 1
        return found

    def answered(self, spoken: Spoken) -> None:
        """Every answer comes back to the clients that wait in the account, and only there."""
        for number, (user, subject) in enumerate(spoken):
            self.members[user.name].publish(subject, b"%d" % number, reply=REPLIES)
        asked: Counter[int] = Counter()
        may_answer = {user.name: user.may_publish("_R_.x.y") for user in self.made.users}
        for name, frame in self._settle():
            if frame.reply.startswith("_R_.") and may_answer[name]:
                asked[int(frame.payload)] += 1
                self.members[name].publish(frame.reply, frame.payload)
        came: dict[int, Counter[str]] = defaultdict(Counter)
        accounts = {user.name: user.account for user in self.made.users}
        for name, frame in self._settle():
            if frame.sid == "r" and frame.verb in ("MSG", "HMSG"):
                came[int(frame.payload)][accounts[name]] += 1
        sizes = Counter(accounts.values())
        for number, (user, subject) in enumerate(spoken):
            want = asked[number] * sizes[user.account]
            got = {account: count for account, count in came[number].items() if count}
            assert got == ({user.account: want} if want else {}), (user.name, subject)


def differences(server: Server, made: World, spoken: Spoken) -> list[tuple[object, ...]]:
    """Where the server and the model differ."""
    meeting = Meeting(server, made)
    try:
        found = meeting.heard(spoken)
        meeting.answered(spoken[:ASKED])
    finally:
        meeting.close()
    wanted = [made.hears(user, subject) for user, subject in spoken]
    return [
        (user.name, subject, have, want)
        for (user, subject), have, want in zip(spoken, found, wanted, strict=True)
        if not want.fits(have)
    ]


@pytest.mark.timeout(60 + 2 * ROUNDS)
def test_any_accounts(servers: Servers) -> None:
    rng = random.Random(SEED)
    seen: Counter[str] = Counter()
    for begin in range(0, ROUNDS, TOGETHER):
        worlds = []
        for number in range(begin, min(begin + TOGETHER, ROUNDS)):
            made = world(rng, f"_{number}")
            spoken = [(rng.choice(made.users), s) for s in subjects(rng, PUBLISHED)]
            worlds.append((made, spoken))
            for user, subject in spoken:
                heard = made.hears(user, subject)
                seen["heard"] += heard.count
                seen["by one of several"] += sum(len(group) > 1 for group in heard.groups)
                seen["through two services"] += heard.hops > 1
        ours = servers.under_test(config=config(made for made, _ in worlds))
        # nats-server reads accounts in any order, in which imports may look like a cycle.
        both = [(made, spoken) for made, spoken in worlds if made.in_any_order]
        seen["both"] += len(both)
        for made, spoken in worlds:
            told = f"seed {SEED}, world {made.tag}:\n{made.config()}"
            assert differences(ours, made, spoken) == [], told
        ours.stop()
        if not both:
            continue
        peer = servers.peer(config=config(made for made, _ in both))
        for made, spoken in both:
            made.of_peer = True
            told = f"the model is wrong: seed {SEED}, world {made.tag}:\n{made.config()}"
            assert differences(peer, made, spoken) == [], told
        peer.stop()
    assert seen["both"] > 0 and seen["heard"] > 0
    # In few rounds there may be none of what is rare.
    assert ROUNDS < 200 or (seen["by one of several"] and seen["through two services"]), seen
