"""Calls every public method of a data plane's handles after its end, in a process of its own."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jsserver.cext import engine
from jsserver.cext.consumer import ConsumerHandle, StreamHandle
from jsserver.cext.engine import (
    LISTEN_CLIENTS,
    AccountHandle,
    DataPlane,
    ListenerConfig,
    ListenerHandle,
    PlaneClosed,
    PlaneConfig,
)
from jsserver.cext.stream import IntakeFace, StreamClosed, StreamFace
from tests.unit.stream_world import consumer_params, stream_params

STUBS = Path(inspect.getfile(engine)).parent
LIFE = {"close", "stop", "run"}
"""What may be called at the end."""
KEPT = {"id", "changed_state", "pointer"}
"""What a handle knows by itself."""
HASH = b"012345"
"""What replies across clusters name a cluster or a server by."""
OF_THE_STORE = {"has_room", "run_commits", "stop_commits"}
PARAMETERS = {"open_stream", "open_consumer", "update"}


def values(name: str, annotation: ast.expr | None, account: AccountHandle) -> Any:
    """An argument of this name and type."""
    text = "None" if annotation is None else ast.unparse(annotation)
    match text.split(" | ")[0].split("[")[0]:
        case "int":
            return 1
        case "bytes":
            return {"key": b"01234567" * 4, "cluster": HASH, "server": HASH}.get(name, b"01234567")
        case "str":
            return "x"
        case "bool":
            return False
        case "list" | "Mappings" | "Iterable" | "Sequence":
            return []
        case "AccountHandle":
            return account
        case "PermissionSet":
            return engine.PermissionSet()
        case "PlaneConfig":
            return PlaneConfig._make([1] * len(PlaneConfig._fields))
        case "ListenerConfig":
            fields = SimpleNamespace(**dict.fromkeys(ListenerConfig._fields, 1))
            fields.info, fields.later_head = (b"", b"", b""), b""
            return fields
    return None


def methods(kind: type, account: AccountHandle) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Those that the stubs have, each with arguments that fit."""
    stubs = STUBS / f"{kind.__module__.rpartition('.')[2]}.pyi"
    [described] = [
        node
        for node in ast.parse(stubs.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    ]
    for node in described.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            needed = node.args.args[1:]
            needed = needed[: len(needed) - len(node.args.defaults)]
            named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            wanted = [argument for argument, default in named if default is None]
            yield (
                node.name,
                [values(a.arg, a.annotation, account) for a in needed],
                {a.arg: values(a.arg, a.annotation, account) for a in wanted},
            )


def outcome(call: Callable[..., object], *args: Any, **more: Any) -> str:
    try:
        return f"returned {call(*args, **more)!r}"
    except (PlaneClosed, StreamClosed) as error:
        return type(error).__name__
    except Exception as error:
        return repr(error)


def main() -> None:
    plane = DataPlane()
    account = plane.account("A", b"01234567")
    clients = plane.listener(LISTEN_CLIENTS)
    for name in sorted(OF_THE_STORE):
        print("before open_store", name, outcome(getattr(plane, name)), flush=True)
    plane.open_store(
        sync_interval=0, domain=b"", max_memory=-1, max_storage=-1, max_payload=1 << 20
    )
    stream = account.open_stream(None, stream_params())
    stream.activate()
    consumer = stream.open_consumer(consumer_params(), None)
    plane.close()
    plane.close()
    handles: list[tuple[type, Any]] = [(DataPlane, plane), (AccountHandle, account)]
    handles += [(kind, stream) for kind in (StreamFace, IntakeFace, StreamHandle)]
    for kind, made in [*handles, (ConsumerHandle, consumer), (ListenerHandle, clients)]:
        for name, args, more in methods(kind, account):
            if name in PARAMETERS:
                of_stream = name != "open_consumer" and kind is not ConsumerHandle
                params = stream_params() if of_stream else consumer_params()
                args = [params] if name == "update" else [None, params][:: 1 if of_stream else -1]
            elif name == "fill":
                args = [stream]
            ends = name in LIFE | KEPT
            said = "life" if ends else outcome(getattr(made, name), *args, **more)
            print(kind.__name__, name, said, flush=True)
    for left in (consumer, stream):
        left.close(delete=False)


if __name__ == "__main__":
    main()
