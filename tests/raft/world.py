"""Groups on a simulated network, disk and clock, from a seed; checked for what Raft promises.

The promises (Ongaro, Consensus, 3.2): election safety, log matching, leader completeness, state
machine safety.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from tests.cext.raft import append_entry, write_peer_state
from tests.raft.member import NORMAL, Member
from tests.raft.promises import Broken, Promises, check_members

MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND
STEP = 10 * MILLISECOND
PEACE = 50
"""Seconds at the end of a history in which all are well; a leader stays in the last third."""
LEADS_ALONE = 31 * SECOND
"""A leader that hears nobody for longer leads no more: it looks every 10 s for 10 s of silence, and
waits for 10 s more after it added a member."""


class World:
    """So many members, a network that delays, loses, doubles and cuts, and a client that proposes.

    Each seed is of one kind: who may be added and removed, whether members start knowing nobody.
    """

    def __init__(self, seed: int, n: int) -> None:
        self.random = random.Random(seed)
        self.n = n
        self.now = 0
        self.loss = 0.005
        self.peace = False
        self.order = itertools.count()
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        names = [b"member%02d" % i for i in range(n)]
        alone = seed % 5 == 4
        self.managed = seed % 5 in (1, 3)
        self.moving = self.managed
        self.odd = seed % 3 == 0
        self.deaf = seed % 2 == 0
        self.slow = seed % 4 == 1
        self.storm = 6 if seed // 2 % 2 else 1
        self.calm = False
        self.weather_until = 0
        self.members = {
            name: Member(self, name, write_peer_state(n, [name] if alone else names))
            for name in names
        }
        if self.moving:
            for name in (b"spare_00", b"spare_01"):
                self.members[name] = Member(self, name, write_peer_state(n, names))
        self.links: dict[tuple[bytes, bytes], int] = {}
        self.cut: set[tuple[bytes, bytes]] = set()
        self.alone: dict[bytes, int] = {}
        self.promises = Promises()
        self.leaders: dict[int, bytes] = {}
        self.applied: dict[int, str] = {}
        self.committed: dict[int, int] = {}
        """The term in which each index was applied first."""
        self.proposed = 0
        self.kept: set[bytes] = set()
        self.heard: dict[bytes, int] = {}
        self.confirmed = 0
        """How often a leader was told that it led."""

    def at(self, when: int, do: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), do))

    def sync_time(self) -> int:
        if not self.peace and self.random.random() < 0.002:
            return self.random.randrange(5 * SECOND)
        return self.random.randrange(100_000, 20 * MILLISECOND)

    def apply_time(self) -> int:
        """How long what is committed waits to be applied."""
        if not self.slow or self.peace or self.random.random() >= 0.02:
            return 0
        return self.random.randrange(3 * SECOND)

    # ---- the network

    def send(self, sender: Member, a: dict[str, Any]) -> None:
        self.promises.said(sender, a)
        catch_up = b"C.%d.%d." % (sender.life, a["index"]) + sender.name
        votes, responses = b"V." + sender.name, b"R." + sender.name
        round_ = b"N.%d.%d." % (sender.life, a["index"]) + sender.name
        reply = {
            "": b"",
            "votes": votes,
            "responses": responses,
            "catch up": catch_up,
            "round": round_,
        }[a["reply"]]
        if a["what"] == "reply":
            self.deliver(sender, a["to"], reply, a["body"])
            return
        prefix = b"Q." if a["what"] == "vote request" else b"A."
        for name in self.members:
            if name != sender.name:
                self.deliver(sender, prefix + name, reply, a["body"])

    def deliver(self, sender: Member, to: bytes, reply: bytes, body: bytes) -> None:
        """What one server sends another arrives in its order, unless `odd` says otherwise."""
        name = to[-8:]
        link = (sender.name, name)
        if self.random.random() < self.loss or link in self.cut or self.is_alone(sender.name, name):
            return
        when = self.now + self.random.randrange(50_000, 5 * MILLISECOND)
        if not self.peace and self.random.random() < 0.001:
            when += self.random.randrange(0, 3 * SECOND)
        when = max(when, self.links.get(link, 0) + 1)
        self.links[link] = when
        self.at(when, lambda: self.arrive(sender.name, name, to, reply, body))
        if self.odd and not self.peace and self.random.random() < 0.02:  # once more, late
            late = when + self.random.randrange(0, 20 * SECOND)
            self.at(late, lambda: self.arrive(sender.name, name, to, reply, body))

        quiet = self.peace or self.calm or self.alone.get(sender.name, 0) > self.now
        if not quiet and self.random.random() < 0.0005 * self.storm:  # right after it spoke
            self.blink(sender, self.random.randrange(10 * MILLISECOND))

    def is_alone(self, sender: bytes, name: bytes) -> bool:
        """Nobody is heard by a member that is alone; one that is so wholly is not heard, either."""
        until = self.alone.get(name, 0)
        return until > self.now or (self.deaf and self.alone.get(sender, 0) > self.now)

    def arrive(self, sender: bytes, name: bytes, to: bytes, reply: bytes, body: bytes) -> None:
        member = self.members[name]
        if member.group is None:
            return
        member.group.tick(self.now)
        match to[:1]:
            case b"Q":
                member.call("vote_request", body, reply)
            case b"A":
                member.call("append", body, reply, 0)
            case b"V":
                member.call("vote_response", body)
            case b"R":
                self.heard[name] = self.now
                member.call("response", body, reply)
            case b"N":
                self.heard[name] = self.now
                _, life, number, _ = to.split(b".", 3)
                if int(life) == member.life:
                    member.heard(int(number), body)
                    member.call("response", body, reply, int(number))
            case b"C":
                _, life, inbox, _ = to.split(b".", 3)
                if int(life) == member.life:
                    member.call("append", body, reply, int(inbox))

    # ---- the promises

    def look(self, member: Member) -> None:
        assert member.group is not None
        role = member.group.role()
        if role not in ("elected", "leader"):
            member.leads = False
            return
        s = member.group.state()
        if not member.leads or self.leaders.get(s["term"]) != member.name:
            before = self.leaders.setdefault(s["term"], member.name)
            if before != member.name:
                raise Broken(f"term {s['term']} has two leaders: {before!r}, {member.name!r}")
            self.check_complete(member, s)
            self.heard[member.name] = self.now
        if s["quorum"] > 1 and self.now - self.heard[member.name] > LEADS_ALONE:
            raise Broken(f"{member.name!r} leads and hears nobody")
        member.leads = True
        self.check_confirmed(member, s)

    def check_confirmed(self, member: Member, s: dict[str, Any]) -> None:
        """What a leader is told of its lead was so when it asked."""
        for asked in [one for one in member.asked if one.round <= s["confirmed"]]:
            member.asked.remove(asked)
            if asked.term == s["term"]:
                self.confirmed += 1
                self.promises.led(member, asked.round)
                if asked.last_term > s["term"]:
                    raise Broken(
                        f"{member.name!r} leads by confirmation in term {s['term']}, though one led"
                        f" in term {asked.last_term} when it asked"
                    )
                if asked.applied > s["commit"]:
                    raise Broken(f"{member.name!r} is confirmed, and lacks what was committed")

    def check_complete(self, leader: Member, s: dict[str, Any]) -> None:
        """A leader has all that was committed in earlier terms. In later ones another may have
        committed more: the last vote for this leader may have been on its way for long."""
        last = max((i for i, term in self.committed.items() if term < s["term"]), default=0)
        if s["last"] < last:
            raise Broken(f"{leader.name!r} leads with {s['last']} entries of {last}")
        for index in range(leader.applied + 1, last + 1):
            m = append_entry(leader.log[index])
            assert m is not None
            if repr((m["term"], m["entries"])) != self.applied[index]:
                raise Broken(f"{leader.name!r} leads with another entry at {index}")

    def check_applied(self, member: Member, index: int, m: dict[str, Any]) -> None:
        what = repr((m["term"], m["entries"]))
        if self.applied.setdefault(index, what) != what:
            raise Broken(f"{member.name!r} applies another entry at {index}")
        if index not in self.committed:
            assert member.group is not None
            self.committed[index] = member.group.state()["term"]
        self.kept.update(data for kind, data in m["entries"] if kind == NORMAL)

    def check_state(self, member: Member) -> None:
        seen = [data for _, data in member.state]
        if len(seen) != len(set(seen)):
            raise Broken(f"{member.name!r} was sent a state with doubles")

    def check_logs(self) -> None:
        """Two logs that have an entry of the same index and term are the same up to there."""
        for member in self.members.values():
            if member.group is not None:
                check_members(member)
        for a, b in itertools.combinations(self.members.values(), 2):
            same = False
            for index in sorted(a.log.keys() & b.log.keys(), reverse=True)[:100]:
                x, y = append_entry(a.log[index]), append_entry(b.log[index])
                assert x is not None and y is not None
                if (x["term"], x["entries"]) == (y["term"], y["entries"]):
                    same = True
                elif same or x["term"] == y["term"]:
                    raise Broken(
                        f"logs of {a.name!r} and {b.name!r} part at {index} and meet again"
                    )

    # ---- what happens

    def run(self, seconds: float, *, disturb: bool) -> None:
        end = self.now + int(seconds * SECOND)
        beat = self.now + STEP
        while self.now < end:
            if self.events and self.events[0][0] <= beat:
                self.now, _, do = heapq.heappop(self.events)
                do()
                continue
            self.now = beat
            beat += STEP
            for member in self.members.values():
                if member.group is not None and member.group.deadline() <= self.now:
                    member.call("tick", self.now)
                if member.group is not None and member.group.seeks():
                    member.call("seen", self.now, *self.around(member))
            self.propose()
            if disturb:
                self.disturb()

    def around(self, member: Member) -> tuple[int, bool]:
        """How many others a member sees, and whether it sees a leader. In storms what it sees may
        be wrong: it may cost time, and nothing else."""
        links = [(one, (one.name, member.name)) for one in self.members.values()]
        seen = [one for one, link in links if one.group is not None and link not in self.cut]
        others = [one for one in seen if one is not member]
        if not self.peace and not self.calm and self.now // STEP % 7 == 0:
            return len(self.members) - 1, False
        return len(others), any(one.leads for one in others)

    def leader(self) -> Member | None:
        for member in self.members.values():
            if member.group is not None and member.group.state()["role"] == "leader":
                return member
        return None

    def propose(self) -> None:
        for member in self.members.values():
            if not member.leads or member.group is None:
                continue
            s = member.group.state()
            if s["role"] == "leader" and self.random.random() < 0.4:
                for _ in range(self.random.randrange(3)):
                    self.proposed += 1
                    member.call("propose", s["term"], b"p%d" % self.proposed)
            if s["role"] == "leader" and self.random.random() < 0.1:
                member.ask(max(self.leaders), max(self.applied, default=0))
            member.call("turn_end")

    def disturb(self) -> None:
        """Storms and calms in turn: in the one something happens all the time, in the other a
        leader has time to get something done."""
        rng = self.random
        if self.now >= self.weather_until:
            self.calm = not self.calm
            self.weather_until = self.now + rng.randrange((8 if self.calm else 4) * SECOND)
        weather = 0.1 if self.calm else self.storm
        chances: list[tuple[float, Callable[[Member], None]]] = [
            (0.0015, self.stop),
            (0.0004, self.hurt),
            (0.003, self.cut_link),
            (0.005, Member.snapshot),
            (0.0005, lambda member: member.call("hand_over")),
            (0.0004, self.fill),
            (0.0005, lambda _: self.cut_all_power()),
            (0.002, lambda _: self.break_routes()),
            (0.0008 / weather, lambda _: self.leave_alone()),
            (0.0005, lambda _: self.cut_most_power()),
            (0.002 if self.moving else 0.0, self.move),
        ]
        for chance, do in chances:
            if rng.random() < chance * weather:
                member = self.members[rng.choice(list(self.members))]
                if self.alone.get(member.name, 0) < self.now or rng.random() < 0.02:
                    do(member)
        if rng.random() < 0.01 * self.storm:
            self.cut.clear()
        if rng.random() < 0.01:
            self.check_logs()

    def start_later(self, member: Member, within: int) -> None:
        """A server that is down comes back."""

        def start() -> None:
            if member.group is None:
                member.start()

        self.at(self.now + self.random.randrange(within), start)

    def stop(self, member: Member) -> None:
        if member.group is None:
            return
        self.start_later(member, 4 * SECOND)
        if self.random.random() < 0.5:
            member.kill()
        else:
            member.cut_power()

    def cut_all_power(self) -> None:
        for member in self.members.values():
            if member.group is not None and self.alone.get(member.name, 0) < self.now:
                member.cut_power()
                member.start()

    def leave_alone(self) -> None:
        """Nobody reaches the leader for longer than it leads alone."""
        leader = self.leader()
        if leader is not None and not any(until > self.now for until in self.alone.values()):
            self.alone[leader.name] = self.now + self.random.randrange(5 * SECOND, 50 * SECOND)
            if self.moving:  # what it changes of the members now, nobody hears of
                self.move(self.members[self.random.choice(list(self.members))])

    def cut_most_power(self) -> None:
        """All but one lose their power at once, and that one is not heard for a while."""
        if any(until > self.now for until in self.alone.values()):
            return
        stays = self.random.choice(list(self.members))
        self.alone[stays] = self.now + self.random.randrange(15 * SECOND)
        for name, member in self.members.items():
            if name != stays and member.group is not None:
                member.cut_power()
                member.start()

    def break_routes(self) -> None:
        """All hear that the leader is gone, true or not: several campaign at once."""
        for member in self.members.values():
            if member.group is not None:
                leader = member.group.state()["leader"]
                member.call("gone", leader)

    def blink(self, member: Member, delay: int) -> None:
        """A member loses its power in the middle of a commit round, and is back soon."""

        def cut() -> None:
            member.cut_power()
            self.start_later(member, 300 * MILLISECOND)

        member.later(delay, cut)

    def hurt(self, member: Member) -> None:
        """A disk is damaged, as long as those that are hurt are a minority of a whole group."""
        disks = [m.disk for m in self.members.values()]
        lost = sum(disk.forgets() for disk in disks)
        whole = all(disk.knows() >= self.n and disk.has_log() for disk in disks)
        if whole and not self.moving and lost < (self.n - 1) // 2:
            member.stop()
            self.promises.forget(member.name)
            member.disk.damage(self.random)
            member.start()

    def cut_link(self, member: Member) -> None:
        other = self.random.choice(list(self.members))
        if self.random.random() < 0.3:
            self.cut.update((member.name, name) for name in self.members)
        self.cut.add((member.name, other))

    def fill(self, member: Member) -> None:
        if any(m.disk.full for m in self.members.values()):
            return
        member.disk.full = True

        def empty() -> None:
            member.disk.full = False
            if member.group is not None and member.group.role() == "stopped":
                member.kill()
            if member.group is None:
                member.start()

        self.at(self.now + self.random.randrange(4 * SECOND), empty)

    def move(self, member: Member) -> None:
        """Adds a server to the group or removes one, while three stay."""
        leader = self.leader()
        if leader is None or leader.group is None:
            return
        known = [p[0] for p in leader.group.peers()]
        if member.name not in known:
            if member.group is None or member.group.role() == "stopped":
                member.disk.begin_again()
                member.start()
            leader.call("add_peer", member.name)
        elif len(known) > 3:
            leader.call("remove_peer", member.name)
        if self.random.random() < 0.3:  # and another at once, which is too many
            leader.call("remove_peer", known[0])

    def settle(self) -> None:
        """Everybody is well and hears everybody: all have the same, and all of it."""
        self.cut.clear()
        self.alone.clear()
        self.loss = 0.0
        self.peace = True
        for member in self.members.values():
            member.disk.full = False
            if member.group is None or member.group.role() == "stopped":
                member.start()
        self.run(PEACE * 2 / 3, disturb=False)
        first = self.leader()
        terms = max(self.leaders, default=0)
        self.run(PEACE / 3, disturb=False)
        leader = self.leader()
        if leader is None or leader.group is None:
            raise Broken(f"nobody leads in peace: {self.roles()}")
        if leader is not first or max(self.leaders) != terms:
            raise Broken(f"a leader does not stay in peace: {self.roles()}")
        self.check_logs()
        states = [m.state for m in self.members.values() if m.name in self.voters(leader)]
        for member in self.members.values():
            if member.name in self.voters(leader) and leader.applied - member.applied > 100:
                raise Broken(f"{member.name!r} is left behind: {self.roles()}")
            if member.disk.forgets() and member.name in self.voters(leader):
                raise Broken(f"{member.name!r} is still lost: {self.roles()}")
        short = min(states, key=len)
        if any(state[: len(short)] != short for state in states):
            raise Broken("states differ")
        gone = self.kept - {data for _, data in leader.state}
        if gone:
            raise Broken(f"lost: {sorted(gone)[:5]}")

    def voters(self, leader: Member) -> list[bytes]:
        assert leader.group is not None
        return [p[0] for p in leader.group.peers()]

    def roles(self) -> list[Any]:
        return [(m.name, m.applied, m.group and m.group.state()) for m in self.members.values()]


def history(seed: int, n: int, seconds: float = 60) -> World:
    """A run from a seed, with its promises checked all the way; Broken where one does not hold."""
    world = World(seed, n)
    for name, member in world.members.items():
        if name.startswith(b"member"):
            member.start()
    world.run(seconds, disturb=True)
    world.settle()
    return world
