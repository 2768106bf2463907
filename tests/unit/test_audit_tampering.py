"""A log or a bundle that was altered is found out, and the record or the bundle is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.bundle.contents import (
    TrainingInfo,
    decode_cut,
    encode_sidecars,
    encode_training_info,
    plane_stamp,
    read_training_info,
)
from cutlock.bundle.layout import DATA_PLANE, MANIFEST, TRAINING_INFO
from cutlock.bundle.manifest import decode_manifest, encode_manifest
from cutlock.bundle.verification import verify
from cutlock.errors import AuditError
from cutlock.plane.base import write_stamp
from cutlock.records import LedgerRecord, Phase, Snapshot
from tests.support.bundles import reseal
from tests.support.local_runs import Camera, Run, SlowUnits, Trouble, prompt_ids, tiny_config

SPARES = tiny_config(
    checkpoint={"every": 2, "keep": 9},
    buffer={"spare_prompts": 2},
    failures={"attempts": 2, "drop_budget": 6},
)
STALE = tiny_config(
    checkpoint={"every": 2, "keep": 9},
    sampler={"name": "windowed", "window": 0},
    buffer={"capacity": 6},
)
NARROW = tiny_config(checkpoint={"every": 1, "keep": 2, "cut": "narrow"})
PROMPTS = prompt_ids(SPARES)

Record = dict[str, Any]

NAMED = re.compile(r"incarnation-\d+\.ndjson:\d+ \w+: |step_\d+: |.*/incarnation-\d+\.ndjson:\d+: ")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three runs with every action in their logs, killed once and come to their end."""
    root = tmp_path_factory.mktemp("good")
    troubles = [
        (SPARES, Trouble(failing=frozenset(PROMPTS[1:2]), broken_puts=frozenset({2})), 4),
        (STALE, Trouble(slow=frozenset(PROMPTS[:1])), 2),
        (NARROW, Trouble(), 4),
    ]
    runs = []
    for number, (config, trouble, steps) in enumerate(troubles):
        run = Run.create(root / f"run-{number}", config, trouble)
        if config is NARROW:
            run.steps = SlowUnits()
        camera = Camera(
            run,
            root / f"killed-{number}",
            lambda number, action, before, steps=steps: (  # type: ignore[misc]
                action is Action.CLEAR_ROWS and before == steps - 1
            ),
        )
        run.first(config, camera)
        (killed,) = camera.kills
        killed.run.resume()
        assert killed.run.audit().ok
        assert killed.run.audit().restarts == 1
        runs.append(killed.run)
    return runs


def _log_with(good: list[Run], action: Action) -> tuple[Run, int, list[Record]]:
    for run in good:
        for incarnation in (1, 2):
            records = surviving(run, incarnation)
            if any(record["action"] == action for record in records):
                return run, incarnation, records
    raise AssertionError(f"no {action} in the good logs")


class Tampered:
    """A copy of a run, one of whose logs holds the action, and that log's records."""

    def __init__(self, good: list[Run], copy: Path, action: Action) -> None:
        self.run, self._incarnation, self.records = _log_with(good, action)
        self.run = self.run.copy(copy)
        self._undone = records_of(self.run, self._incarnation)[len(self.records) :]

    def places(self, action: Action) -> list[int]:
        return [i for i, record in enumerate(self.records) if record["action"] == action]

    def middle(self, action: Action) -> int:
        places = self.places(action)
        return places[len(places) // 2]

    def where(self, place: int) -> str:
        return f"incarnation-{self._incarnation}.ndjson:{place + 1} "

    def problems(self) -> list[str]:
        """What the audit says of the records as they are now."""
        lines = []
        for number, record in enumerate([*self.records, *self._undone]):
            lines.append(json.dumps({**record, "seq": number}) + "\n")
        self.run.directory.log_path(self._incarnation).write_text("".join(lines))
        return problems_of(self.run)


def problems_of(run: Run) -> list[str]:
    """All problems, each of which names a record or a bundle; none only if the audit is ok."""
    try:
        audit = run.audit()
    except AuditError as error:
        problems = [str(error)]
    else:
        problems = [*audit.problems]
        assert audit.ok is (not problems)
    return problems


def assert_named(problems: list[str]) -> None:
    assert problems
    assert NAMED.match(problems[0]), problems


def records_of(run: Run, incarnation: int) -> list[Record]:
    lines = run.directory.log_path(incarnation).read_text().splitlines()
    return [json.loads(line) for line in lines]


def surviving(run: Run, incarnation: int) -> list[Record]:
    records = records_of(run, incarnation)
    if incarnation == 2:
        return records
    resumed = next(r for r in records_of(run, 2) if r["action"] == Action.VERIFY_BUNDLE)
    return records[: resumed["args"]["log_records"]]


def test_the_good_logs_hold_every_action_but_failed_saves(good: list[Run]) -> None:
    found = {r["action"] for run in good for number in (1, 2) for r in surviving(run, number)}
    assert found == {*RECORDED}


IN_NO_LOG = {Action.CRASH, Action.STORE_ROW}
RECORDED = [a for a in Action if a not in {Action.FAIL_SAVE, Action.DROP_GROUP, *IN_NO_LOG}]

MAY_BE_ABSENT = {Action.SAVE_PLANE, Action.PRUNE_BUNDLES, Action.END_RUN}
"""A bundle without rows, a removal that failed, and a killed process."""


@pytest.mark.parametrize("action", [a for a in RECORDED if a not in MAY_BE_ABSENT])
def test_a_dropped_record_is_noticed(good: list[Run], ram_path: Path, action: Action) -> None:
    log = Tampered(good, ram_path / "copy", action)
    assert log.problems() == []
    del log.records[log.middle(action)]
    assert_named(log.problems())


@pytest.mark.parametrize("action", RECORDED)
def test_a_repeated_record_is_named(good: list[Run], ram_path: Path, action: Action) -> None:
    log = Tampered(good, ram_path / "copy", action)
    place = log.middle(action)
    log.records.insert(place, log.records[place])
    problems = log.problems()
    assert_named(problems)
    assert any(log.where(i) in problem for problem in problems for i in (place, place + 1))


PROSE = {
    (Action.BEGIN_RUN, "window"),
    (Action.BEGIN_RUN, "epochs"),
    (Action.BEGIN_RUN, "max_steps"),
    (Action.BEGIN_RUN, "capacity"),
    (Action.BEGIN_RUN, "spare_prompts"),
    (Action.BEGIN_RUN, "units"),
    (Action.END_RUN, "reason"),
    (Action.FAIL_GROUP, "error"),
    (Action.PRUNE_BUNDLES, "bundles"),
}
"""Arguments that say nothing about where a prompt is."""

CHANGEABLE = [
    (action, name)
    for action in RECORDED
    for name in ARGUMENTS[action]
    if (action, name) not in PROSE
]


@pytest.mark.parametrize(("action", "name"), CHANGEABLE)
def test_a_changed_argument_is_noticed(
    good: list[Run], ram_path: Path, action: Action, name: str
) -> None:
    log = Tampered(good, ram_path / "copy", action)
    record = log.records[log.middle(action)]
    value = record["args"][name]
    changed: object
    match value:
        case int():
            changed = value + 1
        case [first, *others]:
            changed = others or [f"not-{first}"]
        case []:
            changed = [f"{PROMPTS[0]}@0"]
        case str():
            changed = next(p for p in (f"{PROMPTS[0]}@0", f"{PROMPTS[2]}@0") if p != value)
        case None:
            changed = 0
    record["args"] = {**record["args"], name: changed}
    assert_named(log.problems())


@pytest.mark.parametrize("action", [Action.RESERVE_BATCH, Action.TRAIN_STEP, Action.RESTORE_LEDGER])
@pytest.mark.parametrize("name", ["groups", "admission", "step"])
def test_an_argument_of_another_type_is_named(
    good: list[Run], ram_path: Path, action: Action, name: str
) -> None:
    if name not in ARGUMENTS[action]:
        name = ARGUMENTS[action][0]
    log = Tampered(good, ram_path / "copy", action)
    place = log.middle(action)
    log.records[place]["args"] = {**log.records[place]["args"], name: {"of": "another"}}
    (problem,) = log.problems()
    assert problem.startswith(f"{log.where(place)}{action}: ")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Action.BEGIN_RUN, Action.START_PUMPS),
        (Action.RESERVE_BATCH, Action.RAISE_EPOCH),
        (Action.RESERVE_BATCH, Action.OPEN_GATE),
        (Action.OPEN_GATE, Action.COMMIT_ADMISSION),
        (Action.COMMIT_ADMISSION, Action.LAUNCH_GROUP),
        (Action.LAUNCH_GROUP, Action.BEGIN_COMMIT),
        (Action.BEGIN_COMMIT, Action.PUT_ROWS),
        (Action.PUT_ROWS, Action.COMMIT_GROUP),
        (Action.COMMIT_GROUP, Action.SELECT_GROUPS),
        (Action.FAIL_GROUP, Action.SUBSTITUTE_GROUP),
        (Action.SELECT_GROUPS, Action.WRITE_ADVANTAGES),
        (Action.WRITE_ADVANTAGES, Action.TRAIN_STEP),
        (Action.TRAIN_STEP, Action.CLEAR_ROWS),
        (Action.CLEAR_ROWS, Action.RAISE_VERSION),
        (Action.RAISE_VERSION, Action.SYNC_WEIGHTS),
        (Action.REQUEST_CUT, Action.OPEN_CUT),
        (Action.OPEN_CUT, Action.READ_CURSOR),
        (Action.READ_INDEX, Action.SAVE_PLANE),
        (Action.READ_LEDGER, Action.CLOSE_CUT),
        (Action.CLOSE_CUT, Action.WRITE_POLICY),
        (Action.REQUEST_CUT, Action.TAKE_CUT),
        (Action.TAKE_CUT, Action.COPY_POLICY),
        (Action.COPY_POLICY, Action.SAVE_PLANE),
        (Action.COPY_POLICY, Action.WRITE_POLICY),
        (Action.SAVE_PLANE, Action.SAVE_UNIT),
        (Action.SAVE_UNIT, Action.FLUSH_DEFERRED),
        (Action.FLUSH_DEFERRED, Action.WRITE_SIDECARS),
        (Action.WRITE_SIDECARS, Action.WRITE_MANIFEST),
        (Action.WRITE_MANIFEST, Action.PUBLISH_BUNDLE),
        (Action.PUBLISH_BUNDLE, Action.PRUNE_BUNDLES),
        (Action.VERIFY_BUNDLE, Action.LOAD_PLANE),
        (Action.RESTORE_INDEX, Action.RESTORE_CURSOR),
        (Action.RESTORE_LEDGER, Action.RESTORE_CURSOR),
    ],
)
def test_two_records_that_change_places_are_noticed(
    good: list[Run], ram_path: Path, first: Action, second: Action
) -> None:
    narrow = {Action.COPY_POLICY, Action.FLUSH_DEFERRED} & {first, second}
    log = Tampered(good[-1:] if narrow else good, ram_path / "copy", second)
    later = log.middle(second)
    earlier = max(place for place in log.places(first) if place < later)
    records = log.records
    records[earlier], records[later] = records[later], records[earlier]
    assert_named(log.problems())


def test_a_step_moved_between_a_narrow_cut_and_its_copy_is_named(
    good: list[Run], ram_path: Path
) -> None:
    log = Tampered(good, ram_path / "copy", Action.TAKE_CUT)
    copied = log.middle(Action.COPY_POLICY)
    selected = min(place for place in log.places(Action.SELECT_GROUPS) if place > copied)
    log.records.insert(copied, log.records.pop(selected))
    named = f"{log.where(copied + 1)}CopyPolicy: the stage of the open step is SelectGroups"
    assert any(problem.startswith(named) for problem in log.problems())


def test_a_commit_moved_into_the_exclusive_window_is_named(good: list[Run], ram_path: Path) -> None:
    log = Tampered(good, ram_path / "copy", Action.COMMIT_GROUP)
    opened = log.places(Action.OPEN_CUT)[1]
    commit = max(place for place in log.places(Action.COMMIT_GROUP) if place < opened)
    log.records.insert(opened, log.records.pop(commit))
    intruder = f"{log.where(opened)}CommitGroup: moves something while the cut"
    assert any(problem.startswith(intruder) for problem in log.problems())


def test_a_consistent_lie_about_who_trained_when_is_betrayed_by_the_policy(
    good: list[Run], ram_path: Path
) -> None:
    log = Tampered(good, ram_path / "copy", Action.TRAIN_STEP)
    other = {}
    for record in log.records:
        if record["action"] == Action.TRAIN_STEP and record["args"]["step"] < 2:
            other[1 - record["args"]["step"]] = record["args"]["groups"]
    batches = {*other[0], *other[1]}
    swapped = dict(zip([*other[1], *other[0]], [*other[0], *other[1]], strict=True))
    assert batches == {*swapped}
    text = json.dumps(log.records)
    # Everything that the logs ever say about these groups is told of the others.
    text = re.sub("|".join(map(re.escape, batches)), lambda match: swapped[match[0]], text)
    log.records[:] = json.loads(text)
    problems = log.problems()
    assert problems
    assert all("training chain" in p or "ledger" in p or "step_" in p for p in problems)
    assert any("training chain of the policy is" in problem for problem in problems)


# Bundles, altered and sealed again so that only their meaning is wrong.


def forge(
    bundle: Path, change: Callable[[Snapshot], Snapshot] = lambda cut: cut, **facts: Any
) -> None:
    verified = verify(bundle)
    cut = change(decode_cut(verified))
    info: TrainingInfo = msgspec.structs.replace(
        read_training_info(verified),
        cut_id=cut.cut_id,
        cursor=cut.cursor,
        epoch=cut.loader.epoch,
        **facts,
    )
    sidecars = encode_sidecars(cut)
    for name, data in sidecars.items():
        (bundle / name).write_bytes(data)
    (bundle / TRAINING_INFO).write_bytes(encode_training_info(info))
    assert info.plane is not None
    write_stamp(bundle / DATA_PLANE, plane_stamp(cut, sidecars, info.plane))
    manifest = decode_manifest((bundle / MANIFEST).read_bytes(), bundle)
    forged = msgspec.structs.replace(manifest, cut_id=cut.cut_id).sealed()
    (bundle / MANIFEST).write_bytes(encode_manifest(forged))
    reseal(bundle)
    decode_cut(verify(bundle))


replace = msgspec.structs.replace


def without_first(cut: Snapshot, field: str) -> Snapshot:
    assert getattr(cut, field)
    return replace(cut, **{field: getattr(cut, field)[1:]})


def trained_again(cut: Snapshot) -> Snapshot:
    """A group of the index is owed as well under another name: a trained prompt."""
    entry = cut.ledger[0].occurrence if cut.ledger else cut.index[0].occurrence
    again = replace(entry, prompt_id=PROMPTS[0], epoch=0)
    return replace(
        cut,
        ledger=(*cut.ledger, LedgerRecord(again.key, 0, again, Phase.ADMITTED, 0, 0, 0)),
    )


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("part of the ledger", lambda cut: without_first(cut, "ledger")),
        ("part of the ledger", trained_again),
        ("index", lambda cut: without_first(cut, "index")),
        ("spare pool", lambda cut: without_first(cut, "spare_pool")),
        ("cursor", lambda cut: replace(cut, cursor=cut.cursor + 1)),
        ("next admission", lambda cut: replace(cut, next_admission=cut.next_admission + 1)),
        ("number of prompts given up", lambda cut: replace(cut, dropped=cut.dropped + 1)),
        (
            "loader (epoch, position)",
            lambda cut: replace(cut, loader=replace(cut.loader, position=cut.loader.position + 1)),
        ),
        (
            "(admission, cursor, stamp, start weight)",
            lambda cut: replace(cut, index=(replace(cut.index[0], stamp=0), *cut.index[1:])),
        ),
    ],
)
def test_a_forged_cut_is_told_by_its_bundle(
    good: list[Run], ram_path: Path, what: str, change: Callable[[Snapshot], Snapshot]
) -> None:
    run = good[0].copy(ram_path / "copy")
    name = "step_2" if what == "spare pool" else "step_4"
    forge(run.root / name)
    assert problems_of(run) == []
    forge(run.root / name, change)
    problems = problems_of(run)
    assert any(p.startswith(f"{name}: ") and what in p for p in problems), problems


@pytest.mark.parametrize(
    ("what", "facts"),
    [
        ("number of trained groups", {"trained_groups": 3}),
        ("training chain of the policy", {"trained_chain": "0" * 64}),
        ("is no cut", {"log_records": 20}),
        ("whose log has", {"log_records": 10_000}),
        ("whose log is missing", {"incarnation": 7}),
    ],
)
def test_forged_facts_are_told_by_their_bundle(
    good: list[Run], ram_path: Path, what: str, facts: dict[str, Any]
) -> None:
    run = good[0].copy(ram_path / "copy")
    forge(run.root / "step_4", **facts)
    problems = problems_of(run)
    assert any(p.startswith("step_4: ") and what in p for p in problems), problems
