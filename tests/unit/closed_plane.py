"""Calls every public method of a data plane's handles after its end, in a process of its own."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jsserver.cext import engine
from jsserver.cext.engine import AccountHandle, DataPlane, PlaneClosed, PlaneConfig, WebsocketConfig
from tests.unit.stream_world import stream_params

STUBS = Path(inspect.getfile(engine)).parent / "engine.pyi"
LIFE = {"close", "stop", "run"}
"""What may be called at the end."""
OF_THE_STORE = {"has_room", "run_commits", "stop_commits"}


def values(annotation: ast.expr | None, account: AccountHandle) -> Any:
    """An argument of this type."""
    text = "None" if annotation is None else ast.unparse(annotation)
    match text.split(" | ")[0].split("[")[0]:
        case "int":
            return 1
        case "bytes":
            return b"01234567"
        case "str":
            return "x"
        case "bool":
            return False
        case "list" | "Mappings":
            return []
        case "AccountHandle":
            return account
        case "PermissionSet":
            return engine.PermissionSet()
        case "PlaneConfig":
            return PlaneConfig(*[1] * len(PlaneConfig._fields))
        case "WebsocketConfig":
            fields = SimpleNamespace(**dict.fromkeys(WebsocketConfig._fields, 1))
            fields.info, fields.later_head = (b"", b"", b""), b""
            return fields
    return None


def methods(kind: type, account: AccountHandle) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Those that the stubs have, each with arguments that fit."""
    [described] = [
        node
        for node in ast.parse(STUBS.read_text()).body
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
                [values(a.annotation, account) for a in needed],
                {a.arg: values(a.annotation, account) for a in wanted},
            )


def outcome(call: Callable[..., object], *args: Any, **more: Any) -> str:
    try:
        return f"returned {call(*args, **more)!r}"
    except PlaneClosed:
        return "PlaneClosed"
    except Exception as error:
        return repr(error)


def main() -> None:
    plane = DataPlane()
    account = plane.account("A", b"01234567")
    for name in sorted(OF_THE_STORE):
        print("before open_store", name, outcome(getattr(plane, name)), flush=True)
    plane.close()
    plane.close()
    for kind, made in ((DataPlane, plane), (AccountHandle, account)):
        for name, args, more in methods(kind, account):
            if name == "open_stream":
                args = [None, stream_params()]
            said = outcome(getattr(made, name), *args, **more) if name not in LIFE else "life"
            print(kind.__name__, name, said, flush=True)


if __name__ == "__main__":
    sys.exit(main())
