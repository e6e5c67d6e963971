"""The command line: flags in Go's syntax, outputs, streams and exit codes, signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jsserver import __version__, commit
from jsserver.cli import main, option_flags, usage
from jsserver.process import signalling
from jsserver.text.flags import FlagError, parse, parse_bool, parse_int

Output = pytest.CaptureFixture[str]
FLAGS: dict[str, Callable[[str], Any]]
FLAGS = {"p": parse_int, "port": parse_int, "D": parse_bool, "n": str}


# Go's flag syntax.


@pytest.mark.parametrize(
    ("arguments", "flags", "rest"),
    [
        ([], [], []),
        (["-p", "5"], [("p", 5)], []),
        (["--port=5", "-port", "-1"], [("port", 5), ("port", -1)], []),
        (["-D", "-n", "-x"], [("D", True), ("n", "-x")], []),
        (["-D=false", "-D=T", "--D=0"], [("D", False), ("D", True), ("D", False)], []),
        (["-D", "false", "-p", "5"], [("D", True)], ["false", "-p", "5"]),
        (["-n="], [("n", "")], []),
        (["-n=a=b"], [("n", "a=b")], []),
        (["-D", "--", "-p"], [("D", True)], ["-p"]),
        (["-", "-p"], [], ["-", "-p"]),
        (["-p", "0x10", "-p", "010", "-p", "1_000"], [("p", 16), ("p", 8), ("p", 1000)], []),
    ],
)
def test_flag_syntax(arguments: list[str], flags: list[Any], rest: list[str]) -> None:
    assert parse(arguments, FLAGS) == (flags, rest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-x"], "flag provided but not defined: -x"),
        (["--x=5"], "flag provided but not defined: -x"),
        (["-p"], "flag needs an argument: -p"),
        (["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
        (["-p", ""], 'invalid value "" for flag -p: parse error'),
        (["-p", "1.5"], 'invalid value "1.5" for flag -p: parse error'),
        (["-p", "9" * 20], f'invalid value "{"9" * 20}" for flag -p: value out of range'),
        (["-D=x"], 'invalid boolean value "x" for -D: parse error'),
        (["---p"], "bad flag syntax: ---p"),
        (["-=5"], "bad flag syntax: -=5"),
    ],
)
def test_flag_errors(arguments: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(arguments, FLAGS)
    assert str(caught.value) == message


def test_flags_become_options() -> None:
    flags = {"p": 5, "a": "", "m": 0, "D": False, "DVV": True, "user": "x", "js": True, "c": "f"}
    assert option_flags(flags) == {
        "port": 5,
        "debug": True,
        "trace": True,
        "trace_verbose": True,
        "authorization.username": "x",
        "jetstream.enabled": True,
    }


# Outputs and exit codes.


@pytest.mark.parametrize("arguments", [["-v"], ["--version"], ["version"], ["-v", "-c", "nope"]])
def test_version(arguments: list[str], capsys: Output) -> None:
    assert main(arguments) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "nats-server: v2.14.5"
    assert re.fullmatch(rf"jsserver: v{re.escape(__version__)}( \([0-9a-f]{{7}}\))?", second)


def test_a_wrong_flag_is_told_in_two_lines_where_nobody_looks_for_a_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/jsserver"])
    assert main(["-bogus"]) == 2
    said = "flag provided but not defined: -bogus\njsserver --help shows all flags\n"
    assert capsys.readouterr() == ("", said)


def test_help_about_tls(capsys: Output) -> None:
    assert main(["-help_tls"]) == main(["--help_tls"]) == 0
    out, err = capsys.readouterr()
    assert all(f"{name}: " in out for name in ("cert_file", "key_file", "ca_file", "verify"))
    assert err == ""


def test_a_consumer_command_without_words_shows_its_help(capsys: Output) -> None:
    assert main(["consumer"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "waits" in err and "--password" in err
    with pytest.raises(SystemExit):
        main(["consumer", "waits"])
    err = capsys.readouterr().err
    assert "stream, consumer" in err and "seqs\n" not in err and "{,max" not in err


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    (tmp_path / ".git/refs/heads").mkdir(parents=True)
    head, packed = tmp_path / ".git/HEAD", tmp_path / ".git/packed-refs"
    assert commit(str(tmp_path)) == ""
    head.write_text("ref: refs/heads/main\n")
    assert commit(str(tmp_path)) == ""
    packed.write_text(f"# pack-refs\n{'a' * 40} refs/heads/other\n{'b' * 40} refs/heads/main\n")
    assert commit(str(tmp_path)) == "b" * 7
    (tmp_path / ".git/refs/heads/main").write_text(f"{'c' * 40}\n")
    assert commit(str(tmp_path)) == "c" * 7
    head.write_text(f"{'d' * 40}\n")
    assert commit(str(tmp_path)) == "d" * 7


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["help"], ["-p", "5", "help"]])
def test_help(arguments: list[str], capsys: Output) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr() == (usage() + "\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-bogus"], "flag provided but not defined: -bogus"),
        (["--prot", "5"], "flag provided but not defined: -prot\ndid you mean -port?"),
        (["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
        (["-c"], "flag needs an argument: -c"),
    ],
)
def test_unreadable_flags_show_the_usage(
    arguments: list[str], message: str, capsys: Output
) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr() == (usage() + "\n", message + "\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["foo"], 'unrecognized command: "foo"'),
        (["sprak"], 'unrecognized command: "sprak"; did you mean "spark"?'),
        (["-T", "false"], 'unrecognized command: "false"'),
        (["-t"], "must specify [-c, --config] option to check configuration file syntax"),
        (["-c", "/nope.conf"], "open /nope.conf: no such file or directory"),
        (["--tls"], "TLS Server certificate must be present and valid"),
        (
            ["--routes", "nats://a:1"],
            "solicited routes require cluster capabilities, e.g. --cluster",
        ),
        (["--cluster", "nats://u@a:1"], "expected cluster password to be set"),
        (["--cluster", "a:1"], '--cluster "a:1": expected nats://host:port'),
        (
            ["--cluster", "nats://a:1", "--routes", "nats://b"],
            'error parsing route url ["nats://b"]: host or port is missing',
        ),
        (["-n", "a b"], "server name cannot contain spaces"),
        (["-p", "70000"], "port 70000 is not between 0 and 65535, nor -1"),
        (["-sl", "foo"], 'unknown signal "foo"'),
        (
            ["-sl", "stop=abc"],
            "invalid pid: abc: no process id, nor a file with one (no such file or directory)",
        ),
        (["-sl", "stop="], "invalid pid: "),
        (["-sl", "reload=99999999"], '\nsignal "reload" 99999999: no such process'),
    ],
)
def test_refusals(arguments: list[str], message: str, capsys: Output) -> None:
    assert main(arguments) == 1
    assert capsys.readouterr() == ("", f"nats-server: {message}\n")


def test_configuration_check(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "x.conf"
    file.write_text("port: 1234\n")
    assert main(["-t", "-c", str(file)]) == 0
    digest = "sha256:035281d976e2bf6fd4a769fc1b3154e850af924a6e7d050fd748767bb706e0f6"
    assert capsys.readouterr() == (
        "",
        f"nats-server: configuration file {file} is valid ({digest})\n",
    )
    file.write_text("foo: 1\n")
    assert main(["-t", "-c", str(file)]) == 1
    assert capsys.readouterr() == ("", f'nats-server: {file}:1:0: unknown field "foo"\n\n')
    file.write_text("foo = bar baz\n")
    assert main(["-c", str(file)]) == 1
    assert capsys.readouterr().err == (
        "nats-server: Parse error on line 1: 'Expected a top-level value to end with a new line, "
        "comment or EOF, but got 'b' instead.'\n"
    )


def test_the_command_line_loads_little() -> None:
    """What is imported before it is needed is paid at every start."""
    code = "import sys, jsserver.cli; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"asyncio", "argparse", "msgspec", "logging", "hashlib", "subprocess"}


def test_help_has_the_name_that_the_program_was_called_by(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    for name in ("jsserver", "nats-server"):
        monkeypatch.setattr(sys, "argv", [f"/usr/bin/{name}"])
        main(["help"])
        assert capsys.readouterr().out.startswith(f"\nUsage: {name} [options]\n")


def test_a_closed_standard_output_is_no_error() -> None:
    code = "import sys; from jsserver.cli import main; sys.exit(main(['--version']))"
    command = f'exec "{sys.executable}" -c "{code}" >&-'
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0


# Signals.


class Victim:
    """A process that writes down the signals it gets."""

    CODE = (
        "import signal, sys, time\n"
        "for name in ('INT', 'TERM', 'USR1', 'USR2', 'HUP'):\n"
        "    number = getattr(signal, 'SIG' + name)\n"
        "    signal.signal(number, lambda n, f: print(signal.Signals(n).name, flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(10)\n"
    )

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE], stdout=subprocess.PIPE, text=True
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def victim() -> Any:
    process = Victim()
    yield process
    process.process.kill()
    process.process.wait()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("quit", "SIGINT"),
        ("term", "SIGTERM"),
        ("reopen", "SIGUSR1"),
        ("reload", "SIGHUP"),
        ("ldm", "SIGUSR2"),
    ],
)
def test_signals(victim: Victim, command: str, name: str, capsys: Output) -> None:
    assert main(["--signal", f"{command}={victim.process.pid}"]) == 0
    assert victim.line() == name
    assert capsys.readouterr() == ("", "")


def test_a_signal_to_the_process_of_a_pid_file(victim: Victim, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    file.write_text(f"{victim.process.pid}\n")
    assert main(["-sl", f"stop={file}"]) == 0
    assert victim.process.wait(timeout=20) == -signal.SIGKILL


def fake_proc(folder: Path, processes: dict[int, tuple[str, int]]) -> str:
    for pid, (name, parent) in processes.items():
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
    (folder / "meminfo").write_text("")
    return str(folder)


def test_running_servers_are_found_without_their_launchers(tmp_path: Path) -> None:
    proc = fake_proc(
        tmp_path,
        {10: ("jsserver", 1), 11: ("jsserver", 10), 12: ("bash", 1), 13: ("a (b) jsserver", 1)},
    )
    assert signalling.running("jsserver", proc) == [11]
    assert signalling.running("nats-server", proc) == []


def test_which_processes_a_signal_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(signalling, "running", lambda program: pids)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    with pytest.raises(signalling.SignalError, match="no jsserver processes running"):
        signalling.send("reload", "jsserver")
    pids += [41, 42, 51]
    with pytest.raises(signalling.SignalError) as caught:
        signalling.send("reload", "jsserver")
    assert str(caught.value) == "multiple jsserver processes running:\n41\n42\n51"
    signalling.send("reload=4*", "jsserver")
    assert sent == [(41, signal.SIGHUP), (42, signal.SIGHUP)]
    del pids[1:]
    signalling.send("ldm", "jsserver")
    assert sent[2:] == [(41, signal.SIGUSR2)]


def test_the_jobs_of_spark_are_a_program_beside_this_one_or_on_the_path(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert main(["spark", "archive", "--help"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "pip install ./pipeline" in err
    run: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda path, words, environment: run.append([path, *words]))
    for folder in ("other", "bin"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "jsserver-spark"
        program.touch(mode=0o755)
        main(["spark", "archive", "lake"])
        assert run.pop() == [str(program), str(program), "archive", "lake"]
