"""`jsserver cluster`: a server drained, leaders and replicas balanced, and replicas compared, while
clients go on."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from enum import IntEnum

from jsserver.admin import compare, session
from jsserver.admin.carrying import PAUSE, Carrier, News, Step
from jsserver.admin.plan import Cluster, Lead, Move, Plan, balance, drain
from jsserver.admin.session import CommandFailed
from jsserver.admin.survey import survey
from jsserver.admin.system import System
from jsserver.client.login import add_login
from jsserver.text.tables import table

ROUNDS = 5
"""How often what was placed meanwhile is looked for."""


class Code(IntEnum):
    """Exit codes."""

    DONE = 0
    FAILED = 1
    STUCK = 3
    """Something cannot leave the server; 2 is for a command line that cannot be read."""


class _Teller:
    """Says what is planned and done, to people or, as one JSON object a line, to programs."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json

    def plan(self, plan: Plan) -> None:
        """Leaders first, then replicas, then what cannot leave."""
        if self._json:
            shown = plan._asdict().items()
            self.line({"plan": {kind: [one._asdict() for one in steps] for kind, steps in shown}})
            return
        heads = ("what", "of", "from", "to", "size")
        rows = [("leader", _name(one), one.source, one.target, "") for one in plan.leads]
        rows += [
            ("replica", _name(one), one.source, one.target, _bytes(one.size)) for one in plan.moves
        ]
        if rows:
            print(table(heads, rows, len(heads)))
        for stuck in plan.stuck:
            print(f"{stuck.account}/{stuck.stream} cannot leave: {stuck.reason}")

    def news(self, news: News) -> None:
        """How a step goes on."""
        step = news.step
        what = "leader" if isinstance(step, Lead) else "replica"
        if self._json:
            said = {"what": what, **step._asdict(), "outcome": news.outcome.value}
            self.line({"step": said | ({"text": news.text} if news.text else {})})
            return
        text = f": {news.text}" if news.text else ""
        print(f"{what} of {_name(step)}: {news.outcome.value}{text}", flush=True)

    def end(self, text: str, **more: object) -> None:
        """The last word."""
        if self._json:
            self.line({"result": text, **more})
        else:
            print(text)

    @staticmethod
    def line(said: object) -> None:
        """One object."""
        print(json.dumps(said), flush=True)


def _name(step: Step) -> str:
    if isinstance(step, Move):
        return f"{step.account}/{step.stream}"
    return "/".join(filter(None, (step.account, step.stream, step.consumer))) or "meta group"


def _bytes(size: int) -> str:
    scaled, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if scaled < 1000 or unit == "TB":
            break
        scaled /= 1000
    return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"


def _wanted(options: argparse.Namespace) -> bool:
    """Whether what is shown is to be done."""
    if options.apply or options.json or not sys.stdin.isatty():
        return bool(options.apply)
    return input("Carry this out? [y/N] ").strip().lower() in ("y", "yes")


def run_drain(system: System, options: argparse.Namespace) -> int:
    """Move everything that a server leads and holds to other servers."""
    tell, name = _Teller(options.json), options.name
    found = survey(system)
    if name not in found.servers:
        known = ", ".join(sorted(found.servers))
        raise CommandFailed(f"there is no server {name!r} with JetStream; there are {known}")
    plan = drain(found, name)
    tell.plan(plan)
    if plan.stuck and not options.partial:
        few = "1 replica" if len(plan.stuck) == 1 else f"{len(plan.stuck)} replicas"
        tell.end(f"{few} cannot leave {name}; nothing was changed (--partial moves the others)")
        return Code.STUCK
    if not (plan.leads or plan.moves):
        tell.end(f"{name} leads and holds nothing" + (" that can leave" if plan.stuck else ""))
        return Code.STUCK if plan.stuck else Code.DONE
    if not _wanted(options):
        tell.end("nothing was changed (--apply carries it out)")
        return Code.DONE
    carrier = Carrier(system, tell.news, patience=options.patience)
    failed, tried = 0, {(move.account, move.stream) for move in plan.moves}
    for _ in range(ROUNDS):
        carrier.leads(plan.leads)  # what fails here leaves with its replica
        failed += carrier.moves(plan.moves, options.together)
        found = survey(system)
        plan = drain(found, name)
        fresh = [one for one in plan.moves if (one.account, one.stream) not in tried]
        if not fresh:
            break
        tried |= {(one.account, one.stream) for one in fresh}
        plan = plan._replace(moves=fresh)
    end = time.monotonic() + options.patience
    while not failed and _held(found, name) > len(plan.stuck) and time.monotonic() < end:
        time.sleep(PAUSE)  # consumers leave after their stream
        found = survey(system)
    held = _held(found, name)
    tell.end(f"{name} holds {held} still" if held else f"{name} holds nothing any more", held=held)
    if failed or held > len(plan.stuck):
        return Code.FAILED
    return Code.STUCK if held else Code.DONE


def _held(found: Cluster, name: str) -> int:
    """How many streams a server holds, or consumers of."""
    return sum(
        name in stream.holders or any(name in one.holders for one in stream.consumers)
        for stream in found.streams
    )


def run_balance(system: System, options: argparse.Namespace) -> int:
    """Have all servers lead and hold about the same."""
    tell = _Teller(options.json)
    found = survey(system)
    plan = balance(found)
    tell.plan(plan)
    away = sorted(one.name for one in found.servers.values() if not one.reachable)
    if away:
        print(f"left out, as they cannot be reached: {', '.join(away)}", file=sys.stderr)
    if not (plan.leads or plan.moves):
        tell.end("all servers carry about the same")
        return Code.DONE
    if not _wanted(options):
        tell.end("nothing was changed (--apply carries it out)")
        return Code.DONE
    carrier = Carrier(system, tell.news, patience=options.patience)
    failed, left = 0, len(plan.moves)
    while plan.moves and left > 0 and not failed:
        # Where a replica goes is not for this client to say: what comes next follows from it.
        some = plan.moves[: min(options.together, left)]
        left -= len(some)
        failed += carrier.moves(some, options.together)
        plan = balance(survey(system))
    failed += carrier.leads(plan.leads)
    tell.end("balanced" if not failed else f"{failed} steps failed", failed=failed)
    return Code.FAILED if failed else Code.DONE


COMMANDS: dict[str, tuple[Callable[[System, argparse.Namespace], int], str]] = {
    "drain": (run_drain, "Move everything that a server leads and holds to other servers"),
    "balance": (run_balance, "Have all servers lead and hold about the same"),
    "compare": (
        compare.run,
        "Compares what replicas of streams hold, and says which one differs",
    ),
}
"""What carries a command out, and its help. (The executable has no docstrings.)"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds these commands to those of `jsserver cluster`; `run` of their options carries one
    out."""
    for name, (_, text) in COMMANDS.items():
        one = commands.add_parser(name, help=text[0].lower() + text[1:], description=text + ".")
        one.set_defaults(run=run)
        add_login(one)
        one.add_argument("--json", action="store_true", help="one JSON object a line")
        if name == "compare":
            compare.add_arguments(one)
            continue
        if name == "drain":
            one.add_argument("name", help="name of the server")
            one.add_argument("--partial", action="store_true", help="move what can be moved")
        one.add_argument("--apply", action="store_true", help="carry the plan out, do not ask")
        one.add_argument(
            "--together", type=_count, default=4, help="replicas that move at a time, default 4"
        )
        one.add_argument(
            "--patience",
            type=float,
            default=60,
            help="seconds for which a move may stand still, default 60",
        )


def _count(text: str) -> int:
    """A number of things that there must be one of; ValueError."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def run(options: argparse.Namespace) -> int:
    """Carries out the command that the options are of; the process's exit code."""
    work = COMMANDS[options.command][0]
    return session.run("jsserver cluster", options, lambda made: work(System(made), options))
