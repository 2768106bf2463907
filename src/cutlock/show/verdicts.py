"""What the specification says of a run: from `cutlock validate`, or kept beside a rejected run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from cutlock.conformance.validation.logs import Refusal, Validation
from cutlock.errors import AuditError, ConfigError
from cutlock.show.logs import Refused

__all__ = ["Verdict", "verdict_on"]


@dataclass(frozen=True)
class Verdict:
    """What is known of a run."""

    refused: Refused | None
    """None: it is accepted."""


class _Expected(msgspec.Struct, frozen=True):
    """`expected.json` of a rejected run."""

    run: str
    what: str
    where: str


def verdict_on(root: Path, validation: Path | None) -> Verdict | None:
    """What is known of a run; None if nobody has asked.

    Args:
        root: its directory.
        validation: what `cutlock validate --json` has written.

    Raises:
        ConfigError: the validation is none, or of other runs.
        AuditError: what is kept beside the run is not what it should be.
    """
    if validation is not None:
        return _validated(root, validation)
    path = root / "expected.json"
    if not path.exists():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Expected)
    except msgspec.DecodeError as error:
        raise AuditError(
            f"{path} does not say what was told otherwise: {error}; mend or remove it"
        ) from error
    return Verdict(
        Refused(
            where=found.where,
            what=found.what,
            told=(
                f"told otherwise than in the log of {found.run}: {found.what}",
                f"the specification does not allow {found.where}",
            ),
        )
    )


def _validated(root: Path, validation: Path) -> Verdict:
    try:
        found = msgspec.json.decode(validation.read_bytes(), type=Validation)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{validation} is no result of `cutlock validate --json`: {error}; give the "
            "file that it has written"
        ) from error
    for run in found.runs:
        if Path(run.run) == root:
            return Verdict(_refused(run.refusal) if run.refusal is not None else None)
    names = ", ".join(run.run for run in found.runs)
    raise ConfigError(
        f"{validation} says nothing of {root}, but of {names or 'no run'}; validate this run"
    )


def _refused(refusal: Refusal) -> Refused:
    action = refusal.where.rpartition(" ")[2]
    if refusal.broken is not None:
        what = f"{refusal.broken} does not hold after it"
        when = "after"
    else:
        what = f"the specification allows no such {action} here"
        when = "before"
    groups = ", ".join(f"{prompt} is {group}" for prompt, group in refusal.groups.items())
    state = ", ".join(f"{name} = {value}" for name, value in refusal.state.items())
    return Refused(
        where=refusal.where,
        what=what,
        told=(
            f"{what}: {refusal.event}" + (f"; {groups}" if groups else ""),
            f"the state {when} it: {state}",
        ),
    )
