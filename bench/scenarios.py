"""The scenarios that are compared, in the words of `nats bench`, which `jsserver bench` shares."""

from dataclasses import dataclass

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What runs on a fresh server. `setup` runs before anything is measured, `listeners` run
    beside `command` and are ready before it starts, `counted` is the end whose rate counts.

    `messages` is how many `counted` handles, `subscriptions` how many the listeners make,
    `waits` says that each message is waited for, so that its latency means something.
    """

    name: str
    command: Command
    messages: int
    setup: tuple[Command, ...] = ()
    listeners: tuple[Command, ...] = ()
    subscriptions: int = 0
    counted: str = "command"
    waits: bool = False
    peer_config: str = ""
    light: bool = False
    """Whether `jsserver bench` makes the load even where the nats tool is, which itself takes the
    cores that it shares with the server."""


def _pub(messages: int, clients: int, size: int) -> Command:
    return ("pub", "bench", f"--msgs={messages}", f"--clients={clients}", f"--size={size}")


def _fan_out(name: str, messages: int, publishers: int, subscribers: int, size: int) -> Scenario:
    listen = ("sub", "bench", f"--msgs={messages}", f"--clients={subscribers}", f"--size={size}")
    return Scenario(
        name,
        _pub(messages, publishers, size),
        messages * subscribers,
        listeners=(listen,),
        subscriptions=subscribers,
        counted="listener",
    )


def _service(name: str, messages: int, requesters: int, servers: int) -> Scenario:
    return Scenario(
        name,
        ("service", "request", "bench", f"--msgs={messages}", f"--clients={requesters}"),
        messages,
        # One more than will ever come: the servers run until they are ended.
        listeners=(("service", "serve", "bench", "--msgs=100000000", f"--clients={servers}"),),
        subscriptions=servers,
        waits=True,
    )


def _js_pub(
    name: str, how: str, messages: int, *more: str, peer_config: str = "", light: bool = False
) -> Scenario:
    return Scenario(
        name,
        ("js", "pub", how, "bench", "--create", f"--msgs={messages}", *more),
        messages,
        waits=how == "sync",
        peer_config=peer_config,
        light=light,
    )


def _js_read(how: Command, messages: int, *more: str, waits: bool = False) -> Scenario:
    return Scenario(
        " ".join(("js", *how)),
        ("js", *how, f"--msgs={messages}", *more),
        messages,
        setup=(("js", "pub", "async", "bench", "--create", f"--msgs={messages}"),),
        waits=waits,
    )


def all_scenarios(scale: float = 1.0) -> list[Scenario]:
    """Every scenario; `scale` multiplies the messages of each."""

    def count(messages: int) -> int:
        return max(100, int(messages * scale))

    always = "sync_interval: always"
    memory = "--storage=memory"
    return [
        Scenario("pub 16 B", _pub(count(5_000_000), 1, 16), count(5_000_000)),
        Scenario("pub 128 B", _pub(count(4_000_000), 1, 128), count(4_000_000)),
        Scenario("pub 4 clients", _pub(count(4_000_000), 4, 128), count(4_000_000)),
        _fan_out("sub 1x1 16 B", count(3_000_000), 1, 1, 16),
        _fan_out("sub 1x1 128 B", count(2_000_000), 1, 1, 128),
        _fan_out("sub 1x4 128 B", count(1_000_000), 1, 4, 128),
        _fan_out("sub 1x4 1 KiB", count(500_000), 1, 4, 1024),
        _fan_out("sub 4x4 128 B", count(1_000_000), 4, 4, 128),
        _service("service 1x1", count(30_000), 1, 1),
        _service("service 8x2", count(100_000), 8, 2),
        _js_pub("js pub sync file", "sync", count(10_000)),
        _js_pub("js pub sync file, 16 clients", "sync", count(60_000), "--clients=16"),
        _js_pub("js pub sync memory", "sync", count(40_000), memory),
        _js_pub("js pub async file", "async", count(400_000)),
        _js_pub("js pub async file, 4 clients", "async", count(600_000), "--clients=4"),
        _js_pub("js pub async memory", "async", count(600_000), memory),
        _js_pub("js pub atomic file", "atomic", count(600_000)),
        _js_pub("js pub atomic file, 4 clients", "atomic", count(600_000), "--clients=4"),
        _js_pub("js pub atomic file, light load", "atomic", count(1_000_000), light=True),
        _js_pub("js pub fast file", "fast", count(600_000)),
        _js_pub("js pub fast file, 4 clients", "fast", count(600_000), "--clients=4"),
        _js_pub(
            "js pub async file, peer always",
            "async",
            count(100_000),
            peer_config=always,
        ),
        _js_pub("js pub async file, light load", "async", count(1_000_000), light=True),
        _js_pub(
            "js pub async file, light load, peer always",
            "async",
            count(100_000),
            peer_config=always,
            light=True,
        ),
        _js_pub("js pub sync file, peer always", "sync", count(6_000), peer_config=always),
        _js_read(("ordered",), count(1_000_000)),
        _js_read(("consume",), count(400_000)),
        _js_read(("fetch",), count(400_000)),
        _js_read(("get", "sync"), count(30_000), waits=True),
        Scenario("kv put", ("kv", "put", f"--msgs={count(10_000)}"), count(10_000), waits=True),
        Scenario(
            "kv get",
            ("kv", "get", f"--msgs={count(30_000)}"),
            count(30_000),
            setup=(("kv", "put", f"--msgs={count(30_000)}", "--storage=memory"),),
            waits=True,
        ),
    ]
