"""What a server keeps in memory of what is stored."""

import asyncio
from pathlib import Path

from tests.client.aio import asynchronous, connected, restart
from tests.servers import Server, Servers


def resident(server: Server) -> int:
    """Bytes that the server has in memory."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def pages_of_files(server: Server) -> int:
    """Bytes of files that the server has in its memory."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("RssFile:")[2].split()[0]) << 10


@asynchronous
async def test_readers_side_by_side_keep_little_of_a_stream_in_memory(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    half = 768
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"], allow_direct=True)
        for _ in range(half // 8):
            await asyncio.gather(*(js.publish("s", bytes(64 << 10)) for _ in range(16)))
        await restart(client, server, kill=False)
        await js.get_msg("S", 1, direct=True)
        before = most = pages_of_files(server)
        for seq in range(1, half + 1):
            for reader in (seq, seq + half):
                assert len((await js.get_msg("S", reader, direct=True)).data or b"") == 64 << 10
            most = max(most, pages_of_files(server))
        # The stream has 96 MiB in blocks of 8.
        assert most - before < 12 << 20


@asynchronous
async def test_deep_subjects_take_memory_in_proportion_to_their_bytes(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    tail = ".t" * 1980
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["l.>"])
        await js.publish("l.first")
        empty = resident(server)
        for number in range(300):
            await js.publish(f"l.{number}{tail}")
        assert resident(server) - empty < 16 << 20
        for kill in (True, False):
            await restart(client, server, kill=kill)
            assert (await js.stream_info("S")).state.messages == 301
            last = await js.get_last_msg("S", f"l.*{tail}")
            assert last.subject == f"l.299{tail}"
            assert resident(server) - empty < 16 << 20
    server.stop()
    # 1.2 MB of subjects: once in the blocks, up to twice in the checkpoint.
    assert sum(p.stat().st_size for p in server.store.rglob("*") if p.is_file()) < 8 << 20
