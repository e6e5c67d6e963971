"""Arrows point down: what layers of the data plane and parts of the control plane import."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CEXT = ROOT / "cext"
JSSERVER = ROOT / "jsserver"

#: Layer of the data plane -> layers that it may know.
LAYERS = {
    "bytes": set(),
    "cipher": {"bytes"},
    "store": {"bytes"},
    "stream": {"bytes", "store"},
    "consumer": {"bytes", "store", "stream"},
    "core": {"bytes"},
    "net": {"bytes", "store", "core"},
    "links": {"bytes", "core", "net"},
    "tls": {"bytes", "core", "net"},
    "engine": {"bytes", "store", "stream", "consumer", "core", "net", "links"},
    "raft": {"bytes"},
    "raftlog": {"bytes", "store", "raft"},
    "groups": {"bytes", "store", "stream", "raft", "raftlog"},
    "replicas": {"bytes", "store", "stream", "consumer", "raft", "raftlog", "groups"},
    "language": {"bytes"},
}
#: Part of the control plane -> what it may know of the rest of it, and does know; a part may know
#: itself. A part is a package, or a module of one where it says `package.module`. Each knows only
#: parts above it: so no part of a server knows of the client `bench`, or of `cli`.
PARTS = {
    **{key: set() for key in ("text.goformat", "text.identity", "text.http", "text.nuid")},
    **{key: set() for key in ("text.denied", "text.passwords", "text.s2", "text.transforms")},
    "text.tables": set(),
    "text.flags": {"text.goformat"},
    "text.nkeys": {"text.identity"},
    "text.urls": {"text.goformat"},
    "client.credentials": set(),
    **{key: {"client.credentials"} for key in ("client.connection", "client.login")},
    **{f"process.{key}": set() for key in ("garbage", "libc", "notify", "sockets", "tasks")},
    "process.logs": {"text.denied", "text.goformat"},
    "process.priority": {"process.libc"},
    "process.procs": {"process.libc"},
    "process.signalling": {"text.goformat"},
    "process.addresses": {"process.sockets"},
    "process.runfiles": {"process.sockets"},
    "jwt": {"text.goformat", "text.identity", "text.nkeys"},
    "config": {
        *("client.credentials", "jwt", "text.goformat", "text.identity", "text.passwords"),
        *("text.transforms", "text.urls"),
    },
    **{key: set() for key in ("disk.ballast", "disk.directories", "disk.keys")},
    "disk.groupkeys": {"disk.keys"},
    "disk.quarantine": {"disk.directories"},
    "disk.storedir": {"disk.directories", "text.denied", "text.goformat", "text.nuid"},
    "disk.storage": {
        *("config", "disk.ballast", "disk.keys", "disk.storedir", "process.logs", "text.goformat"),
    },
    "access.accounts": {"text.identity"},
    "access.links": {"access.accounts", "config"},
    "access.configured": {"access.accounts", "access.links", "config"},
    "access.certificates": {"config"},
    "access.mapping": {"access.certificates"},
    "access.fetch": {"text.goformat"},
    "access.ocsp": {"access.fetch", "text.goformat"},
    "access.responses": {"access.ocsp", "config", "process.logs", "text.goformat", "text.s2"},
    "access.clients": set(),
    "access.info": {"config", "text.goformat"},
    "access.refusal": set(),
    "access.proxies": {"access.refusal", "text.identity", "text.nkeys"},
    "access.auth": {
        *("access.certificates", "access.clients", "access.mapping", "access.proxies"),
        *("access.refusal", "config", "text.nkeys", "text.nuid", "text.passwords"),
    },
    "access.secured": {"access.certificates", "config", "text.goformat"},
    "access.staying": {"access.auth", "access.clients", "config", "text.passwords"},
    "access.operator": {
        *("access.auth", "access.clients", "access.proxies", "access.refusal", "config", "jwt"),
        *("text.goformat", "text.identity", "text.nkeys"),
    },
    "access.callout": {
        *("access.certificates", "access.clients", "access.refusal", "jwt", "text.goformat"),
        *("text.identity", "text.nkeys"),
    },
    "access.resolvers": {"access.fetch", "config", "jwt", "text.goformat", "text.identity"},
    "access.websocket": {
        *("access.auth", "access.clients", "config", "process.logs", "process.sockets"),
        *("text.http", "text.urls"),
    },
    "access.clientlog": {
        *("access.accounts", "access.auth", "access.clients", "access.websocket", "config"),
        *("process.logs", "text.goformat"),
    },
    "links": {"text.goformat", "text.http", "text.identity"},
    "listeners": {
        *("access.certificates", "access.info", "access.secured", "config", "process.addresses"),
        *("process.logs", "process.sockets"),
    },
    "wire": {"text.goformat"},
    "assets": {"text.goformat", "text.identity", "text.transforms", "wire"},
    "instances": {
        *("assets", "disk.directories", "disk.keys", "process.garbage", "text.goformat"),
        *("text.nuid", "text.transforms", "wire"),
        "process.tasks",
    },
    "offline": {
        *("disk.directories", "disk.keys", "disk.storedir", "instances", "text.goformat"),
        *("text.s2", "text.tables"),
    },
    "api": {"assets", "instances", "text.goformat", "text.nuid", "wire", "process.tasks"},
    "cluster": {"api", "assets", "config", "text.goformat", "text.identity", "text.s2", "wire"},
    "rescue": {
        *("assets", "cluster", "disk.directories", "disk.keys", "disk.quarantine", "instances"),
        *("offline", "process.libc", "text.goformat", "text.identity", "text.nuid"),
        "text.tables",
    },
    "objects": {
        *("api", "assets", "instances", "text.goformat", "text.nuid", "wire"),
        "process.tasks",
    },
    "monitor": {
        *("access.certificates", "access.clients", "access.info", "access.responses", "api"),
        *("assets", "cluster", "config", "instances", "jwt", "links", "process.sockets"),
        *("text.goformat", "text.http", "text.identity", "wire"),
    },
    "services.subjects": set(),
    "services.elsewhere": {"access.accounts"},
    "services.latency": {"access.accounts", "text.goformat", "text.nuid"},
    "services.measured": {
        *("access.accounts", "services.latency", "text.goformat", "text.identity"),
    },
    "services.relay": {
        *("access.accounts", "services.elsewhere", "services.measured", "services.subjects"),
        "text.nuid",
    },
    "services.linked": {
        *("access.clients", "config", "links", "process.sockets", "text.goformat"),
        "process.tasks",
    },
    "services.proving": {"access.auth", "links", "services.linked", "text.passwords"},
    "services.routes": {
        *("access.accounts", "access.auth", "access.clients", "access.info", "config", "links"),
        *("access.secured", "process.logs", "process.sockets", "services.linked"),
        *("services.proving", "text.goformat"),
    },
    "services.tunnels": {"links", "process.sockets", "text.http"},
    "services.leafs": {
        *("access.accounts", "access.auth", "access.clients", "access.info", "access.refusal"),
        *("access.secured", "client.credentials", "config", "links"),
        "process.logs",
        *("services.linked", "services.tunnels", "text.goformat", "text.nuid"),
    },
    "services.gateways": {
        *("access.clients", "access.secured", "config", "links", "process.logs"),
        *("process.sockets", "services.linked", "services.proving", "services.routes"),
        "text.goformat",
    },
    "services.inbox": {
        *("access.accounts", "access.auth", "access.clientlog", "access.clients"),
        *("access.refusal", "access.websocket", "config", "process.logs", "services.latency"),
        *("services.gateways", "services.leafs", "services.measured", "services.routes"),
        "text.goformat",
        "process.tasks",
    },
    "services.jetstream": {
        *("access.accounts", "access.clients", "api", "assets", "config", "disk.storage"),
        *("instances", "objects", "process.logs", "text.goformat", "wire"),
    },
    "services.door": {"access.auth", "access.clients", "access.refusal", "process.logs"},
    "services.replies": {"access.accounts", "text.nuid"},
    "services.tenant_links": {
        *("access.accounts", "access.links", "access.operator", "config", "jwt", "process.logs"),
        "text.goformat",
    },
    "services.tenants": {
        *("access.accounts", "access.auth", "access.operator", "access.refusal"),
        *("access.resolvers", "assets", "jwt", "process.logs", "services.door"),
        *("services.jetstream", "services.tenant_links", "text.goformat", "text.identity"),
        "config",
    },
    "services.needed": {"access.refusal", "services.tenants"},
    "services.callouts": {
        *("access.accounts", "access.auth", "access.callout", "access.clients"),
        *("access.operator", "access.refusal", "config", "jwt", "process.logs"),
        *("services.replies", "services.tenants", "text.goformat", "text.identity"),
        "process.tasks",
    },
    "services.logins": {
        *("access.auth", "access.clients", "access.operator", "access.refusal", "jwt"),
        *("process.logs", "services.callouts", "services.door"),
        "services.tenants",
        "process.tasks",
    },
    "services.answers": {"config", "text.goformat", "wire"},
    "services.presence": {"config"},
    "services.members": {
        *("access.accounts", "assets", "cluster", "services.presence", "text.identity", "wire"),
    },
    "services.answering": {"access.accounts", "api", "cluster", "services.answers"},
    "services.asking": {"cluster", "instances"},
    "services.usages": {"access.accounts", "cluster", "instances", "services.subjects"},
    "services.elections": {"api", "cluster"},
    "services.reports": {"cluster", "instances", "text.goformat"},
    "services.metalead": {
        *("access.accounts", "api", "assets", "cluster", "services.answering"),
        *("services.replies", "services.reports", "text.goformat", "text.identity"),
        *("text.nuid", "wire"),
        "process.tasks",
    },
    "services.clusterapi": {
        *("access.accounts", "api", "cluster", "process.logs", "services.answering"),
        *("services.asking", "services.members"),
        *("instances", "services.metalead", "services.needed", "text.identity", "wire"),
        "process.tasks",
    },
    "services.unheld": {
        *("access.accounts", "api", "cluster", "process.logs", "services.answers"),
        *("services.clusterapi", "services.subjects", "text.goformat", "wire"),
    },
    "services.standing": {"disk.directories", "disk.quarantine"},
    "services.membership": {"cluster", "instances", "services.standing"},
    "services.replicas": {
        *("assets", "cluster", "disk.directories", "disk.groupkeys", "disk.keys", "instances"),
        *("services.membership", "services.standing", "text.goformat", "wire"),
    },
    "services.anew": {"cluster", "instances", "process.logs", "services.membership"},
    "services.regrouping": {
        *("cluster", "instances", "services.membership", "services.replicas"),
        "services.standing",
    },
    "services.movers": {
        *("cluster", "instances", "services.membership", "services.replicas"),
        "services.reports",
    },
    "services.changes": {
        *("api", "assets", "cluster", "instances", "services.membership", "text.goformat"),
        "wire",
    },
    "services.settling": {
        *("api", "cluster", "instances", "services.answering", "services.changes"),
        *("services.asking", "services.membership"),
        "process.tasks",
    },
    "services.refusals": {"api", "cluster", "instances", "services.reports", "wire"},
    "services.restores": {
        *("api", "assets", "cluster", "instances", "services.answering", "services.refusals"),
        *("services.membership", "services.replicas", "text.nuid", "wire"),
        "process.tasks",
    },
    "services.held": {
        *("access.accounts", "assets", "cluster", "instances", "process.logs"),
        *("services.answering", "services.answers", "services.changes", "services.jetstream"),
        *("services.anew", "services.membership", "services.movers", "services.needed"),
        *("services.asking", "services.refusals", "services.regrouping"),
        *("services.replicas", "services.restores", "services.settling"),
        *("text.goformat", "wire"),
        "process.tasks",
    },
    "services.holdings": {
        *("access.accounts", "cluster", "services.answering", "services.elections"),
        *("services.asking", "services.held", "services.jetstream"),
        *("services.unheld", "services.usages"),
    },
    "services.held_api": {
        *("access.accounts", "api", "assets", "cluster", "instances", "services.answering"),
        *("services.answers", "services.clusterapi", "services.held", "services.jetstream"),
        "services.membership",
        *("services.unheld", "wire"),
        "process.tasks",
    },
    "services.removal": {"process.logs", "services.held", "services.jetstream"},
    "services.metagroup": {
        *("access.accounts", "assets", "cluster", "config", "disk.directories", "disk.groupkeys"),
        "disk.quarantine",
        *("process.logs", "services.clusterapi", "services.members", "services.metalead"),
        *("services.held", "services.held_api", "services.holdings", "services.jetstream"),
        *("services.needed", "services.presence", "services.replicas", "services.unheld"),
        "text.goformat",
        "text.identity",
        "services.removal",
    },
    "services.claims": {
        *("access.accounts", "access.operator", "access.refusal", "access.resolvers", "jwt"),
        *("process.logs", "services.answers", "services.tenants", "text.identity", "wire"),
    },
    "services.packs": {"access.accounts", "access.resolvers", "text.nuid"},
    "services.operated": {
        *("access.accounts", "access.operator", "access.proxies", "access.refusal"),
        *("access.resolvers", "config", "jwt", "process.logs"),
        *("services.callouts", "services.claims", "services.door"),
        *("services.inbox", "services.jetstream", "services.logins", "services.replies"),
        *("services.answers", "services.packs", "services.tenants", "text.goformat"),
    },
    "services.peers": {
        *("access.certificates", "access.ocsp", "access.responses", "config", "process.logs"),
        "text.goformat",
        "process.tasks",
    },
    "services.stapling": {
        *("access.certificates", "access.ocsp", "config", "process.logs", "text.goformat"),
    },
    "services.certificates": {
        *("access.certificates", "access.responses", "config", "listeners", "process.logs"),
        *("services.inbox", "services.peers", "services.stapling"),
    },
    "services.delegates": {
        *("access.accounts", "access.callout", "config", "process.logs", "services.answers"),
        *("services.callouts", "services.door", "services.inbox", "services.jetstream"),
        *("services.operated", "services.replies", "services.tenants", "text.nkeys"),
    },
    "services.watched": {
        *("access.accounts", "access.clients", "access.configured", "access.info"),
        *("access.responses", "config", "jwt", "links", "listeners", "monitor"),
        *("services.answers", "services.certificates", "services.delegates", "services.inbox"),
        *("services.gateways", "services.jetstream", "services.leafs", "services.metagroup"),
        "services.routes",
    },
    "services.operators": {
        *("access.clients", "config", "instances", "monitor", "services.answers"),
        *("services.subjects", "services.watched", "text.goformat", "wire"),
    },
    "services.encodings": set(),
    "services.events": {
        *("access.certificates", "access.clients", "access.refusal", "api", "config", "monitor"),
        *("services.answers", "services.operators", "services.subjects", "services.watched"),
        *("text.goformat", "text.nuid", "wire"),
    },
    "services.lameduck": {
        *("access.clients", "access.info", "config", "listeners", "process.logs"),
        *("services.events", "services.routes"),
    },
    "services.system": {
        *("access.accounts", "access.auth", "config", "services.answers", "services.encodings"),
        *("services.events", "services.operators", "services.relay", "services.subjects", "wire"),
        "process.tasks",
    },
    "services.followers": {
        *("access.accounts", "access.certificates", "access.clients", "access.configured"),
        *("access.refusal", "access.secured", "config", "disk.storage", "listeners"),
        *("process.logs", "services.certificates", "services.delegates", "services.inbox"),
        *("services.jetstream", "services.leafs", "services.routes", "services.stapling"),
    },
    "services.following_logins": {
        *("access.auth", "access.clients", "access.configured", "access.staying"),
        *("access.websocket", "config", "services.followers"),
    },
    "services.reloading": {
        *("config", "process.garbage", "services.followers", "services.following_logins"),
    },
    "services.reload": {"process.logs", "services.followers", "services.reloading"},
    "front": {
        *("access.accounts", "access.configured", "access.info", "access.secured", "config"),
        *("disk.storage", "disk.storedir", "listeners", "process.logs"),
        *("process.priority", "process.runfiles", "services.subjects", "text.denied"),
        *("text.goformat", "text.identity", "text.nkeys", "text.nuid"),
    },
    "server": {
        *("access.auth", "access.clients", "access.refusal"),
        *("access.websocket", "front", "monitor", "process.garbage"),
        *("process.notify", "process.procs", "services.answers", "services.certificates"),
        *("services.delegates", "services.events", "services.inbox", "services.jetstream"),
        *("config", "services.followers", "services.gateways", "services.held"),
        *("services.lameduck", "services.leafs"),
        *("services.metagroup", "services.needed", "services.operators", "services.relay"),
        *("services.reload", "services.routes", "services.system", "services.watched"),
        "text.identity",
    },
    "start": {"config", "front", "process.logs", "server"},
    "check": {
        *("access.secured", "config", "disk.storage", "disk.storedir", "instances"),
        *("process.sockets", "text.flags", "text.goformat"),
    },
    "admin": {
        *("client.connection", "client.credentials", "client.login", "cluster", "text.tables"),
    },
    "bench": {"client.connection", "client.credentials", "client.login", "process.procs"},
    "clusters": {"admin", "rescue"},
    "cli": {
        *("admin", "bench", "check", "clusters", "config", "offline", "process.procs"),
        *("process.signalling", "start", "text.flags"),
    },
}
#: Packages of a start's first part: their modules are loaded one by one, so the packages load none.
LOADED_BY_MODULE = {"access", "client", "disk", "process", "services", "text"}

CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer_of(path: Path) -> str:
    """cext/store.pxd and cext/store/read.pxi are the store's; cext/__init__.py is nobody's."""
    return path.relative_to(CEXT).parts[0].partition(".")[0]


def data_plane(start: str = "") -> Iterator[tuple[str, str, str]]:
    """File, its layer, and a module of ours that it imports, in every form there is; those alone
    that it names by this start."""
    for suffix in (".pyx", ".pxd", ".pxi", ".pyi"):
        for path in sorted(CEXT.rglob(f"*{suffix}")):
            for whole, plain in CIMPORT.findall(path.read_text()):
                module = whole or plain
                if not module.startswith(start):
                    continue
                if module.startswith("."):  # a neighbour: all layers are in one package
                    module = f"jsserver.cext{module}"
                if module.startswith("jsserver"):
                    yield name_of(path), layer_of(path), module


def test_the_data_plane_knows_what_is_below_and_nothing_of_the_control_plane() -> None:
    wrong = []
    for file, layer, module in data_plane():
        parts = module.split(".")
        below = LAYERS[layer] | {layer}
        if parts[:2] != ["jsserver", "cext"] or len(parts) < 3 or parts[2] not in below:
            wrong.append(f"{file} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_every_layer_is_declared_and_built_in_order() -> None:
    assert {p.stem for p in CEXT.glob("*.pyx")} == set(LAYERS)
    (built,) = re.findall(r"for name in \(([^)]*)\)", (ROOT / "setup.py").read_text())
    order = re.findall(r'"(\w+)"', built)
    assert set(order) == set(LAYERS)
    for layer, below in LAYERS.items():
        assert all(order.index(name) < order.index(layer) for name in below), layer


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_has_a_page_that_says_what_it_may_know(layer: str) -> None:
    page = (CEXT / layer / "README.md").read_text()
    title, _, rest = page.partition("\n")
    assert title.startswith(f"# {layer}: ")
    (line,) = re.findall(r"^- \*\*May cimport:\*\* (.+)\.$", rest, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", line))
    assert named == LAYERS[layer]
    assert "**Start reading at**" in rest
    assert len(page.partition("\n## Floors\n")[0].splitlines()) <= 20
    for file in re.findall(r"`((?:\.\./)?\w+\.(?:pxi|pxd|pyi|h))`", rest):
        assert (CEXT / layer / file).exists(), f"{layer}/README.md names {file}"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(JSSERVER.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "cext" not in parts:
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imported(module: str, path: Path) -> Iterator[tuple[str, str]]:
    """What a module imports, and when: "first", when it is imported itself, "late", in a function,
    or only for "types"."""
    tree = ast.parse(path.read_text())
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    when = dict.fromkeys(ast.iter_child_nodes(tree), "first")
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.With | ast.If) and node in when:
            is_type_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            inner = "types" if is_type_only else when[node]
            when.update(dict.fromkeys(ast.iter_child_nodes(node), inner))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, when.get(node, "late")
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")
            base = ".".join(above[: len(above) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            for name in node.names:
                full = f"{source}.{name.name}"
                yield (full if full in MODULES else source), when.get(node, "late")


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def part_of(module: str) -> str:
    """The row of the table that a module belongs to; "" for those that all may know: the package
    itself and the data plane, and for packages whose modules have rows of their own."""
    names = module.split(".")[1:]
    if not names or names[0] == "cext" or names in ([p] for p in LOADED_BY_MODULE):
        return ""
    return names[0] if names[0] in PARTS else ".".join(names[:2])


def test_the_control_plane_knows_what_is_below() -> None:
    wrong, known = set(), set()
    for module, path in MODULES.items():
        part = part_of(module)
        for target, _ in imported(module, path):
            other = part_of(target) if target.split(".")[0] == "jsserver" else ""
            if not other or other == part:
                continue
            known.add((part, other))
            if other not in PARTS.get(part, ()):
                wrong.add(f"{name_of(path)} imports {target}")
    assert not wrong, "\n".join(sorted(wrong))
    allowed = {(part, other) for part, below in PARTS.items() for other in below}
    assert not allowed - known, f"allowed, and nobody needs it: {sorted(allowed - known)}"


def test_nothing_names_what_stands_on_it_not_even_for_types() -> None:
    """What puts the server together knows the services, and none of them the server: imports for
    types alone count, too."""
    arrows = {
        (module, target)
        for module, path in MODULES.items()
        for target, _ in imported(module, path)
        if target in ("jsserver.start", "jsserver.server", "jsserver.front")
    }
    below = [
        f"{module} names {target}"
        for module, target in sorted(arrows)
        if module not in ("jsserver.cli", "jsserver.start", "jsserver.server")
    ]
    assert not below, "\n".join(below)


def test_every_part_of_the_control_plane_is_declared_above_those_that_know_it() -> None:
    assert {part for part in map(part_of, MODULES) if part} == set(PARTS)
    order = list(PARTS)
    for part, below in PARTS.items():
        assert all(order.index(other) < order.index(part) for other in below), part
    packages = [part.partition(".")[0] for part in order]
    together = [name for name, _ in itertools.groupby(packages)]
    assert len(together) == len(set(together)), "parts of one package stand together"
    page = (ROOT / "docs" / "architecture.md").read_text()
    first_cells = re.findall(r"^\| (`jsserver/.+?) \|", page, re.MULTILINE)
    told = re.findall(r"`jsserver/(\w+)`", " ".join(first_cells))
    rows = [name for name in together if (JSSERVER / name).is_dir()]
    assert told == rows, "docs/architecture.md tells of the packages in this order"


def test_packages_of_the_first_part_of_a_start_load_nothing_by_themselves() -> None:
    for package in LOADED_BY_MODULE:
        tree = ast.parse((JSSERVER / package / "__init__.py").read_text())
        assert len(tree.body) == 1 and ast.get_docstring(tree), package


def test_the_configuration_language_has_one_user() -> None:
    users = {
        package_of(module)
        for module, path in MODULES.items()
        for target, _ in imported(module, path)
        if target.startswith("jsserver.cext.language")
    }
    assert users == {"config"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    needs = {
        module: {
            target
            for target, when in imported(module, path)
            if when == "first" and target in MODULES and target != module
        }
        for module, path in MODULES.items()
    }
    while free := {module for module, targets in needs.items() if not targets}:
        needs = {m: targets - free for m, targets in needs.items() if m not in free}
    assert not needs, f"in circles, or standing on one: {sorted(needs)}"
