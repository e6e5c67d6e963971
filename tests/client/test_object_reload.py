"""A reload takes JetStream from an account in the middle of an upload."""

import json
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.client.reloads import reload
from tests.servers import Servers

pytestmark = pytest.mark.timeout(60)

BUCKET = {
    "name": "OBJ_b",
    "subjects": ["$O.b.C.>", "$O.b.M.>"],
    "discard": "new",
    "allow_rollup_hdrs": True,
}
BEGIN = {"nonce": "n", "size": 4, "chunks": 2}


def config(folder: Path, with_jetstream: bool) -> str:
    own = "jetstream: enabled, " if with_jetstream else ""
    return (
        f'jetstream {{ store_dir: "{folder}", object_requests: true }}\n'
        f"accounts {{ A {{ {own}users: [{{user: a, password: p}}] }} }}\nno_auth_user: a\n"
    )


def test_nothing_of_an_upload_stays_where_its_account_loses_jetstream(servers: Servers) -> None:
    folder = servers.base / "objects"
    server = servers.under_test(config=config(folder, True))
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.OBJ_b", BUCKET)
        begun = client.request("$OBJ.b.info.x", json.dumps(BEGIN).encode())
        assert b"error" not in begun.payload
        assert json.loads(client.request("$OBJ.b.chunks.n", b"12").payload)["seq"] == 1
        reload(server, config(folder, False))
        refused = json.loads(client.request("$OBJ.b.chunks.n", b"34").payload)
        assert refused["error"]["err_code"] == 10039
        reload(server, config(folder, True))
        state = client.api("STREAM.INFO.OBJ_b")["state"]
        assert (state["messages"], state["last_seq"]) == (0, 1)
        late = json.loads(client.request("$OBJ.b.chunks.n", b"34").payload)
        assert late["error"]["err_code"] == 10037
        again = client.request("$OBJ.b.info.x", json.dumps(BEGIN).encode())
        assert b"error" not in again.payload
    assert len([*(folder / "jetstream" / "A" / "uploads").iterdir()]) == 1
