"""The promises as plain functions over what a run has left on disk.

They know the data set, the event log and the bundle, and none of the runtime's own books.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from cutlock.alphabet import Action
from cutlock.conformance.stepping.moves import SAVE_STOPS
from cutlock.events import Record
from cutlock.loader import epoch_order
from cutlock.records import IndexEntry, Snapshot
from cutlock.run.config import RunConfig
from cutlock.workers.base import PromptSet

WINDOW = tuple(
    action
    for action in SAVE_STOPS[: SAVE_STOPS.index(Action.CLOSE_CUT) + 1]
    if action not in {Action.TAKE_CUT, Action.COPY_POLICY, Action.SAVE_UNIT}
)
"""The stop points inside the exclusive window of a full save, in order."""

BACKGROUND = (
    Action.SAVE_PLANE,
    Action.SAVE_UNIT,
    *SAVE_STOPS[SAVE_STOPS.index(Action.CLOSE_CUT) + 1 :],
)
"""The stop points of a narrow save that come while the run goes on."""

OUTSIDE_EVERY_SLOT = frozenset({Action.OPEN_GATE, Action.LAUNCH_GROUP, Action.FAIL_GROUP})
"""Actions that move no prompt and so may fall into an exclusive window."""


def groups_of(records: Iterable[Record], *actions: Action) -> list[str]:
    """The groups that these actions name, in order."""
    found: list[str] = []
    for record in records:
        if record.action in actions:
            named = record.args.get("groups", [record.args.get("group")])
            assert isinstance(named, list)
            found += named
    return found


def trained(records: Iterable[Record]) -> list[str]:
    return groups_of(records, Action.TRAIN_STEP)


def trained_per_step(records: Iterable[Record]) -> dict[int, list[str]]:
    return {
        int(str(record.args["step"])): sorted(groups_of([record], Action.TRAIN_STEP))
        for record in records
        if record.action == Action.TRAIN_STEP
    }


def lost_on_purpose(records: Iterable[Record]) -> list[str]:
    """Groups that were dropped, replaced, aborted or evicted."""
    return groups_of(
        records,
        Action.DROP_GROUP,
        Action.SUBSTITUTE_GROUP,
        Action.ABORT_STALE,
        Action.EVICT_GROUPS,
    )


def served(config: RunConfig, prompts: PromptSet) -> list[str]:
    """All occurrences in the order in which the loader hands them out."""
    return [
        f"{prompts[position].prompt_id}@{epoch}"
        for epoch in range(config.epochs)
        for position in epoch_order(len(prompts), epoch, config.seed)
    ]


def assert_one_owner(
    snapshot: Snapshot, past: Sequence[Record], config: RunConfig, prompts: PromptSet
) -> None:
    """P2: every occurrence is in exactly one place on disk.

    Args:
        past: the surviving history up to the cut.
    """
    order = served(config, prompts)
    handed_out = snapshot.loader.epoch * len(prompts) + snapshot.loader.position
    places: dict[str, Collection[str]] = {
        "unread": order[handed_out:],
        "pool": [spare.key for spare in snapshot.spare_pool],
        "ledger": [record.group_id for record in snapshot.ledger],
        "index": [entry.group_id for entry in snapshot.index],
        "trained": trained(past),
        "dropped": lost_on_purpose(past),
    }
    owners: dict[str, list[str]] = {group_id: [] for group_id in order}
    for place, group_ids in places.items():
        for group_id in group_ids:
            owners.setdefault(group_id, []).append(place)
    wrong = {group_id: found for group_id, found in owners.items() if len(found) != 1}
    assert not wrong, f"not exactly one owner: {wrong}"


def assert_counters(snapshot: Snapshot, past: Sequence[Record], config: RunConfig) -> None:
    """P3: cursor, stamps and counts are of the instant of the cut."""
    for entry in (*snapshot.index, *snapshot.ledger):
        for index in (entry.dispatch_index, entry.stamp):
            assert index is None or index <= snapshot.cursor, f"{entry} is past {snapshot.cursor}"
    sampler = config.plain()["sampler"]
    if sampler["name"] not in ("windowed", "custom"):
        assert snapshot.cursor <= snapshot.version + sampler["window"]
    admissions = [record for record in past if record.action == Action.COMMIT_ADMISSION]
    cursors = [record.args["cursor"] for record in admissions]
    assert cursors == list(range(snapshot.cursor + 1)), f"{cursors} up to {snapshot.cursor}"
    if sampler["name"] == "in_order":
        assert [record.args["stamp"] for record in admissions] == cursors
    steps = sum(record.action == Action.RAISE_VERSION for record in past)
    assert (snapshot.step, snapshot.version) == (steps, steps)
    drops = len(groups_of(past, Action.DROP_GROUP, Action.SUBSTITUTE_GROUP))
    assert snapshot.dropped == drops


def assert_rows(index: Iterable[IndexEntry], keys: Collection[str]) -> None:
    """P4: the rows are exactly those of the index."""
    indexed = {key for entry in index for key in entry.row_keys}
    assert set(keys) == indexed, f"{sorted(set(keys) ^ indexed)} on one side only"


def assert_quiet_window(records: Sequence[Record]) -> None:
    """P1: since the last cut has opened, and until it has closed, nothing else happened."""
    opened = max(r.seq for r in records if r.action == Action.OPEN_CUT)
    closed = next(
        (r.seq for r in records if r.action == Action.CLOSE_CUT and r.seq > opened), len(records)
    )
    window = [Action(r.action) for r in records[opened : closed + 1]]
    foreign = [a for a in window if a not in WINDOW and a not in OUTSIDE_EVERY_SLOT]
    assert not foreign, f"{foreign} inside the exclusive window {window}"


def assert_all_accounted(
    history: Sequence[Record], config: RunConfig, prompts: PromptSet, *, lost: int = 0
) -> None:
    """P5 and P7: a run that has ended has trained everything once, but for `lost` drops."""
    ends = Counter([*trained(history), *lost_on_purpose(history)])
    assert ends == Counter(served(config, prompts)), f"trained or dropped: {dict(ends)}"
    assert len(lost_on_purpose(history)) == lost
