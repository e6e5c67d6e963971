"""Random accounts that share: both servers deliver what the plain model says, to nobody else.

`SHARING_SEED` and `SHARING_ROUNDS` repeat a run, or make it longer.
"""

import os
import random
from collections import Counter

import pytest

from tests.client.raw import Frame
from tests.client.sharing import Member
from tests.client.sharing_model import REPLIES, World, subjects, world
from tests.servers import Server, ServerFailed, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

SEED = int(os.environ.get("SHARING_SEED", str(random.SystemRandom().randrange(1 << 32))))
ROUNDS = int(os.environ.get("SHARING_ROUNDS", "4"))
PUBLISHED = 60


class Meeting:
    """All users of a world, connected to one server."""

    def __init__(self, server: Server, made: World) -> None:
        self.made = made
        self.members: dict[str, Member] = {}
        for user in made.users:
            member = Member(server, user.account, user=user.name)
            self.members[user.name] = member
            for sid, pattern in enumerate(user.patterns):
                member.send(f"SUB {pattern} {sid}\r\n".encode())
            member.send(f"SUB {REPLIES} r\r\n".encode())
            member.sync()

    def close(self) -> None:
        for member in self.members.values():
            member.close()

    def heard(self, user: str, subject: str, text: bytes) -> Counter[tuple[str, str, str]]:
        """Who hears this, and no more than this, when the user publishes it."""
        self.members[user].publish(subject, text)
        found: Counter[tuple[str, str, str]] = Counter()
        order = [self.members[user], *(m for n, m in self.members.items() if n != user)]
        frames = {id(member): member.sync() for member in order}
        for name, member in self.members.items():
            for frame in frames[id(member)]:
                if frame.verb in ("MSG", "HMSG") and frame.sid != "r":
                    assert frame.payload == text, (name, frame)
                    found[name, frame.sid, frame.subject] += 1
        return found

    def answered(self, user: str, subject: str) -> None:
        """Every answer comes back to whoever waits in the account, and only there."""
        self.members[user].publish(subject, b"?", reply=REPLIES)
        own = self.members[user].sync()
        asked = 0
        account = next(u.account for u in self.made.users if u.name == user)
        heard = {name: member.sync() for name, member in self.members.items()}
        heard[user] += own
        for name, frames in heard.items():
            for frame in frames:
                if frame.reply.startswith("_R_.") and self._may_answer(name):
                    asked += 1
                    self.members[name].publish(frame.reply, b"!")
        came: dict[str, list[Frame]] = {name: [] for name in self.members}
        for _ in range(2):  # whoever answered last has been heard by then
            for name, member in self.members.items():
                came[name] += member.sync()
        answers = waiting = 0
        for other in self.made.users:
            got = [f for f in came[other.name] if f.sid == "r"]
            assert not got or other.account == account, (user, subject, other.name)
            answers += len(got)
            waiting += other.account == account
        assert answers == asked * waiting, (user, subject)

    def _may_answer(self, name: str) -> bool:
        (user,) = (u for u in self.made.users if u.name == name)
        return user.may_publish("_R_.x.y")


def differences(
    server: Server, made: World, spoken: list[tuple[str, str]]
) -> list[tuple[object, ...]]:
    """Where the server and the model differ."""
    found: list[tuple[object, ...]] = []
    users = {user.name: user for user in made.users}
    meeting = Meeting(server, made)
    try:
        for number, (user, subject) in enumerate(spoken):
            want = made.hears(users[user], subject)
            have = meeting.heard(user, subject, f"{user} {number}".encode())
            if have != want:
                found.append((user, subject, dict(have - want), dict(want - have)))
        for user, subject in spoken[:20]:
            meeting.answered(user, subject)
    finally:
        meeting.close()
    return found


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_any_accounts(servers: Servers) -> None:
    rng = random.Random(SEED)
    peers = heard = 0
    for number in range(ROUNDS):
        made = world(rng)
        spoken = [(rng.choice(made.users).name, s) for s in subjects(rng, PUBLISHED)]
        users = {user.name: user for user in made.users}
        heard += sum(sum(made.hears(users[name], s).values()) for name, s in spoken)
        told = f"seed {SEED}, round {number}:\n{made.config()}"
        ours = servers.under_test(config=made.config())
        assert differences(ours, made, spoken) == [], told
        ours.stop()
        try:
            peer = servers.peer(config=made.config())
        except ServerFailed:
            continue  # in another order, imports may look like a cycle
        peers += 1
        assert differences(peer, made, spoken) == [], f"the model is wrong: {told}"
        peer.stop()
    assert peers > 0
    assert heard > 0
