"""Logs of real runs of a protocol, accepted by TLC as behaviours of its specification."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cutlock.bond.alphabet import Alphabet
from cutlock.bond.bond import Bond, S
from cutlock.errors import ConformanceError, ToolError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import value_from_itf, value_to_itf
from cutlock.tlc.logcheck import LogVerdict, check_logs, event
from cutlock.tlc.run import Toolchain
from cutlock.tlc.values import Function, Value, to_tla

__all__ = ["Accepted", "Journal", "accept", "read_journal"]


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


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one log."""

    log: str
    ok: bool
    events: int
    accepted: int
    """Of the events."""
    refused: str | None = None
    """The first event that the specification does not allow, with its place from 1."""
    broken: str | None = None
    """The promise that does not hold after that event; None if no step fits it."""
    state: dict[str, str] = {}
    """Before the event, or after it if a promise is broken."""

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
    events = [[event(call.name, call.arguments) for call in calls] for calls in logs.values()]
    verdicts = check_logs(toolchain, bond.logs, events)
    return tuple(
        _accepted(name, calls, verdict)
        for (name, calls), verdict in zip(logs.items(), verdicts, strict=True)
    )


def _accepted(name: str, calls: Sequence[ActionCall], verdict: LogVerdict) -> Accepted:
    if verdict.ok:
        return Accepted(log=name, ok=True, events=verdict.length, accepted=verdict.accepted)
    # A promise is broken by the last event that could be taken.
    at = verdict.accepted - (verdict.broken is not None)
    refused = "the initial state" if at < 0 else f"event {at + 1} of {len(calls)}, {calls[at]}"
    shown = verdict.shown if isinstance(verdict.shown, Function) else {}
    return Accepted(
        log=name,
        ok=False,
        events=verdict.length,
        accepted=verdict.accepted,
        refused=refused,
        broken=verdict.broken,
        state={str(variable): to_tla(value) for variable, value in shown.items()},
    )


def _line(call: ActionCall) -> str:
    arguments = {name: value_to_itf(value) for name, value in call.arguments.items()}
    return json.dumps({"action": call.name, "args": arguments})
