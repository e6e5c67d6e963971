"""Where a user may have the server send an object."""

from tests.client.aio import asynchronous, connected
from tests.client.test_object_requests import Asker, started
from tests.servers import Servers

USERS = """
accounts { A {
  jetstream: enabled
  users: [
    {user: a, password: p}
    {user: unlisted, password: p, permissions { publish: ["$OBJ.b", "own.>"] }}
  ]
} }
"""


@asynchronous
async def test_who_has_no_list_of_subscriptions_needs_the_right_to_publish(
    servers: Servers,
) -> None:
    """Else a user who may only publish to the bucket had the server publish anywhere."""
    server = started(servers, USERS)
    async with (
        connected(server, user="a", password="p") as a,
        connected(server, user="unlisted", password="p") as unlisted,
    ):
        store = await a.jetstream().create_object_store("b")
        await store.put("secret", b"of A")
        asker = Asker(unlisted, store)
        refused = await asker.ask("$OBJ.b", {"name": "secret", "deliver_subject": "elsewhere"})
        assert "no permission" in refused["error"]["description"]
        for subject in ("_R_.a.b", "$JS.FC.a"):
            refused = await asker.ask("$OBJ.b", {"name": "secret", "deliver_subject": subject})
            assert "does not begin with" in refused["error"]["description"]
        heard = await unlisted.subscribe("own.x")
        answer = await asker.ask("$OBJ.b", {"name": "secret", "deliver_subject": "own.x"})
        assert "error" not in answer
        assert (await heard.next_msg(10)).data == b"of A"
