"""Who of several servers answers what each of them may take for its own: one, whatever comes
first."""

import random
from collections import deque

import pytest

from jsserver.cluster.answers import Answer, Api, Asset, By, Meta, Seen, verdict
from jsserver.cluster.rights import KNOWN_MAX, Rights, Turn
from jsserver.cluster.succession import LATELY, Succession

KEY = "1 $JS.API.STREAM.INFO.S _INBOX.1"
A, B, C = "aaaaaaaa", "bbbbbbbb", "cccccccc"


class Servers:
    """That send each other questions and answers about one right; each way keeps its order."""

    def __init__(self, *ids):
        self.rights = {id: Rights(id) for id in ids}
        pairs = [(one, to) for one in ids for to in ids if one != to]
        self.ways: dict[tuple[str, str], deque[str]] = {pair: deque() for pair in pairs}
        self.acted = []

    def want(self, id, *, sure=False):
        rights = self.rights[id]
        others = self.rights.keys() - {id}
        asked = set() if sure and not rights.is_ceded(KEY) else others
        turn = rights.want(KEY, asked)
        self._turn(id, turn)
        if turn is Turn.WAIT:
            for other in sorted(others):
                self.ways[id, other].append("ask")

    def _turn(self, id, turn):
        if turn is Turn.ACT:
            self.acted.append(id)

    def deliver(self, one, to):
        word, rights = self.ways[one, to].popleft(), self.rights[to]
        if word == "ask":
            self.ways[to, one].append("cede" if rights.asked(KEY, one) else "keep")
        else:
            self._turn(to, rights.told(KEY, one, ceded=word == "cede"))

    def under_way(self):
        return [way for way, words in self.ways.items() if words]

    def settle(self):
        while found := self.under_way():
            self.deliver(*found[0])


def test_who_leads_for_long_asks_nobody():
    servers = Servers(A, B, C)
    servers.want(A, sure=True)
    assert servers.acted == [A] and not servers.under_way()


def test_what_a_former_leader_has_done_its_successor_leaves():
    servers = Servers(A, B, C)
    servers.want(A, sure=True)
    servers.want(B)
    servers.settle()
    assert servers.acted == [A]


def test_what_a_former_leader_has_left_its_successor_does():
    servers = Servers(A, B, C)
    servers.want(B)
    servers.settle()
    assert servers.acted == [B]
    servers.want(A, sure=True)  # it has ceded that, and asks
    servers.settle()
    assert servers.acted == [B]


def test_of_two_that_ask_at_the_same_time_one_acts():
    servers = Servers(A, B, C)
    servers.want(A)
    servers.want(B)
    servers.settle()
    assert servers.acted == [B]


def test_what_a_server_gives_up_another_one_does():
    servers = Servers(A, B, C)
    servers.want(B)
    servers.settle()
    servers.rights[B].give_up(KEY)  # it has lost the lead before it could answer
    servers.want(A)
    servers.settle()
    assert servers.acted == [B, A]


def test_a_server_that_is_gone_is_not_waited_for():
    rights = Rights(A)
    assert rights.want(KEY, {B, C}) is Turn.WAIT
    assert rights.want(KEY, {B, C}) is Turn.LEAVE  # it is about to
    assert rights.told(KEY, B, ceded=True) is Turn.WAIT
    assert rights.missing(KEY) == {C}
    assert rights.only(KEY, {C}) is Turn.WAIT
    assert rights.only(KEY, set()) is Turn.ACT
    assert rights.has(KEY) and rights.only(KEY, set()) is Turn.LEAVE
    assert rights.told(KEY, C, ceded=True) is Turn.LEAVE
    assert not rights.asked(KEY, C)


def test_rights_are_remembered_up_to_a_bound():
    rights = Rights(A)
    for number in range(KNOWN_MAX + 1):
        assert rights.want(str(number), set()) is Turn.ACT
    assert not rights.has("0") and rights.has("1")


@pytest.mark.parametrize("count", [2, 3, 5])
def test_exactly_one_acts_in_any_order(count):
    ids = "abcde"[:count]
    for seed in range(1500):
        chance, servers = random.Random(seed), Servers(*ids)
        wanting = [chance.choice(ids) for _ in range(chance.randint(1, 2 * count))]
        sure = chance.choice([None, *ids])  # led for long: others that want it lead after
        while wanting or servers.under_way():
            ways = servers.under_way()
            if wanting and (not ways or chance.random() < 0.3):
                one = wanting.pop()
                servers.want(one, sure=one == sure)
            else:
                servers.deliver(*chance.choice(ways))
        assert len(servers.acted) == 1, (seed, servers.acted)


# ---- who has to ask


def test_a_server_that_leads_since_shortly_asks():
    stream = Api("STREAM.INFO", ("S",), By.STREAM)
    of_meta = Api("STREAM.CREATE", ("S",), By.META)
    for meta, asset, sure in ((Meta.LEADS, Asset.LEADS, True), (Meta.BEGAN, Asset.BEGAN, False)):
        assert verdict(of_meta, Seen(meta)) == (Answer.META, 0.0, sure)
        assert verdict(stream, Seen(meta, asset)) == (Answer.ASSET, 0.0, sure)
        late = verdict(stream, Seen(meta, Asset.OFFLINE))
        assert late.answer is Answer.OFFLINE and late.delay and not late.sure
    late = verdict(of_meta, Seen(Meta.LEADERLESS))
    assert late.answer is Answer.UNAVAILABLE and late.delay and not late.sure


def test_a_lead_is_settled_after_a_while():
    succession = Succession(A)
    succession.look(B, leads=False, now=1.0)
    assert succession.last == B
    succession.look(A, leads=False, now=2.0)  # it has not yet all that was agreed on
    assert not succession.is_settled(100.0)
    succession.look(A, leads=True, now=3.0)
    succession.look(A, leads=True, now=4.0)
    assert not succession.is_settled(3.0 + LATELY - 0.1)
    assert succession.is_settled(3.0 + LATELY) and succession.last == A
    succession.look(B, leads=False, now=20.0)
    succession.look(A, leads=True, now=21.0)
    assert not succession.is_settled(22.0)
