"""What may change between a save and its resume: one rule per field of the configuration.

A field is refused if the saved state would have another meaning under a new value. It adapts if
the saved state is interpreted under the new value, by the rule given here. It is free if nothing
saved depends on it. `docs/resume.md` shows this table.

Source: design, section 10.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutlock.errors import ConfigMismatchError
from cutlock.run.config import RunConfig

__all__ = ["RULES", "FieldRule", "Rule", "require_resumable"]


class Rule(enum.StrEnum):
    """What happens if the value has changed."""

    REFUSED = "refused"
    REFUSED_WITH_ROWS = "refused with rows"
    """Without the rows of the bundle it is free."""
    ADAPTS = "adapts"
    FREE = "free"


@dataclass(frozen=True)
class FieldRule:
    """The rule of one field, and its reason, or what adapting means."""

    rule: Rule
    why: str


def _refused(why: str) -> FieldRule:
    return FieldRule(Rule.REFUSED, why)


def _with_rows(why: str) -> FieldRule:
    return FieldRule(Rule.REFUSED_WITH_ROWS, why)


def _adapts(why: str) -> FieldRule:
    return FieldRule(Rule.ADAPTS, why)


def _free(why: str) -> FieldRule:
    return FieldRule(Rule.FREE, why)


_OTHER_SAMPLER = "cursor and stamps have another meaning under another sampler"
_OTHER_DATA = "the saved position means nothing in another data set"
_A_LIMIT = "a limit that applies from now on"
_WATCHED = "monitoring does not affect the run"

RULES: Mapping[str, FieldRule] = {
    "seed": _refused("the order of the prompts depends on it"),
    "epochs": _adapts(
        "the run now ends after this many epochs; the epoch in progress is completed; a value "
        "below the epoch already reached is refused"
    ),
    "max_steps": _adapts("steps are counted over restarts; an exhausted budget ends the run"),
    "prompts_per_step": _refused("stamps were given to batches of the saved size"),
    "group_size": _refused("saved groups have the saved size"),
    "sampler.name": _refused(_OTHER_SAMPLER),
    "sampler.window": _adapts(
        "gate and staleness follow it; a narrower window evicts stale groups, and records them"
    ),
    "sampler.order": _adapts("the choice among finished groups follows it"),
    "sampler.path": _refused(_OTHER_SAMPLER),
    "sampler.options": _adapts(
        "the class is created with them and gets its cursor back; if it has only admit() and its "
        "gate stays shut for more than a step, the run ends with an error that names it"
    ),
    "buffer.capacity": _adapts(
        "places are counted again; too few for the finished groups and the next step are refused"
    ),
    "buffer.max_in_flight": _free("a limit on generation from now on"),
    "buffer.spare_prompts": _adapts(
        "the saved pool is kept, filled up below the new mark, and drained at the end"
    ),
    "checkpoint.every": _free("the interval of later saves"),
    "checkpoint.cut": _free(
        "a bundle does not depend on how it was cut; the default depends on the plane"
    ),
    "checkpoint.keep": _adapts("surplus older bundles are removed after the next save"),
    "checkpoint.rows": _adapts(
        "later bundles follow it; missing rows of this bundle are generated again"
    ),
    "checkpoint.limit_s": _free(_A_LIMIT),
    "checkpoint.failures_in_a_row": _free("failures are counted from 0"),
    "failures.attempts": _free("tries of a group are counted from 0"),
    "failures.drop_budget": _adapts("drops are counted over restarts; one beyond it ends the run"),
    "plane.kind": _with_rows("the saved rows are in the format of the saved kind"),
    "plane.units": _with_rows("rows are placed by unit"),
    "plane.partition": _with_rows("the saved rows are in that partition"),
    "plane.limit_s": _free(_A_LIMIT),
    "plane.unit_limit_s": _free(_A_LIMIT),
    "plane.snapshot": _free("the rows that a restore reads are the same"),
    "workers.generators": _free("generators have no saved state"),
    "workers.token_delay_s": _free("generators have no saved state"),
    "workers.learning_rate": _adapts("the saved optimizer continues with it"),
    "workers.limit_s": _free(_A_LIMIT),
    "workers.group_limit_s": _free(_A_LIMIT),
    "workers.step_limit_s": _free(_A_LIMIT),
    "task.prompts": _refused(_OTHER_DATA),
    "task.length": _refused(_OTHER_DATA),
    "task.vocabulary": _refused(_OTHER_DATA),
    "watchdog.stall_s": _free(_A_LIMIT),
    "watchdog.action": _free("applies to stalls from now on"),
    "watchdog.controller_s": _free(_A_LIMIT),
    "metrics.port": _free(_WATCHED),
    "metrics.host": _free(_WATCHED),
    "metrics.transfer_queue": _free(_WATCHED),
}
"""By the path of the field; every field of `RunConfig` and of each sampler has one."""


def require_resumable(saved: RunConfig, now: RunConfig, *, with_rows: bool) -> None:
    """Refuse a changed field that the saved state depends on.

    Bounds of fields that adapt depend on what the bundle holds, and are checked with it.

    Args:
        with_rows: whether finished groups are restored with their tensors.

    Raises:
        ConfigMismatchError: with the field, both values and the way out.
    """
    refusing = {Rule.REFUSED, Rule.REFUSED_WITH_ROWS} if with_rows else {Rule.REFUSED}
    before, after = saved.plain(), now.plain()
    for field, rule in RULES.items():
        was, is_now = _value(before, field), _value(after, field)
        if rule.rule in refusing and was != is_now:
            way_out = f"set {field} = {was!r}"
            if rule.rule is Rule.REFUSED_WITH_ROWS:
                way_out += " or resume with --without-rows"
            raise ConfigMismatchError(
                f"{field} was {was!r} when the bundle was saved and is {is_now!r} now; "
                f"{rule.why}; {way_out}"
            )


def _value(config: Mapping[str, Any], field: str) -> object:
    """The value at a path; None where a sampler has no such field."""
    value: Any = config
    for name in field.split("."):
        value = value.get(name)
    return value
