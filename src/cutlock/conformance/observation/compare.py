"""What a difference between specification and code usually means."""

from __future__ import annotations

from cutlock.alphabet import Action

__all__ = ["likely_cause"]

_CAUSES = (
    ({"up"}, "a stage of the start was refused or skipped"),
    ({"door", "sv"}, "the save does not stand where the spec has it: a cut opened or ended apart"),
    ({"pos", "epoch", "raising"}, "the loader's position and what was done with its batch differ"),
    ({"led", "index", "order"}, "an owner changed in one place and not in the other"),
    ({"rows", "derived", "deferred"}, "the plane and the index changed apart"),
    ({"idx", "wt", "cursor", "gate"}, "dispatch was counted or stamped differently"),
    ({"short"}, "a lost group was credited to another step, or not at all"),
    ({"pool"}, "another spare was taken"),
    ({"version", "tp", "claimed", "computed"}, "the training step has come to another point"),
    ({"cap"}, "the save captured something else than the state of the cut"),
    ({"disk", "saved"}, "what was published is not the cut"),
    ({"trained", "dropped"}, "the history counts a group differently"),
    ({"task"}, "a rollout's task stands elsewhere"),
    ({"failures", "crashes"}, "the schedule counted trouble differently"),
)


def likely_cause(action: str, variables: frozenset[str]) -> str:
    """A sentence about what a difference in these variables after that action usually means."""
    what = next(
        (cause for names, cause in _CAUSES if names & variables),
        "the two do not have the same variables",
    )
    early = "; it may have begun before this action" if action == Action.END_RUN else ""
    return f"{what}{early}."
