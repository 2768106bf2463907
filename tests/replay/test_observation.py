from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.conformance.stepping.planes import MemoryHost
from cutlock.records import Occurrence
from cutlock.tlc.values import Function
from tests.replay.script import Script, everything

CHANGES = {
    Action.BEGIN_RUN: "up",
    Action.VERIFY_BUNDLE: "up",
    Action.LOAD_PLANE: "up rows",
    Action.CONNECT_PLANE: "up",
    Action.RESTORE_INDEX: "up idx index order",
    Action.RESTORE_SPARE_POOL: "up pool",
    Action.RESTORE_LEDGER: "up short",
    Action.RESTORE_CURSOR: "up cursor epoch pos version",
    Action.START_PUMPS: "up saved",
    Action.END_RUN: "",
    Action.RESERVE_BATCH: "led pos raising",
    Action.FILL_SPARE_POOL: "pool pos",
    Action.RAISE_EPOCH: "epoch raising",
    Action.DRAIN_SPARE_POOL: "led pool",
    Action.OPEN_GATE: "gate",
    Action.COMMIT_ADMISSION: "cursor gate idx led wt",
    Action.LAUNCH_GROUP: "task",
    Action.BEGIN_COMMIT: "task",
    Action.PUT_ROWS: "rows task",
    Action.COMMIT_GROUP: "index led order task",
    Action.ROLLBACK_GROUP: "failures rows task",
    Action.FAIL_GROUP: "failures task",
    Action.DROP_GROUP: "dropped idx led short task",
    Action.SUBSTITUTE_GROUP: "dropped idx led pool task",
    Action.ABORT_STALE: "dropped idx led task wt",
    Action.EVICT_GROUPS: "dropped idx index order rows wt",
    Action.SELECT_GROUPS: "claimed idx index order short tp wt",
    Action.WRITE_ADVANTAGES: "computed derived tp",
    Action.TRAIN_STEP: "tp trained",
    Action.CLEAR_ROWS: "claimed computed deferred derived rows tp",
    Action.RAISE_VERSION: "tp version",
    Action.SYNC_WEIGHTS: "tp up",
    Action.REQUEST_CUT: "door sv tp",
    Action.OPEN_CUT: "door sv",
    Action.READ_CURSOR: "cap sv",
    Action.READ_LOADER: "cap sv",
    Action.READ_SPARE_POOL: "cap sv",
    Action.READ_INDEX: "cap sv",
    Action.READ_LEDGER: "cap sv",
    Action.TAKE_CUT: "cap door sv",
    Action.COPY_POLICY: "sv tp",
    Action.SAVE_PLANE: "cap sv",
    Action.SAVE_UNIT: "cap",
    Action.FLUSH_DEFERRED: "deferred derived rows",
    Action.STORE_ROW: "rows",
    Action.CLOSE_CUT: "door sv",
    Action.WRITE_POLICY: "cap",
    Action.WRITE_SIDECARS: "cap",
    Action.WRITE_MANIFEST: "cap",
    Action.PUBLISH_BUNDLE: "cap disk saved sv",
    Action.PRUNE_BUNDLES: "sv tp",
    Action.FAIL_SAVE: "door failures sv tp",
    Action.CRASH: "crashes cursor epoch idx index order pool pos rows saved short up version",
}
"""Action to the variables that it changes in the runs of `everything`."""


def test_each_action_changes_its_variables_and_no_other(ram_path: Path) -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for script in everything(ram_path):
        for call, before, after in zip(script.done, script.states, script.states[1:], strict=False):
            found[call.name].update(name for name in after if after[name] != before[name])
    assert found == {action: set(names.split()) for action, names in CHANGES.items()}


def test_each_variable_is_changed_by_some_action(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        changed = {name for names in CHANGES.values() for name in names.split()}
        assert set(script.state) - changed == set()


def living(script: Script) -> Incarnation:
    assert script.stepper.incarnation is not None
    return script.stepper.incarnation


def test_rows_are_those_of_the_store(ram_path: Path) -> None:
    with Script(ram_path / "run", units=("u1", "u2")) as script:
        script.start().to(Action.PUT_ROWS)
        assert script.state["rows"] == frozenset({((1, 1), "u1"), ((1, 1), "u2")})
        host = script.stepper.host
        assert isinstance(host, MemoryHost)
        assert host._bootstrap is not None
        host._bootstrap.store.units[0].clear()
        assert script.stepper.state()["rows"] == frozenset({((1, 1), "u2")})


def test_a_group_of_which_a_row_is_missing_in_a_unit_is_not_there(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.PUT_ROWS)
        host = script.stepper.host
        assert isinstance(host, MemoryHost)
        assert host._bootstrap is not None
        host._bootstrap.store.units[0].popitem()
        assert script.stepper.state()["rows"] == frozenset()


@pytest.mark.parametrize("name", ["led", "pool", "cursor", "version", "short"])
def test_memory_is_that_of_the_parts(ram_path: Path, name: str) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.LAUNCH_GROUP)
        state = living(script).engine.state
        occurrence = Occurrence(0, 0, script.bounds.group((2, 1)).rpartition("@")[0], "")
        match name:
            case "led":
                state.ledger._records.clear()
            case "pool":
                state.pool._spares.append(occurrence)
            case "cursor":
                state.sampler._cursor = 7  # type: ignore[union-attr]
            case "version":
                state.version.raise_to(7)
            case "short":
                state.shortfall._missing[1] = 1
        after = script.stepper.state()
        changed = {found for found in after if after[found] != script.state[found]}
        assert changed - {"idx"} == {name}


def test_the_published_bundle_is_that_of_the_files(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.COMMIT_GROUP, without=(Action.REQUEST_CUT,)).save()
        disk = script.state["disk"]
        assert isinstance(disk, Function)
        assert disk["index"] == frozenset({(1, 1)})
        assert disk["files"] == frozenset({"policy", "sidecars", "manifest", "u1"})
        assert set(disk["of"].values()) == {0}  # type: ignore[union-attr]
        (ram_path / "run" / "step_0").rename(ram_path / "elsewhere")
        assert script.stepper.state()["disk"] == script.states[0]["disk"]


def test_a_bundle_whose_files_are_of_two_saves_shows_it(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.PUBLISH_BUNDLE)
        old = (ram_path / "run" / "step_0" / "train_dataloader.pt").read_bytes()
        script.to(Action.SYNC_WEIGHTS).do(Action.REQUEST_CUT)
        script.to(Action.WRITE_SIDECARS)
        (ram_path / "run" / "tmp_step_1" / "train_dataloader.pt").write_bytes(old)
        disk = script.to(Action.PUBLISH_BUNDLE).state["disk"]
        assert isinstance(disk, Function)
        assert isinstance(disk["of"], Function)
        assert dict(disk["of"]) == {**dict.fromkeys(disk["of"], 1), "loader": 0}
        assert disk["pos"] == 0


def test_a_bundle_without_a_file_shows_which(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.WRITE_MANIFEST)
        (ram_path / "run" / "tmp_step_0" / "training_info.json").unlink()
        disk = script.do(Action.PUBLISH_BUNDLE)["disk"]
        assert isinstance(disk, Function)
        assert disk["files"] == frozenset({"policy", "manifest", "u1"})
        script.do(Action.CRASH)
        script.do(Action.BEGIN_RUN)
        assert script.do(Action.VERIFY_BUNDLE)["up"] == "refused"


def test_what_the_open_save_has_written_is_read_off_its_directory(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.COMMIT_GROUP, without=(Action.REQUEST_CUT,))
        script.to(Action.WRITE_SIDECARS)
        cap = script.state["cap"]
        assert isinstance(cap, Function)
        assert cap["files"] == frozenset({"u1", "policy", "sidecars"})
        assert cap["rows"] == frozenset({((1, 1), "u1")})
        (ram_path / "run" / "tmp_step_0" / "training_info.json").unlink()
        cap = script.stepper.state()["cap"]
        assert isinstance(cap, Function)
        assert cap["files"] == frozenset({"u1", "policy"})


def test_what_was_dropped_before_a_crash_survives_with_the_bundle_only(ram_path: Path) -> None:
    with Script(ram_path / "run", batches=3, per_epoch=3) as script:
        script.start().to(Action.LAUNCH_GROUP)
        for prompt, saved in (((1, 1), True), ((2, 1), False)):
            script.go(lambda s, p=prompt: s.state["task"][p] == "gen")  # type: ignore[misc]
            script.do(Action.FAIL_GROUP, prompt, gives_up=True)
            script.do(Action.DROP_GROUP, prompt)
            if saved:
                script.to(Action.SYNC_WEIGHTS).save()
        assert script.state["dropped"] == frozenset({(1, 1), (2, 1)})
        script.do(Action.CRASH)
        assert script.state["dropped"] == frozenset({(1, 1)})
        script.start()
        assert script.state["dropped"] == frozenset({(1, 1)})
        script.finish()
