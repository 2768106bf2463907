"""Logs of real runs of a protocol, accepted by TLC as behaviours of its specification."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cutlock.bond.alphabet import Alphabet
from cutlock.bond.bond import Bond, S
from cutlock.errors import ConformanceError, ToolError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import value_from_itf, value_to_itf
from cutlock.tlc.logcheck import LogSpec, LogVerdict, check_logs, event
from cutlock.tlc.outcome import Progress
from cutlock.tlc.run import Toolchain
from cutlock.tlc.values import Function, Value, to_tla

__all__ = ["Accepted", "Journal", "Log", "accept", "accept_logs", "read_journal"]


class Journal:
    """The log of one run: its actions in the order of their effects."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.calls: list[ActionCall] = []
        self._alphabet = alphabet

    def note(self, name: str, /, **arguments: Value) -> None:
        """Write down an action, in the step in which it takes effect.

        Raises:
            ConformanceError: it is not of the alphabet.
        """
        self.calls.append(self._alphabet.call(name, **arguments))

    def save(self, path: Path) -> None:
        """Write the log as lines of JSON: `{"action": "Release", "args": {"who": "a"}}`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{_line(call)}\n" for call in self.calls), encoding="utf-8")


def read_journal(path: Path, alphabet: Alphabet) -> list[ActionCall]:
    """Read a log; fields beside `action` and `args`, a time for instance, are let be.

    Raises:
        ConformanceError: a line is no record, or its action is not of the alphabet; names file
            and line.
    """
    calls = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConformanceError(f"the log {path} cannot be read: {error}; name a log") from error
    for number, line in enumerate(lines, 1):
        try:
            read = json.loads(line)
            given = {str(name): value_from_itf(value) for name, value in read["args"].items()}
            calls.append(alphabet.call(read["action"], **given))
        except ConformanceError as error:
            raise ConformanceError(f"{path}:{number}: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError, ToolError) as error:
            raise ConformanceError(
                f"{path}:{number}: {line!r} is no record of a log: {error!r}; write "
                '{"action": NAME, "args": {...}} on each line'
            ) from error
    return calls


@dataclass(frozen=True)
class Log:
    """One log as the specification gets it."""

    name: str
    events: tuple[Value, ...]
    places: tuple[str, ...]
    """Where each event stands, for a person."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one log."""

    log: str
    ok: bool
    events: int
    accepted: int
    """Of the events."""
    refused: str | None = None
    """Where the first event stands that the specification does not allow."""
    broken: str | None = None
    """The promise that does not hold after that event; None if no step fits it."""
    state: dict[str, str] = {}
    """Before the event, or after it if a promise is broken."""

    @property
    def at(self) -> int:
        """The refused event, from 0; -1 if it is the initial state that breaks a promise."""
        # A promise is broken by the last event that could be taken.
        return self.accepted - (self.broken is not None)

    def __str__(self) -> str:
        """For a person."""
        if self.ok:
            return f"{self.log}: all {self.events} events accepted"
        why = "no step of the specification fits it"
        when = "before it"
        if self.broken is not None:
            why, when = f"{self.broken} does not hold any more", "after it"
        lines = [f"{self.log}: refused at {self.refused}: {why}; the state {when}:"]
        return "\n  ".join([*lines, *(f"{name} = {value}" for name, value in self.state.items())])


def accept(
    bond: Bond[S], logs: Mapping[str, Sequence[ActionCall]], toolchain: Toolchain
) -> tuple[Accepted, ...]:
    """Have TLC take the events of each log, by its name, one after the other.

    Raises:
        ConformanceError: the bond has no module that accepts logs, a log has no event, or an
            action is not of the alphabet.
        BudgetError: the time limit came first.
        ToolError: TLC failed.
    """
    if bond.logs is None:
        raise ConformanceError(
            f"{bond.name} has no module that accepts logs; give the bond `logs=LogSpec(...)`"
        )
    for name, calls in logs.items():
        if not calls:
            raise ConformanceError(
                f"the log {name} has no event, so accepting it would show nothing; leave it out"
            )
        for call in calls:
            bond.alphabet.check(call)
    given = [
        Log(
            name,
            tuple(event(call.name, call.arguments) for call in calls),
            tuple(f"event {at} of {len(calls)}, {call}" for at, call in enumerate(calls, 1)),
        )
        for name, calls in logs.items()
    ]
    return accept_logs(toolchain, bond.logs, given)


def accept_logs(
    toolchain: Toolchain,
    spec: LogSpec,
    logs: Sequence[Log],
    watch: Callable[[Progress], None] | None = None,
) -> tuple[Accepted, ...]:
    """Have TLC take the events of each log, one after the other, in one start of it.

    Args:
        watch: told how far TLC is, about once a minute.

    Raises:
        BudgetError: the time limit came first.
        ToolError: TLC failed.
    """
    verdicts = check_logs(toolchain, spec, [log.events for log in logs], watch=watch)
    return tuple(_accepted(log, verdict) for log, verdict in zip(logs, verdicts, strict=True))


def _accepted(log: Log, verdict: LogVerdict) -> Accepted:
    found = Accepted(
        log=log.name,
        ok=verdict.ok,
        events=verdict.length,
        accepted=verdict.accepted,
        broken=verdict.broken,
    )
    if verdict.ok:
        return found
    shown = verdict.shown if isinstance(verdict.shown, Function) else {}
    return msgspec.structs.replace(
        found,
        refused="the initial state" if found.at < 0 else log.places[found.at],
        state={str(variable): to_tla(value) for variable, value in shown.items()},
    )


def _line(call: ActionCall) -> str:
    arguments = {name: value_to_itf(value) for name, value in call.arguments.items()}
    return json.dumps({"action": call.name, "args": arguments})
