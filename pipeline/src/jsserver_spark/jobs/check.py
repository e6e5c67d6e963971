"""What driver and executors run, whether the server answers, and what is wrong, in words."""

import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from jsserver_spark import __version__
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.jobs import arguments, command
from jsserver_spark.jobs.runner import session_of
from jsserver_spark.options import ConnectionOptions

NEEDED = {
    "pyspark": (4, 2),
    "pyarrow": (19,),
    "numpy": (1, 26),
    "msgspec": (0, 22),
    "pynacl": (1, 6),
    "cryptography": (43,),
}
"""The dependencies in pyproject.toml."""
JAVA_MIN = 17
PYTHON_MIN = (3, 11)
FORMATS = {"nats": "pyspark_nats", "nats-store": "pyspark_nats_store"}
TIMEOUT_S = 20.0


class Machine(msgspec.Struct):
    """What one process runs."""

    where: str
    host: str
    python: str
    executable: str
    jsserver_spark: str
    packages: dict[str, str]
    """Versions; empty where one is not installed."""
    formats: dict[str, str]
    """What is wrong with each; empty where it is found."""


class ServerFound(msgspec.Struct):
    """What a server says of itself."""

    url: str
    name: str
    version: str
    jetstream: bool
    max_payload: int
    streams: int = 0


class Checked(msgspec.Struct):
    """All that was found."""

    driver: Machine
    java: str = ""
    spark_master: str = ""
    executors: list[Machine] = []
    server: ServerFound | None = None
    problems: list[str] = []


def machine(where: str) -> Machine:
    """This process."""
    return Machine(
        where=where,
        host=platform.node(),
        python=platform.python_version(),
        executable=sys.executable,
        jsserver_spark=__version__,
        packages={name: _version(name) for name in NEEDED},
        formats={name: _format(module) for name, module in FORMATS.items()},
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _format(module: str) -> str:
    try:
        found = importlib.import_module(module)
    except Exception as error:
        return f"{module} cannot be imported: {error}"
    return "" if hasattr(found, "DefaultSource") else f"{module} has no DefaultSource"


def java_version() -> str:
    """The Java that Spark would start; empty where there is none."""
    home = os.environ.get("JAVA_HOME", "")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java") or ""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    first = (done.stderr or done.stdout).partition("\n")[0]
    quoted = first.split('"')
    return quoted[1] if len(quoted) > 2 else first


def check(options: ConnectionOptions | None, master: str, *, spark: bool = True) -> Checked:
    """Looks at everything; `options` None leaves out the server, `spark` False Spark."""
    found = Checked(machine("driver"), java_version())
    found.problems += machine_problems(found.driver)
    found.problems += java_problems(found.java)
    if spark and found.java and found.driver.packages["pyspark"]:
        _look_at_spark(found, master)
    if options is not None:
        _look_at_server(found, options)
    return found


def machine_problems(one: Machine) -> list[str]:
    """What is wrong with a process, in words."""
    wrong = []
    if numbers(one.python) < PYTHON_MIN:
        wrong.append(f"{one.where}: Python {one.python} is too old, 3.11 is needed")
    for name, least in NEEDED.items():
        version = one.packages.get(name, "")
        if not version:
            hint = "it comes with `pip install` of jsserver-spark"
            wrong.append(f"{one.where}: {name} is not installed: {hint}")
        elif numbers(version) < least:
            needed = ".".join(map(str, least))
            wrong.append(f"{one.where}: {name} {version} is too old, {needed} is needed")
    for name, fault in one.formats.items():
        if fault:
            wrong.append(f"{one.where}: format {name!r} is not found: {fault}")
    return wrong


def java_problems(version: str) -> list[str]:
    if not version:
        return ["there is no Java: install 17 or 21, or set JAVA_HOME"]
    if numbers(version)[:1] < (JAVA_MIN,):
        return [f"Java {version} is too old for Spark, {JAVA_MIN} is needed (see JAVA_HOME)"]
    return []


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version."""
    out = []
    for part in version.replace("-", ".").replace("+", ".").split("."):
        if not part.isdigit():
            break
        out.append(int(part))
    return tuple(out)


def executor_problems(driver: Machine, executors: Sequence[Machine]) -> list[str]:
    """Where executors are not what the driver is."""
    wrong = []
    for one in executors:
        wrong += machine_problems(one)
        if numbers(one.python)[:2] != numbers(driver.python)[:2]:
            wrong.append(
                f"{one.where} runs Python {one.python} ({one.executable}), the driver"
                f" {driver.python}: set PYSPARK_PYTHON to the same one everywhere"
            )
        for name in ("pyspark", "pyarrow"):
            if one.packages.get(name) and one.packages[name] != driver.packages[name]:
                wrong.append(
                    f"{one.where} has {name} {one.packages[name]}, the driver"
                    f" {driver.packages[name]}: install the same version"
                )
        if one.jsserver_spark != driver.jsserver_spark:
            wrong.append(
                f"{one.where} has jsserver-spark {one.jsserver_spark}, the driver"
                f" {driver.jsserver_spark}: install the same version"
            )
    return wrong


def _on_executor(number: int) -> bytes:
    return msgspec.json.encode(machine(f"executor {platform.node()}"))


def _look_at_spark(found: Checked, master: str) -> None:
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if sys.stderr.isatty():
        sys.stderr.write("starting Spark, which takes ten seconds or more\n")
    try:
        session = session_of(master or ("" if under_submit else "local[2]"))
    except NatsError as error:
        found.problems.append(str(error))
        return
    context = session.sparkContext
    try:
        found.spark_master = context.master
        tasks = max(2, int(context.defaultParallelism))
        answers = context.parallelize(range(tasks), tasks).map(_on_executor).collect()
        machines = [msgspec.json.decode(answer, type=Machine) for answer in answers]
        found.executors = list({one.host + one.executable: one for one in machines}.values())
        found.problems += executor_problems(found.driver, found.executors)
    except Exception as error:
        said = [line.strip() for line in str(error).splitlines() if "Error" in line] or [str(error)]
        found.problems.append(
            f"a job at {found.spark_master} failed: {said[-1][:300]} (do the executors have this"
            " Python with jsserver-spark? see PYSPARK_PYTHON)"
        )
    finally:
        session.stop()


def _look_at_server(found: Checked, options: ConnectionOptions) -> None:
    try:
        api = JetStream(options, "jsserver-spark-check")
    except NatsError as error:
        found.problems.append(f"no server: {error}")
        return
    try:
        info = api.connection.info
        found.server = ServerFound(
            api.connection.url,
            str(info.get("server_name", "")),
            str(info.get("version", "")),
            bool(info.get("jetstream")),
            int(info.get("max_payload", 0)),
        )
        answer = api.api("INFO")
        found.server.streams = int(answer.get("streams", 0))
    except NatsError as error:
        found.problems.append(f"JetStream does not answer: {error}")
    finally:
        api.close()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return command.run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    given = arguments.check().parse_args(argv)
    options = None
    if command.given_options(given):
        options = command.read_options(ConnectionOptions, given, "jsserver-spark check")
    found = check(options, given.master, spark=not given.no_spark)
    command.show(given, _told(found), found)
    return command.DIFFERENT if found.problems else command.DONE


def _told(found: Checked) -> str:
    machines = [found.driver, *found.executors]
    rows = [["", *(one.where for one in machines)]]
    rows.append(["python", *(one.python for one in machines)])
    rows.append(["executable", *(one.executable for one in machines)])
    rows.append(["jsserver-spark", *(one.jsserver_spark for one in machines)])
    for name in NEEDED:
        rows.append([name, *(one.packages.get(name) or "missing" for one in machines)])
    for name in FORMATS:
        rows.append(
            [f"format {name}", *("missing" if one.formats[name] else "found" for one in machines)]
        )
    lines = [command.table(rows), f"java {found.java or 'missing'}"]
    lines.append(f"PYSPARK_PYTHON {os.environ.get('PYSPARK_PYTHON') or 'not set'}")
    if found.spark_master:
        lines.append(f"spark at {found.spark_master}")
    if found.server is not None:
        server = found.server
        offered = f"JetStream with {server.streams} streams" if server.jetstream else "no JetStream"
        lines.append(
            f"server {server.name} {server.version} at {server.url}: {offered}, payloads to"
            f" {server.max_payload:,} bytes"
        )
    lines.append("")
    lines += [f"wrong: {problem}" for problem in found.problems] or ["nothing is wrong"]
    return "\n".join(lines)


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.check import main as job

    sys.exit(job())
