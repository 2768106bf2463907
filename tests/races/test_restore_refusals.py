"""What a restore refuses, and that a refusal has launched nothing and changed nothing."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from cutlock.alphabet import Action
from cutlock.bundle.layout import LEDGER, MANIFEST, POLICY, SIDECARS, STAMP, TRAINING_INFO
from cutlock.controller.assembly import build_prompts
from cutlock.errors import (
    BundleCorruptError,
    CapacityError,
    ConfigMismatchError,
    CutlockError,
    InventoryError,
    MisuseError,
    PlaneTouchedError,
    RestoreError,
)
from cutlock.plane.base import READABLE_VERSIONS, DataPlane, PlaneInfo
from cutlock.records import digest_of
from cutlock.run.config import RunConfig
from cutlock.run.engine import Run
from cutlock.run.restore import (
    PlaneConnected,
    PlaneReady,
    Restored,
    ResumePlan,
    _require_readable,
    connect_plane,
    load_plane,
    restore_state,
    verify_for_resume,
    with_way_out,
)
from cutlock.workers.base import WEIGHTS_FILE
from tests.support.bundles import reseal, save
from tests.support.rig import Rig, config_of
from tests.support.samplers import AdmitOnly, NotRestorable
from tests.support.situations import (
    EVERY_STEP,
)


class Untouched:
    """Shows that a refusal has changed nothing: no file, no row, no client, no launch."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._files = self._read()
        self._starts = len(rig.incarnations)

    async def check(self) -> None:
        assert self._read() == self._files
        assert len(self._rig.incarnations) == self._starts
        await self._rig.harness.bootstrap.require_untouched()

    def _read(self) -> dict[str, bytes]:
        root = self._rig.directory.root
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }


async def refused(
    rig: Rig, bundle: Path, error: type[CutlockError], says: str, config: RunConfig | None = None
) -> None:
    await rig.harness.start()
    before = Untouched(rig)
    with pytest.raises(error, match=says):
        await rig.resume(bundle, config)
    await before.check()


async def three_ready(rig: Rig) -> Path:
    """A bundle with three finished groups: one of the next step, two of the step after it."""
    run = await rig.run_to(1)
    ready = [rig.batch(1)[0], *rig.batch(2)]
    await run.commit(*ready)
    return await run.save_and_crash(1)


CHANGED = {
    "capacity": (
        {"sampler": {"window": 0}},
        CapacityError,
        "step_1 holds 3 finished groups and the buffer capacity is 2; .*at least 4",
    ),
    "group size": ({"group_size": 4}, ConfigMismatchError, "group_size was 2 .* and is 4 now"),
    "prompts per step": (
        {"prompts_per_step": 4},
        ConfigMismatchError,
        "prompts_per_step was 2 .* and is 4 now",
    ),
    "sampler": (
        {"sampler": {"name": "ready_first"}},
        ConfigMismatchError,
        "sampler.name was 'in_order' .* and is 'ready_first' now",
    ),
    "seed": ({"seed": 1}, ConfigMismatchError, "seed was 0 .* and is 1 now"),
    "data set": (
        {"task": {"prompts": 9}},
        ConfigMismatchError,
        "task.prompts was 8 .* and is 9 now",
    ),
    "units": ({"plane": {"units": 3}}, ConfigMismatchError, "plane.units was 2 .* and is 3 now"),
}


@pytest.mark.parametrize("change", CHANGED)
async def test_a_changed_configuration_is_refused_with_both_values_and_the_way_out(
    memory_rig: Rig, change: str
) -> None:
    bundle = await three_ready(memory_rig)
    changes, error, says = CHANGED[change]
    config = config_of(memory_rig.kind, **changes)
    await refused(memory_rig, bundle, error, says, config)


async def test_fewer_epochs_than_the_bundle_stands_in_are_refused(rig: Rig) -> None:
    rig.configure(task={"prompts": 2}, epochs=4)
    run = await rig.run_to(1)
    await run.logged(Action.RAISE_EPOCH, epoch=3)
    bundle = await run.save_and_crash(1)
    config = config_of(rig.kind, task={"prompts": 2}, epochs=2)
    await refused(rig, bundle, ConfigMismatchError, "epochs is 2 and the bundle is in", config)


async def test_finished_groups_that_would_keep_an_older_step_out_are_refused(
    memory_rig: Rig,
) -> None:
    """They fit, but the step that trains next would have no place to be finished in."""
    rig = memory_rig
    rig.configure(sampler={"window": 2})
    run = await rig.run_to(1)
    later = [*rig.batch(2), *rig.batch(3)]
    await run.commit(*later)
    bundle = await run.save_and_crash(1)
    narrow = config_of(rig.kind, sampler={"window": 1})
    await refused(rig, bundle, CapacityError, "at least 6, or with --without-rows", narrow)
    wide = config_of(rig.kind, sampler={"window": 1}, buffer={"capacity": 6})
    resumed = await rig.resume(bundle, wide)
    await resumed.finish()
    rig.check_end(resumed)


async def test_finished_groups_are_refused_under_a_sampler_that_does_not_restore_them(
    rig: Rig,
) -> None:
    rig.configure_custom(NotRestorable)
    bundle = await three_ready(rig)
    await refused(rig, bundle, RestoreError, "3 finished groups .*restorable = False")
    resumed = await rig.resume(bundle, with_rows=False)
    await resumed.finish()
    rig.check_end(resumed)


async def test_another_custom_sampler_is_refused(memory_rig: Rig) -> None:
    rig = memory_rig
    rig.configure_custom(AdmitOnly)
    bundle = await three_ready(rig)
    rig.configure_custom(NotRestorable)
    await refused(rig, bundle, ConfigMismatchError, "sampler.path was .*AdmitOnly", rig.config)


async def test_an_unknown_phase_is_refused(rig: Rig) -> None:
    bundle = await three_ready(rig)
    ledger = bundle / LEDGER
    ledger.write_bytes(ledger.read_bytes().replace(b"ADMITTED", b"LAUNCHED"))
    reseal(bundle)
    await refused(rig, bundle, BundleCorruptError, f"{LEDGER}.*LAUNCHED.*step_0")


@pytest.mark.parametrize(
    "name", [*SIDECARS, TRAINING_INFO, MANIFEST, STAMP, f"{POLICY}/{WEIGHTS_FILE}"]
)
@pytest.mark.parametrize("damage", ["missing", "altered"])
async def test_a_damaged_file_is_refused_by_name_with_the_last_bundle_that_verifies(
    memory_rig: Rig, name: str, damage: str
) -> None:
    rig = memory_rig
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(2)
    bundle = await run.save_and_crash(2)
    file = bundle / name
    if damage == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    says = f"step_2.*{re.escape(name)}.*the last bundle that verifies is step_1"
    await refused(rig, bundle, BundleCorruptError, says)
    resumed = await rig.resume(rig.directory.root / "step_1")
    await resumed.finish()


async def test_a_saved_configuration_of_another_version_is_refused_with_the_versions(
    memory_rig: Rig,
) -> None:
    bundle = await three_ready(memory_rig)
    info = msgspec.json.decode((bundle / TRAINING_INFO).read_bytes())
    info["config"]["of_later"] = 1
    info["config_digest"] = digest_of(info["config"])
    (bundle / TRAINING_INFO).write_bytes(msgspec.json.encode(info))
    reseal(bundle)
    says = r"is not one of this version: .*of_later.* the versions that wrote it: {'"
    await refused(memory_rig, bundle, RestoreError, says)


async def test_another_data_set_is_refused_with_the_start_of_both_digests(
    memory_rig: Rig,
) -> None:
    bundle = await three_ready(memory_rig)
    other = build_prompts(config_of(memory_rig.kind, seed=5))
    with pytest.raises(ConfigMismatchError) as caught:
        verify_for_resume(bundle, lambda _: other)
    for prompts in (memory_rig.prompts, other):
        assert f"(digest {prompts.digest[:16]})" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "reads"),
    [("memory", ", ".join(READABLE_VERSIONS["memory"])), ("tape", "none of that kind")],
)
def test_rows_of_a_store_that_is_not_known_are_refused_with_what_is(
    tmp_path: Path, kind: str, reads: str
) -> None:
    says = re.escape(
        f"rows of {tmp_path} were written by {kind} 0.0 and this version reads {reads};"
    )
    with pytest.raises(ConfigMismatchError, match=f"{says} install a version that reads them"):
        _require_readable(tmp_path, PlaneInfo(kind=kind, version="0.0", units=2))


async def test_rows_of_another_version_of_the_store_are_refused_unless_they_are_left(
    memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = await three_ready(memory_rig)
    monkeypatch.setitem(READABLE_VERSIONS, "memory", ("8", "9"))
    says = re.escape(f"the rows of {bundle} were written by memory")
    with pytest.raises(ConfigMismatchError, match=f"{says} .* reads 8, 9;"):
        memory_rig.plan(bundle)
    assert memory_rig.plan(bundle, with_rows=False).snapshot.index == ()


async def test_rows_that_are_missing_after_the_load_are_counted_and_named(memory_rig: Rig) -> None:
    plan = memory_rig.plan(await three_ready(memory_rig))
    await memory_rig.harness.start()
    ready = await load_plane(plan, memory_rig.harness.bootstrap)
    lost = sorted(key for entry in plan.snapshot.index for key in entry.row_keys)[1:]

    async def connect() -> DataPlane:
        plane = await memory_rig.harness.connect()
        await plane.clear(lost)
        return plane

    says = re.escape(f"5 of 6 rows of the index are not in the restored plane, e.g. {lost[:4]}; ")
    with pytest.raises(InventoryError, match=f"{says}resume with --without-rows"):
        await connect_plane(ready, connect)


async def test_rows_that_no_group_owns_are_refused(memory_rig: Rig) -> None:
    plan = memory_rig.plan(await three_ready(memory_rig))
    await memory_rig.harness.start()
    ready = await load_plane(plan, memory_rig.harness.bootstrap)

    async def connect() -> DataPlane:
        plane = await memory_rig.harness.connect()
        await plane.put(["nobody/0"], {"reward": [torch.tensor([1.0])]})
        return plane

    with pytest.raises(InventoryError, match=r"1 rows that the index does not own.*'nobody/0'"):
        await connect_plane(ready, connect)


async def test_a_bundle_of_another_run_is_no_way_out(memory_rig: Rig) -> None:
    rig = memory_rig
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(2)
    bundle = await run.save_and_crash(2)
    save(rig.directory.root, 9, run_id="other")
    error = with_way_out(BundleCorruptError("broken", bundle), bundle)
    assert "the last bundle that verifies is step_1" in str(error)


def test_where_no_run_is_known_every_bundle_is_a_way_out(tmp_path: Path) -> None:
    save(tmp_path, 6)
    save(tmp_path, 7)
    (save(tmp_path, 8) / LEDGER).write_bytes(b"damaged")
    bundle = save(tmp_path, 9)
    error = with_way_out(BundleCorruptError("broken", bundle), bundle)
    assert str(error).startswith("broken; the last bundle that verifies is step_7: resume with")
    assert error.bundle == bundle


def test_without_another_bundle_there_is_no_way_out(tmp_path: Path) -> None:
    bundle = save(tmp_path, 8)
    error = with_way_out(BundleCorruptError("broken", bundle), bundle)
    assert str(error) == f"broken; no other bundle in {tmp_path} verifies"
    assert error.bundle == bundle


@pytest.mark.parametrize("with_rows", [True, False])
async def test_a_store_that_another_client_is_connected_to_is_refused(
    rig: Rig, with_rows: bool
) -> None:
    bundle = await three_ready(rig)
    plan = rig.plan(bundle, with_rows=with_rows)
    await rig.harness.start()
    await rig.harness.connect()
    with pytest.raises(PlaneTouchedError, match="1 other clients"):
        await rig.launch(plan)


@pytest.mark.parametrize("with_rows", [True, False])
async def test_a_store_with_rows_of_somebody_else_is_refused_and_keeps_them(
    rig: Rig, with_rows: bool
) -> None:
    bundle = await three_ready(rig)
    plan = rig.plan(bundle, with_rows=with_rows)
    await rig.harness.start()
    other = await rig.harness.connect()
    await other.put(["foreign"], {"reward": [torch.tensor([1.0])]})
    starts = len(rig.incarnations)
    with pytest.raises(PlaneTouchedError, match="index counter at 1"):
        await rig.launch(plan)
    assert await other.list_keys() == ["foreign"]
    assert len(rig.incarnations) == starts


async def test_no_stage_of_a_restore_is_made_by_hand(memory_rig: Rig) -> None:
    rig = memory_rig
    bundle = await three_ready(rig)
    await rig.harness.start()
    plan = rig.plan(bundle)
    plane = await rig.harness.connect()
    for kind, *values in (
        (ResumePlan, bundle, rig.config, plan.snapshot, plan.info, 1),
        (PlaneReady, plan),
        (PlaneConnected, None, plane),
        (Restored, rig.incarnations[0].state, 1),
    ):
        with pytest.raises(MisuseError, match=f"{kind.__name__} is not made by hand"):
            kind(object(), *values)


async def test_a_resume_takes_the_saved_rows_and_configuration_unless_it_is_told_otherwise(
    memory_rig: Rig,
) -> None:
    bundle = await three_ready(memory_rig)
    plan = verify_for_resume(bundle, build_prompts)
    assert len(plan.snapshot.index) == 3
    assert plan == memory_rig.plan(bundle, memory_rig.config, with_rows=True)


async def test_the_state_is_restored_in_one_slot(memory_rig: Rig) -> None:
    bundle = await three_ready(memory_rig)
    resumed = await memory_rig.resume(bundle, started=False)
    slots = resumed.state.barrier.statistics().slots
    assert {kind: slots[kind].entered for kind in slots} == {"restore": 1}


async def test_a_stage_survives_the_way_to_another_process(memory_rig: Rig) -> None:
    plan = memory_rig.plan(await three_ready(memory_rig))
    await memory_rig.harness.start()
    ready = await load_plane(plan, memory_rig.harness.bootstrap)
    sent = pickle.loads(pickle.dumps(ready))
    assert sent == ready
    assert type(sent.plan) is ResumePlan


async def test_stages_of_a_restore_do_not_run_in_another_order(memory_rig: Rig) -> None:
    rig = memory_rig
    bundle = await three_ready(rig)
    await rig.harness.start()
    bootstrap, connected = rig.harness.bootstrap, []

    async def connect() -> DataPlane:
        connected.append(await rig.harness.connect())
        return connected[-1]

    plan: Any = rig.plan(bundle)
    state = rig.incarnations[0].state
    with pytest.raises(MisuseError, match=r"^load_plane takes a ResumePlan"):
        await load_plane(await load_plane(None, bootstrap), bootstrap)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match=r"^connect_plane takes a PlaneReady, not a ResumePlan"):
        await connect_plane(plan, connect)
    assert not connected
    await bootstrap.require_untouched()
    ready: Any = await load_plane(plan, bootstrap)
    with pytest.raises(MisuseError, match=r"^restore_state takes a PlaneConnected"):
        await restore_state(ready, state)
    there: Any = await connect_plane(ready, connect)
    with pytest.raises(MisuseError, match="another plane"):
        await restore_state(there, state)
    with pytest.raises(MisuseError, match="Run takes a Restored"):
        Run(there, None, None, bundle.parent)  # type: ignore[arg-type]
