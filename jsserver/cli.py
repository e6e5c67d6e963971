"""The command line: nats-server's flags, the subcommands, and the way to the running server.

Only what the given flags need is imported: a server is started hundreds of times by a test suite.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Sequence

from jsserver import NATS_VERSION, TYPE_CHECKING, __version__, called_as_jsserver, commit, program
from jsserver.text.flags import FlagError, UnknownFlag, parse, parse_bool, parse_int

if TYPE_CHECKING:
    from typing import Any, TextIO

    from jsserver.text.flags import Parser

# Flags that set one option; no value, 0 or "" leave it alone. A switch sets it either way.
_OPTIONS: dict[str, tuple[Parser, str]] = {
    "a": (str, "host"),
    "addr": (str, "host"),
    "net": (str, "host"),
    "p": (parse_int, "port"),
    "port": (parse_int, "port"),
    "n": (str, "server_name"),
    "name": (str, "server_name"),
    "server_name": (str, "server_name"),
    "P": (str, "pid_file"),
    "pid": (str, "pid_file"),
    "ports_file_dir": (str, "ports_file_dir"),
    "m": (parse_int, "http_port"),
    "http_port": (parse_int, "http_port"),
    "ms": (parse_int, "https_port"),
    "https_port": (parse_int, "https_port"),
    "client_advertise": (str, "client_advertise"),
    "l": (str, "log_file"),
    "log": (str, "log_file"),
    "log_size_limit": (parse_int, "log_size_limit"),
    "max_traced_msg_len": (parse_int, "max_traced_msg_len"),
    "sd": (str, "store_dir"),
    "store_dir": (str, "store_dir"),
    "user": (str, "authorization.username"),
    "pass": (str, "authorization.password"),
    "auth": (str, "authorization.token"),
    "T": (parse_bool, "logtime"),
    "logtime": (parse_bool, "logtime"),
    "logtime_utc": (parse_bool, "logtime_utc"),
    "D": (parse_bool, "debug"),
    "debug": (parse_bool, "debug"),
    "V": (parse_bool, "trace"),
    "trace": (parse_bool, "trace"),
    "tls": (parse_bool, "tls_flags.enabled"),
    "tlsverify": (parse_bool, "tls_flags.verify"),
    "tlscert": (str, "tls_flags.cert"),
    "tlskey": (str, "tls_flags.key"),
    "tlscacert": (str, "tls_flags.ca"),
    "js": (parse_bool, "jetstream.enabled"),
    "jetstream": (parse_bool, "jetstream.enabled"),
    "cluster": (str, "cluster.flag_listen"),
    "cluster_listen": (str, "cluster.flag_listen"),
    "routes": (str, "cluster.flag_routes"),
    "cluster_name": (str, "cluster.name"),
    "cluster_advertise": (str, "cluster.advertise"),
    "no_advertise": (parse_bool, "cluster.no_advertise"),
    "connect_retries": (parse_int, "cluster.connect_retries"),
}

# Switches that turn several options on.
_COMBINED: dict[str, tuple[str, ...]] = {
    "VV": ("trace", "trace_verbose"),
    "DV": ("debug", "trace"),
    "DVV": ("debug", "trace", "trace_verbose"),
}

# Flags that do something else.
_ACTIONS: dict[str, Parser] = {
    "c": str,
    "config": str,
    "t": parse_bool,
    "sl": str,
    "signal": str,
    "h": parse_bool,
    "help": parse_bool,
    "v": parse_bool,
    "version": parse_bool,
    "help_tls": parse_bool,
}

# Flags of nats-server for what is not built yet: refused unless they turn it off.
_UNAVAILABLE: dict[str, Parser] = {
    "s": parse_bool,
    "syslog": parse_bool,
    "r": str,
    "remote_syslog": str,
    "profile": parse_int,
}

_PARSERS: dict[str, Parser] = {
    **{name: parser for name, (parser, _) in _OPTIONS.items()},
    **dict.fromkeys(_COMBINED, parse_bool),
    **_ACTIONS,
    **_UNAVAILABLE,
}

_COMMANDS = ("version", "help", "bench", "check", "cluster", "consumer", "spark", "store")

_JOBS = "jsserver-spark"

_USAGE = """
Usage: {program} [options]
       {program} version | help | bench
       {program} check -c <file> [--json]
       {program} cluster drain | balance | compare | rescue | found | quarantine
       {program} consumer waits | pending | release | redrive
       {program} store check | dump | du | repair
       {program} spark archive | replay | verify | compact | expire | report | check

Server options:
    -a, --addr, --net <host>         Address to listen on (default: 0.0.0.0)
    -p, --port <port>                Port for clients (default: 4222; -1: any free one)
    -n, --name, --server_name <name> Name of this server (default: its id)
    -P, --pid <file>                 Write the process id to this file
    -m, --http_port <port>           Port for monitoring over HTTP (default: off)
    -ms, --https_port <port>         Port for monitoring over HTTPS (default: off)
    -c, --config <file>              Configuration file
    -t                               Check the configuration file and exit (check looks at the
                                     store too)
    -sl, --signal <signal>[=<pid>]   Signal a running server: ldm, stop, quit, term, reopen, reload;
                                     <pid> is a process id or a file that holds one
        --client_advertise <host>    Address to announce to clients
        --ports_file_dir <dir>       Write a file with the ports in use to this directory

Logging options:
    -l, --log <file>                 Log to this file (default: standard error)
        --log_size_limit <bytes>     Start a new log file at this size
    -T, --logtime                    Put the time into log lines (default: true)
        --logtime_utc                Log times in UTC
    -D, --debug                      Log debug messages
    -V, --trace                      Log the protocol
    -VV                              Log the protocol, the system account's too
    -DV                              Debug messages and protocol
    -DVV                             Debug messages and all protocol
        --max_traced_msg_len <len>   Cut logged payloads to this length

JetStream options:
    -js, --jetstream                 Turn JetStream on
    -sd, --store_dir <dir>           Directory for its data

Cluster options:
        --cluster <url>              Where other servers of the cluster connect (nats://host:port)
        --cluster_name <name>        Name of the cluster (default: one is made)
        --routes <url, ...>          Servers of the cluster to connect to
        --cluster_advertise <host>   Address to announce to other servers of the cluster
        --no_advertise               Tell clients and servers no addresses of clients' ports
        --connect_retries <n>        Attempts for servers that others have told of (default: 0)

Authorization options:
        --user <user>                Name that clients have to give
        --pass <password>            Password that clients have to give
        --auth <token>               Token that clients have to give

TLS options:
        --tls                        Clients must use TLS
        --tlscert <file>             Certificate, in PEM
        --tlskey <file>              Its private key
        --tlsverify                  Clients must have certificates
        --tlscacert <file>           Authorities that clients' certificates come from

Common options:
    -h, --help                       Show this text
        --help_tls                   Show how to set up TLS
    -v, --version                    Show the version
"""


_TLS_USAGE = """
TLS in a configuration file (docs/configure.md and docs/security.md say more):

    tls {
        cert_file: "/etc/jsserver/server.pem"   # certificate, and those up to the authority
        key_file:  "/etc/jsserver/server.key"   # its private key, readable by the server alone
        ca_file:   "/etc/jsserver/clients.pem"  # authorities of clients' certificates
        verify:    true                         # clients must have certificates
    }

verify_and_map: true takes users from their certificates, timeout: seconds bounds handshakes,
handshake_first: true begins with one, min_version, cipher_suites and curve_preferences narrow what
is used, pinned_certs names keys that may come.

On the command line: --tls --tlscert FILE --tlskey FILE, --tlsverify and --tlscacert FILE.
"""


def usage() -> str:
    """The help text."""
    return _USAGE.format(program=program())


def _versions() -> str:
    """First what scripts look for in nats-server's place, then the version of its own."""
    built = commit()
    own = f"jsserver: v{__version__}" + (f" ({built})" if built else "")
    return f"nats-server: v{NATS_VERSION}\n{own}"


def _nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant; "" when none is near."""
    import difflib  # only after a mistake

    return next(iter(difflib.get_close_matches(word, list(known), 1, 0.7)), "")


class CommandError(Exception):
    """A command line that cannot be served; the text says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the process's exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["bench"]:
        from jsserver.bench import main as bench

        code: int = bench.main(arguments[1:])
        return code
    if arguments[:1] == ["consumer"]:
        from jsserver.admin import consumers

        return consumers.main(arguments[1:])
    if arguments[:1] == ["cluster"]:
        from jsserver import clusters

        return clusters.main(arguments[1:])
    if arguments[:1] == ["store"]:
        from jsserver.offline.command import main as store

        return store(arguments[1:])
    if arguments[:1] == ["spark"]:
        return _spark(arguments[1:])
    if arguments[:1] == ["check"]:
        from jsserver import check

        return check.main(arguments[1:], _further)
    try:
        pairs, rest = parse(arguments, _PARSERS)
    except FlagError as error:
        _say(sys.stderr, str(error))
        if isinstance(error, UnknownFlag) and (near := _nearest(error.name, _PARSERS)):
            _say(sys.stderr, f"did you mean -{near}?")
        if called_as_jsserver():
            _say(sys.stderr, "jsserver --help shows all flags")
            return 2
        _say(sys.stdout, usage())  # as nats-server does, with its exit code
        return 0
    flags = dict(pairs)
    command = rest[0].lower() if rest else ""
    try:
        if flags.get("v") or flags.get("version"):
            _say(sys.stdout, _versions())
        elif flags.get("h") or flags.get("help"):
            _say(sys.stdout, usage())
        elif flags.get("help_tls"):
            _say(sys.stdout, _TLS_USAGE)
        elif command == "version":
            _say(sys.stdout, _versions())
        elif command == "help":
            _say(sys.stdout, usage())
        elif command:
            near = _nearest(command, _COMMANDS)
            hint = f'; did you mean "{near}"?' if near else ""
            raise CommandError(f'unrecognized command: "{rest[0]}"{hint}')
        else:
            return _serve(flags)
    except CommandError as error:
        _say(sys.stderr, f"{program()}: {error}")
        return 1
    return 0


def _spark(arguments: Sequence[str]) -> int:
    """The jobs around the streams' archive: a program of the pipeline's own distribution, which is
    beside this one or on the PATH. Does not return where it is found."""
    import shutil

    from jsserver.process import procs

    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    found = shutil.which(_JOBS, path=os.pathsep.join(folders))
    if found is None:
        _say(
            sys.stderr,
            f"{program()}: the jobs of Spark are a package of their own, {_JOBS}, which is not"
            " installed here: install it beside this one, from a checkout with"
            " pip install ./pipeline",
        )
        return 2
    os.execve(found, [found, *arguments], procs.environment_of_others())


def _serve(flags: dict[str, Any]) -> int:
    """Signals a server, checks a configuration or runs a server."""
    for name in _UNAVAILABLE:
        if flags.get(name):
            raise CommandError(f"flag -{name} is not available in this version of jsserver")
    signal = flags.get("sl") or flags.get("signal")
    if signal:
        _signal(signal)
        return 0
    path = flags.get("config") or flags.get("c") or ""
    if flags.get("t") and not path:
        raise CommandError("must specify [-c, --config] option to check configuration file syntax")
    # msgspec would rather have typing_extensions, where that is installed, than typing, and asyncio
    # takes ssl where it can: a server needs nothing of either, and each takes a tenth of the start.
    for unneeded in ("typing_extensions", "ssl"):
        sys.modules.setdefault(unneeded, None)  # type: ignore[arg-type]
    # What a start makes stays: to look for garbage in it would take a twentieth of the start, and
    # half of one with a long configuration. The server switches it on when it serves.
    gc.disable()
    # Not before it is needed: --version and --signal do without.
    from jsserver.config import ConfigError
    from jsserver.config.load import check, load

    try:
        if flags.get("t"):
            from jsserver.config.advice import warnings

            loaded = check(path, option_flags(flags))
            for line in loaded.without_effect + warnings(loaded.options):
                _say(sys.stderr, line)
            digest = loaded.options.config_digest
            _say(sys.stderr, f"{program()}: configuration file {path} is valid ({digest})")
            return 0
        loaded = load(path, option_flags(flags))
    except ConfigError as error:
        raise CommandError(str(error)) from None
    for warning in loaded.warnings:
        _say(sys.stderr, warning)
    _fill_standard_streams()
    from jsserver.start import run

    code: int = run(loaded.options, loaded.without_effect)
    return code


def _further(arguments: Sequence[str]) -> dict[str, Any]:
    """What the flags of a server set; FlagError."""
    pairs, rest = parse(arguments, _PARSERS)
    if rest:
        raise FlagError(f"unrecognized argument: {rest[0]}")
    return option_flags(dict(pairs))


def _fill_standard_streams() -> None:
    """Opens closed standard descriptors, lest a socket gets their number and the log's lines."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number is this one.


def option_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """What the flags set, by the name of the option."""
    options: dict[str, Any] = {}
    for name, value in flags.items():
        if name in _OPTIONS:
            parser, attribute = _OPTIONS[name]
            if value or parser is parse_bool:
                options[attribute] = value
        elif name in _COMBINED and value:
            options.update(dict.fromkeys(_COMBINED[name], True))
    return options


def _signal(command: str) -> None:
    from jsserver.process.signalling import SignalError, send

    try:
        send(command, os.path.basename(sys.argv[0]) or program())
    except SignalError as error:
        raise CommandError(str(error)) from None


def _say(stream: TextIO | None, text: str) -> None:
    """Writes a line; a reader that went away is none of our business."""
    if stream is None:
        return
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
