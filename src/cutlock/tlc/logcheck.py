"""Asks TLC whether logs of events are behaviours of a specification; many logs in one run.

A module is generated that extends the specification and holds the logs. It takes the events
of a log in their order, each by the specification's own `Step(event)`, and prints a verdict
where a log is at its end, where no step fits the next event, or where an invariant is broken.
Nothing is reported as a violation, for TLC would print every state of a long log.

Where a step can be taken in several ways, a log is accepted if one of them leads to its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutlock.errors import BudgetError, ToolError
from cutlock.tlc.outcome import Outcome, Verdict
from cutlock.tlc.run import Job, Toolchain
from cutlock.tlc.values import Function, Value, parse_value, to_tla

__all__ = ["LogSpec", "LogVerdict", "check_logs", "event", "log_module"]

_MODULE = "LogCheck"


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
) -> tuple[LogVerdict, ...]:
    """The verdict on each log, in their order.

    Raises:
        BudgetError: the time limit came first.
        ToolError: TLC failed, or did not come to a verdict on every log.
        ValueError: an event has a value that a TLA+ module cannot hold.
    """
    if not logs:
        return ()
    with tempfile.TemporaryDirectory(prefix="cutlock-logs-") as work:
        module = Path(work, f"{_MODULE}.tla")
        module.write_text(log_module(spec, logs), encoding="ascii")
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
                tiny=sum(map(len, logs)) < 1000,
                limit_s=limit_s,
            )
        )
    return _verdicts(outcome, logs)


def log_module(spec: LogSpec, logs: Sequence[Sequence[Value]]) -> str:
    """The text of the generated module."""
    numbers: dict[str, int] = {}
    indexes = [
        [numbers.setdefault(to_tla(happened), len(numbers) + 1) for happened in log] for log in logs
    ]
    shown = f", {spec.show}" if spec.show else ""
    promises = "".join(f'    /\\ {name} \\/ LogBroken("{name}")\n' for name in spec.invariants)
    return f"""---- MODULE {_MODULE} ----
EXTENDS Integers, Sequences, TLC, {spec.module.stem}
VARIABLES logNumber, logNext
LogEvents == {_tuple(numbers)}
LogAll == {_tuple(_tuple(map(str, log)) for log in indexes)}
LogPrint(verdict) == PrintT(ToString(verdict))
\\* FALSE, so that the log ends there.
LogBroken(name) == LogPrint(<<"BROKEN", logNumber, logNext, name{shown}>>) /\\ FALSE
LogLength == Len(LogAll[logNumber])
LogInit ==
    /\\ {spec.init}
    /\\ logNumber \\in 1..{len(logs)}
    /\\ logNext = 1
LogNext ==
    /\\ logNext <= LogLength
    /\\ {spec.step}(LogEvents[LogAll[logNumber][logNext]])
    /\\ logNext' = logNext + 1
    /\\ UNCHANGED logNumber
LogVerdict ==
{promises}    /\\ IF logNext > LogLength
       THEN LogPrint(<<"OK", logNumber>>)
       ELSE ENABLED LogNext \\/ LogPrint(<<"BAD", logNumber, logNext{shown}>>)
====
"""


def _tuple(items: Iterable[str]) -> str:
    return "<<" + ",\n".join(items) + ">>"


def _verdicts(outcome: Outcome, logs: Sequence[Sequence[Value]]) -> tuple[LogVerdict, ...]:
    if outcome.verdict is Verdict.BUDGET:
        raise BudgetError(f"{len(logs)} logs: {'; '.join(outcome.messages)}; give it more time")
    if outcome.verdict is not Verdict.SUCCESS:
        raise ToolError(f"logs: {outcome.verdict.value}: {'; '.join(outcome.messages)}")
    best: dict[int, LogVerdict] = {}
    for line in outcome.printed:
        if not line.startswith('"<<'):
            continue
        number, verdict = _read_verdict(line, logs)
        known = best.get(number)
        if known is None or (verdict.ok, verdict.accepted) > (known.ok, known.accepted):
            best[number] = verdict
    missing = [str(number) for number in range(len(logs)) if number not in best]
    if missing:
        raise ToolError(
            f"no verdict on logs {', '.join(missing[:10])} of {len(logs)}; "
            "is the initial predicate ever true, and does nothing else constrain the model?"
        )
    return tuple(best[number] for number in range(len(logs)))


def _read_verdict(line: str, logs: Sequence[Sequence[Value]]) -> tuple[int, LogVerdict]:
    text = parse_value(line)
    assert isinstance(text, str)
    match parse_value(text):
        case ("OK", int(number)):
            length = len(logs[number - 1])
            return number - 1, LogVerdict(True, length, length)
        case ("BAD", int(number), int(following), *shown):
            length = len(logs[number - 1])
            value = shown[0] if shown else None
            return number - 1, LogVerdict(False, following - 1, length, shown=value)
        case ("BROKEN", int(number), int(following), str(name), *shown):
            length = len(logs[number - 1])
            value = shown[0] if shown else None
            return number - 1, LogVerdict(False, following - 1, length, name, value)
    raise ToolError(f"not a verdict on a log: {line}")
