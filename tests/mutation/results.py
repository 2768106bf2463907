"""What became of every mutant, and the table of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

COLUMNS = ("module", "mutants", "killed", "hung", "survived", "score")


@dataclass(frozen=True)
class Outcome:
    """One mutant; one that hangs a test counts as killed, one that no test enters does not."""

    status: str
    """`killed`, `hung`, `survived` or `untested`."""
    by: str
    """The test that failed or hung."""
    digest: str
    """Of the function that the mutant is of: in another one the same name is another mutant."""

    @property
    def alive(self) -> bool:
        return self.status in {"survived", "untested"}


Outcomes = dict[str, Outcome]
"""By the name that mutmut gives to the mutant."""


def read(path: Path) -> Outcomes:
    kept = json.loads(path.read_text()) if path.exists() else {}
    return {name: Outcome(**values) for name, values in kept.items()}


def write(outcomes: Outcomes, path: Path) -> None:
    path.write_text(json.dumps({name: asdict(o) for name, o in outcomes.items()}, indent=1))


def module_of(mutant: str) -> str:
    return mutant.rpartition(".")[0].removeprefix("cutlock.")


def score(outcomes: Outcomes) -> float:
    """Killed and hung, in per cent of all."""
    return 100 * sum(not o.alive for o in outcomes.values()) / max(1, len(outcomes))


def table(outcomes: Outcomes) -> Iterator[tuple[str, ...]]:
    """Rows of `COLUMNS`, one per module and one for all."""
    for module in (*sorted({module_of(name) for name in outcomes}), "all"):
        part = {n: o for n, o in outcomes.items() if module in {module_of(n), "all"}}
        count = Counter(o.status for o in part.values())
        alive = count["survived"] + count["untested"]
        numbers = len(part), count["killed"], count["hung"], alive
        yield (module, *map(str, numbers), f"{score(part):.1f} %")
