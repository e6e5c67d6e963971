"""What both servers make of their own limits of storage: which publish is refused, and the log."""

import json
import re

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LIMITS = "jetstream { max_mem: 10000, max_file: 10000 }\n"
KINDS = ("file", "memory")


def filled(server: Server, storage: str) -> list[object]:
    """The answers to messages beyond the limit, also after one and all of them are removed."""
    seen: list[object] = []
    with RawApp(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "storage": storage})
        for ask in (None, "STREAM.MSG.DELETE.S", "STREAM.PURGE.S"):
            if ask is not None:
                client.api(ask, {"seq": 2} if "DELETE" in ask else None)
            for _ in range(13):
                seen.append(json.loads(client.request("S", b"x" * 962).payload))
        state = client.api("STREAM.INFO.S")["state"]
        assert isinstance(state, dict)
        seen.append([state["messages"], state["bytes"]])
    server.wait_log("limits exceeded")
    lines = [x for x in server.log().splitlines() if "limits exceeded" in x]
    return [*seen, [re.sub(r"^\S+ \S+ \S+ ", "", x) for x in lines]]


@pytest.mark.parametrize("storage", KINDS)
def test_storage_of_the_server_is_full(servers: Servers, storage: str) -> None:
    """The message that passes the limit is the last one; the log says so once, and ours which
    option limits it."""
    server = servers.under_test(config=LIMITS, jetstream=True)
    ours = filled(server, storage)
    assert ours == filled(servers.peer(config=LIMITS, jetstream=True), storage)
    assert ours[-1] == [f"[ERR] JetStream {storage} resource limits exceeded for server"]
    option = "max_file_store" if storage == "file" else "max_memory_store"
    told = re.findall(r"\[WRN\] (.*\(10023\).*)", server.log())
    used = "10.67 KB" if storage == "file" else "10.52 KB"
    assert told == [f"Publishes are refused (10023): {option}: {used} used of 9.77 KB"]


@pytest.mark.parametrize("storage", KINDS)
def test_a_creation_without_room_names_the_option(servers: Servers, storage: str) -> None:
    server = servers.under_test(config=LIMITS, jetstream=True)
    with RawApp(server.port) as client:
        for name, code in (("A", 0), ("B", 10047 if storage == "file" else 10028)):
            config = {"name": name, "storage": storage, "max_bytes": 6000}
            answer = client.api(f"STREAM.CREATE.{name}", config)
            assert answer.get("error", {}).get("err_code", 0) == code
    option = "max_file_store" if storage == "file" else "max_memory_store"
    line = (
        f"JetStream request '$G > $JS.API.STREAM.CREATE.B' is refused ({code}): {option}: 5.86 KB "
        "of 9.77 KB are reserved for other streams, this one asks for 5.86 KB"
    )
    server.wait_log(line)


def refused(server: Server, **config: object) -> list[object]:
    """The errors of creations that ask for more than there is and are wrong besides."""
    seen: list[object] = []
    with RawApp(server.port) as client:
        client.api("STREAM.CREATE.F", {"name": "F", "max_bytes": 6000})
        client.api("STREAM.CREATE.M", {"name": "M", "max_bytes": 6000, "storage": "memory"})
        for wanted in (5000, 20000, 4000, (1 << 63) - 1, 0, -1):
            for wrong in ({}, {"max_age": 5}, {"num_replicas": 9}, {"subjects": ["F"]}):
                body = {"name": "S", "max_bytes": wanted, **config, **wrong}
                answer = client.api("STREAM.CREATE.S", body)
                seen.append(answer.get("error"))
                client.api("STREAM.DELETE.S")
    return seen


@pytest.mark.parametrize("config", [{"storage": "file"}, {"storage": "memory"}, {}])
def test_which_error_of_several_is_told(servers: Servers, config: dict[str, object]) -> None:
    """Room comes first, but not where the kind of storage is left to the default."""
    start = (servers.under_test, servers.peer)
    ours, theirs = (refused(one(config=LIMITS, jetstream=True), **config) for one in start)
    assert ours == theirs
    assert {error["err_code"] for error in ours if isinstance(error, dict)} >= {10052, 10065}
