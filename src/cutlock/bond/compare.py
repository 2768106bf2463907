"""Where two states differ, in the notation of the spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cutlock.errors import ConformanceError
from cutlock.tlc.values import IDENTIFIER, Function, Value, to_tla

__all__ = ["Difference", "differences"]


@dataclass(frozen=True)
class Difference:
    """One place in which specification and code disagree."""

    path: str
    """Variable, and the way into it, e.g. `disk.led[<<1, 2>>]`."""
    spec: Value | None
    """None if the specification has nothing there."""
    code: Value | None
    """None if nothing was observed there."""

    @property
    def variable(self) -> str:
        """The variable that it is in."""
        return self.path.partition(".")[0].partition("[")[0]

    def __str__(self) -> str:
        """As a line of a report."""
        return f"{self.path}: spec {_shown(self.spec)}, code {_shown(self.code)}"


def differences(spec: Mapping[str, Value], code: Mapping[str, Value]) -> tuple[Difference, ...]:
    """All differences of two states, by variable.

    Raises:
        ConformanceError: what was observed is no value of TLA+.
    """
    found: list[Difference] = []
    for name in sorted({*spec, *code}):
        some = [*_between(name, spec.get(name), code.get(name))]
        if some and name in code:
            _require_value(name, code[name])
        found += some
    return tuple(found)


def _require_value(name: str, seen: Value) -> None:
    try:
        to_tla(seen)
    except (TypeError, ValueError) as error:
        raise ConformanceError(
            f"the observation of {name} is no value of TLA+: {error}; give int, str, bool, "
            "tuple, frozenset, ModelValue or Function"
        ) from error


def _between(path: str, spec: Value | None, code: Value | None) -> Iterator[Difference]:
    # TRUE equals 1 in Python.
    if spec == code and isinstance(spec, bool) is isinstance(code, bool):
        return
    if isinstance(spec, Function) and isinstance(code, Function):
        keys = {to_tla(key): key for key in (*spec, *code)}
        for text in sorted(keys):
            key = keys[text]
            step = f".{key}" if isinstance(key, str) and IDENTIFIER.fullmatch(key) else f"[{text}]"
            yield from _between(path + step, spec.get(key), code.get(key))
    else:
        yield Difference(path, spec, code)


def _shown(value: Value | None) -> str:
    return "nothing" if value is None else to_tla(value)
