"""Asks TLC whether logs of events are behaviours of a specification; many logs in one run.

A module is generated that extends the specification and holds the logs. It takes the events
of a log in their order, each by the specification's own `Step(event)`, and prints a verdict
where a log is at its end, where no step fits the next event, or where an invariant is broken.
Nothing is reported as a violation, for TLC would print every state of a long log. That no
step fits is seen from the register of the last place at which one did, which costs nothing;
ENABLED would take every step twice. So there is one worker.

Where a step can be taken in several ways, a log is accepted if one of them leads to its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutlock.errors import BudgetError, ToolError
from cutlock.tlc.outcome import Outcome, Progress, Verdict
from cutlock.tlc.run import Job, Toolchain
from cutlock.tlc.values import Function, Value, parse_value, to_tla

__all__ = ["LogSpec", "LogVerdict", "check_logs", "event", "log_module"]

_MODULE = "LogCheck"
_TAKEN = 1
"""The register of TLC with the last place, log and event, at which a step was taken."""


@dataclass(frozen=True)
class LogSpec:
    """The specification that logs are held against.

    Every name is an operator of `module` or of what it extends.
    """

    module: Path
    """The `.tla` file; its folder is searched for the modules that it extends."""
    constants: str = ""
    """The CONSTANTS part of a configuration, as text."""
    init: str = "Init"
    step: str = "Step"
    """Operator of one argument: the step that the event stands for."""
    invariants: tuple[str, ...] = ()
    """Checked in every state that a log leads to."""
    show: str | None = None
    """Expression whose value in the last accepted state is reported when a log is refused."""
    libraries: tuple[Path, ...] = ()


@dataclass(frozen=True)
class LogVerdict:
    """What became of one log."""

    ok: bool
    accepted: int
    """Events that could be taken; if no invariant is broken, the index of the refused one."""
    length: int
    broken: str | None = None
    """The invariant that the last accepted event, or the initial state, has broken."""
    shown: Value | None = None
    """Value of the expression to show."""


def event(name: str, arguments: Mapping[str, Value]) -> Value:
    """An event as the specification gets it: `[name |-> "Fill", units |-> 2]`."""
    return Function([("name", name), *arguments.items()])


def check_logs(
    toolchain: Toolchain,
    spec: LogSpec,
    logs: Sequence[Sequence[Value]],
    heap: str = "2g",
    limit_s: float = 600.0,
    watch: Callable[[Progress], None] | None = None,
) -> tuple[LogVerdict, ...]:
    """The verdict on each log, in their order.

    Args:
        watch: told what TLC reports, about once a minute.

    Raises:
        BudgetError: the time limit came first.
        ToolError: TLC failed, or did not come to a verdict on every log.
        ValueError: an event has a value that a TLA+ module cannot hold.
    """
    if not logs:
        return ()
    tree = _Tree(logs)
    with tempfile.TemporaryDirectory(prefix="cutlock-logs-") as work:
        module = Path(work, f"{_MODULE}.tla")
        module.write_text(_module(spec, tree), encoding="ascii")
        config = Path(work, f"{_MODULE}.cfg")
        config.write_text(
            f"{spec.constants}\nINIT LogInit\nNEXT LogNext\nCONSTRAINT LogVerdict\n",
            encoding="utf-8",
        )
        outcome = toolchain.run(
            Job(
                module=module,
                config=config,
                deadlock=False,
                libraries=(spec.module.absolute().parent, *spec.libraries),
                heap=heap,
                tiny=len(tree.event_of) < 1000,
                limit_s=limit_s,
            ),
            watch,
        )
    return _verdicts(outcome, tree, logs)


class _Tree:
    """Logs as a tree, so that a beginning that several of them share is checked once.

    A node stands for an event after the events above it, the root for the time before all
    events. Nodes are numbered from 1 on, the root first; if node n has nodes after it, the
    first of them is n + 1.
    """

    def __init__(self, logs: Sequence[Sequence[Value]]) -> None:
        self.events: dict[str, int] = {}
        """Text of an event to its number, from 1."""
        self.event_of: list[int] = []
        """By node; 0 at the root."""
        self.depth_of: list[int] = []
        self.logs_of: list[list[int]] = []
        """By node, the logs that go through it."""
        self.ends: set[Value] = set()
        """Nodes at which a log ends."""
        self.forks: list[frozenset[Value]] = []
        """The nodes after a node, but for the first."""
        numbered = [
            [self.events.setdefault(to_tla(happened), len(self.events) + 1) for happened in log]
            for log in logs
        ]
        leaves = set()
        others: dict[int, set[Value]] = {}
        pending = [(0, 0, 0, [*range(len(logs))])]
        while pending:
            parent, event_number, depth, through = pending.pop()
            self.event_of.append(event_number)
            self.depth_of.append(depth)
            self.logs_of.append(through)
            node = len(self.event_of)
            if parent and node != parent + 1:
                others.setdefault(parent, set()).add(node)
            after: dict[int, list[int]] = {}
            for log in through:
                if depth < len(numbered[log]):
                    after.setdefault(numbered[log][depth], []).append(log)
                else:
                    self.ends.add(node)
            if not after:
                leaves.add(node)
            pending += [(node, number, depth + 1, those) for number, those in after.items()]
        self.after: list[int] = []
        """By node: -1 for a leaf, 0 for one node after it, n for those of the n-th fork too."""
        for node in range(1, len(self.event_of) + 1):
            if node in others:
                self.forks.append(frozenset(others[node]))
            self.after.append(-1 if node in leaves else len(self.forks) if node in others else 0)


def log_module(spec: LogSpec, logs: Sequence[Sequence[Value]]) -> str:
    """The text of the generated module."""
    return _module(spec, _Tree(logs))


def _module(spec: LogSpec, tree: _Tree) -> str:
    shown = f", {spec.show}" if spec.show else ""
    promises = "\n".join(rf'    /\ {name} \/ LogBroken("{name}")' for name in spec.invariants)
    return rf"""---- MODULE {_MODULE} ----
EXTENDS Integers, Sequences, TLC, {spec.module.stem}
VARIABLE logNode
LogEvents == {_tuple(tree.events)}
LogEventOf == {_tuple(map(str, tree.event_of))}
LogEnds == {to_tla(frozenset(tree.ends))}
LogForks == {_tuple(map(to_tla, tree.forks))}
LogForkOf == {_tuple(map(str, tree.after))}
LogAfter ==
    CASE LogForkOf[logNode] = -1 -> {{}}
      [] LogForkOf[logNode] = 0 -> {{logNode + 1}}
      [] OTHER -> LogForks[LogForkOf[logNode]] \cup {{logNode + 1}}
LogPrint(verdict) == PrintT(ToString(verdict))
\* FALSE, so that the log ends there.
LogBroken(name) == LogPrint(<<"BROKEN", logNode, name{shown}>>) /\ FALSE
LogInit == {spec.init} /\ logNode = 1 /\ TLCSet({_TAKEN}, 0)
LogTake(node) ==
    /\ {spec.step}(LogEvents[LogEventOf[node]])
    /\ logNode' = node
    /\ TLCSet({_TAKEN}, node)
\* Comes second: if no step fits, the register still holds another node.
LogRefuse(node) ==
    /\ TLCGet({_TAKEN}) # node
    /\ LogPrint(<<"BAD", node{shown}>>)
    /\ FALSE
    /\ logNode' = node
LogNext == \E node \in LogAfter : LogTake(node) \/ LogRefuse(node)
LogVerdict ==
{promises}
    /\ logNode \in LogEnds => LogPrint(<<"OK", logNode>>)
====
"""


def _tuple(items: Iterable[str]) -> str:
    return "<<" + ",\n".join(items) + ">>"


def _verdicts(
    outcome: Outcome, tree: _Tree, logs: Sequence[Sequence[Value]]
) -> tuple[LogVerdict, ...]:
    if outcome.verdict is Verdict.BUDGET:
        raise BudgetError(f"{len(logs)} logs: {'; '.join(outcome.messages)}; give it more time")
    if outcome.verdict is not Verdict.SUCCESS:
        raise ToolError(
            f"logs: {outcome.verdict.value}: {'; '.join(outcome.messages)}; mend the specification "
            "that the logs are checked against"
        )
    best: dict[int, LogVerdict] = {}
    for line in outcome.printed:
        if not line.startswith('"<<'):
            continue
        for log, verdict in _read_verdicts(line, tree, logs):
            known = best.get(log)
            if known is None or (verdict.ok, verdict.accepted) > (known.ok, known.accepted):
                best[log] = verdict
    missing = [str(number) for number in range(len(logs)) if number not in best]
    if missing:
        raise ToolError(
            f"no verdict on logs {', '.join(missing[:10])} of {len(logs)}; "
            "is the initial predicate ever true, and does nothing else constrain the model?"
        )
    return tuple(best[number] for number in range(len(logs)))


def _read_verdicts(
    line: str, tree: _Tree, logs: Sequence[Sequence[Value]]
) -> Iterator[tuple[int, LogVerdict]]:
    """What one line says of the logs through its node."""
    text = parse_value(line)
    assert isinstance(text, str)
    match parse_value(text):
        case ("OK", int(node)):
            for log in tree.logs_of[node - 1]:
                if len(logs[log]) == tree.depth_of[node - 1]:
                    yield log, LogVerdict(True, len(logs[log]), len(logs[log]))
        case ("BAD", int(node), *shown):
            accepted, value = tree.depth_of[node - 1] - 1, shown[0] if shown else None
            for log in tree.logs_of[node - 1]:
                yield log, LogVerdict(False, accepted, len(logs[log]), shown=value)
        case ("BROKEN", int(node), str(name), *shown):
            accepted, value = tree.depth_of[node - 1], shown[0] if shown else None
            for log in tree.logs_of[node - 1]:
                yield log, LogVerdict(False, accepted, len(logs[log]), name, value)
        case _:
            raise ToolError(f"not a verdict on a log: {line}; let the module print nothing else")
