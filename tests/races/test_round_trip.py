"""Save, restore, save again, and train what is left: from every state, under every sampler."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.bundle.contents import decode_cut, read_training_info
from cutlock.bundle.publication import latest, scan
from cutlock.bundle.verification import verify
from cutlock.errors import (
    DropBudgetError,
)
from tests.support.checks import (
    assert_rows,
    groups_of,
    lost_on_purpose,
    trained,
    trained_per_step,
)
from tests.support.mutations import FAILS, SPARES
from tests.support.planes import MemoryHarness
from tests.support.rig import Incarnation, Rig, config_of, rig_on
from tests.support.situations import (
    EVERY_STEP,
    SAMPLERS,
    SITUATIONS,
    Situation,
    more_groups_than_places,
    narrow,
    with_sampler,
)


async def uninterrupted(root: Path, situation: Situation, sampler: str) -> Incarnation:
    """A run that was never saved before its end nor resumed, on the memory plane."""
    harness = MemoryHarness()
    await harness.start()
    async with rig_on(root, harness) as rig:
        situation.configure(rig, sampler)
        run = await rig.launch(started=False)
        situation.script(rig, run)
        await run.finish()
        return run


async def bundle_of(rig: Rig, situation: Situation, sampler: str) -> Path:
    """Save in the situation, and end the run that saved."""
    situation.configure(rig, sampler)
    run = await situation.reach(rig)
    run.cut.release()
    bundle = await run.published(situation.step)
    snapshot = rig.check_bundle(bundle)
    assert situation.holds(snapshot, sampler), snapshot
    await run.crash()
    return bundle


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_a_restored_run_is_the_saved_one_and_trains_what_is_left_once(
    rig: Rig, root: Path, sampler: str, situation: Situation
) -> None:
    await goes_round(rig, root, sampler, situation)


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
async def test_a_run_that_was_saved_by_a_narrow_cut_is_restored_as_well(
    rig: Rig, root: Path, situation: Situation
) -> None:
    await goes_round(rig, root, "in_order", narrow(situation))


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "in_order"])
async def test_a_run_of_any_sampler_is_restored_from_a_narrow_cut(
    memory_rig: Rig, root: Path, sampler: str, situation: Situation
) -> None:
    await goes_round(memory_rig, root, sampler, narrow(situation))


async def goes_round(rig: Rig, root: Path, sampler: str, situation: Situation) -> None:
    bundle = await bundle_of(rig, situation, sampler)
    resumed = await rig.resume(bundle, with_rows=situation.with_rows, started=False)
    snapshot = resumed.plan.snapshot
    if situation.with_rows:
        assert snapshot == decode_cut(verify(bundle))
    assert_rows(snapshot.index, resumed.loaded)
    assert await resumed.read_cut() == snapshot
    assert resumed.state.permits.held == len(snapshot.index)

    again = await resumed.save_into(root.parent / "again")
    assert decode_cut(verify(again)) == snapshot

    # The first restore has changed nothing that a second one would see.
    resumed = await rig.resume(bundle, with_rows=situation.with_rows, started=False)
    assert resumed.plan.snapshot == snapshot
    assert await resumed.read_cut() == snapshot
    await resumed.finish()
    rig.check_end(resumed, lost=len(situation.failing))

    whole = await uninterrupted(root.parent / "whole", situation, sampler)
    assert Counter(trained(resumed.history)) == Counter(trained(whole.history))
    assert sorted(lost_on_purpose(resumed.history)) == sorted(lost_on_purpose(whole.history))
    if sampler == "in_order":
        assert trained_per_step(resumed.history) == trained_per_step(whole.history)


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_a_run_with_fewer_places_than_unfinished_groups_trains_them_all(
    rig: Rig, sampler: str
) -> None:
    situation = more_groups_than_places(sampler)
    bundle = await bundle_of(rig, situation, sampler)
    assert situation.resumed_with is not None
    config = config_of(rig.kind, **with_sampler(situation.resumed_with, sampler))
    resumed = await rig.resume(bundle, config, started=False)
    assert config.capacity() < len(resumed.plan.snapshot.ledger)
    assert await resumed.read_cut() == resumed.plan.snapshot
    await resumed.finish()
    # Under a narrower window the weights of the third batch are too old by the time it trains.
    rig.check_end(resumed, lost=2 if sampler == "weight_fifo" else 0)
    launched = groups_of(resumed.log.records, Action.LAUNCH_GROUP)
    assert launched == [*rig.batch(1), *rig.batch(2), *rig.batch(3)]


async def test_a_run_that_is_killed_after_every_step_trains_what_one_that_lives_on_does(
    rig: Rig, root: Path
) -> None:
    await killed_after_every_step(rig, root, "in_order")


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_a_run_that_is_killed_after_every_step_trains_the_same_under_every_sampler(
    memory_rig: Rig, root: Path, sampler: str
) -> None:
    await killed_after_every_step(memory_rig, root, sampler)


async def killed_after_every_step(rig: Rig, root: Path, sampler: str) -> None:
    situation = Situation(
        "killed often",
        lambda run: run.quiet(),
        lambda cut, _: True,
        changes={
            "task": {"prompts": 10},
            "epochs": 2,
            "buffer": SPARES,
            "checkpoint": EVERY_STEP,
        },
    )
    situation.configure(rig, sampler)
    run = await rig.run_to(1)
    positions = []
    for step in range(1, 7):
        run.cut.release()
        bundle = await run.published(step)
        loader = rig.check_bundle(bundle).loader
        positions.append((loader.epoch, loader.position))
        await run.crash()
        run = await rig.resume(bundle, started=False)
        run.cut = run.holds.hold(Action.REQUEST_CUT, step=step + 1)
        run.generator.finish_all()
        run.start()
        await run.at(run.cut)
    await run.finish()
    assert positions == sorted(positions)
    rig.check_end(run)
    whole = await uninterrupted(root.parent / "whole", situation, sampler)
    assert Counter(trained(run.history)) == Counter(trained(whole.history))
    if sampler == "in_order":
        assert trained_per_step(run.history) == trained_per_step(whole.history)


async def test_what_was_admitted_is_launched_first_and_then_what_was_reserved(rig: Rig) -> None:
    """Admitted in the order of dispatch, reserved once per admission, and only then the loader.

    A substitute stands last in the ledger and belongs to the oldest step.
    """
    rig.configure(task={"prompts": 12}, buffer=SPARES, failures=FAILS)
    spares, second, third, fourth = (rig.batch(number) for number in range(1, 5))

    run = await rig.run_to(1)
    await run.logged(Action.RESERVE_BATCH, groups=fourth)
    run.generator.fail(second[0])
    run.generator.finish(second[0])
    await run.logged(Action.SUBSTITUTE_GROUP, group=second[0])
    await run.quiet()
    bundle = await run.save_and_crash(1)
    ledger = [record.group_id for record in rig.check_bundle(bundle).ledger]
    assert ledger == [second[1], *third, *fourth, spares[0]]

    resumed = await rig.resume(bundle)
    await resumed.finish()
    records = resumed.log.records
    launched = groups_of(records, Action.LAUNCH_GROUP)
    assert launched[:6] == [second[1], spares[0], *third, *fourth]
    admitted = [r for r in records if r.action == Action.COMMIT_ADMISSION]
    assert admitted[0].args["groups"] == fourth
    assert admitted[0].args["admission"] == 3
    first_read = next(
        r.seq for r in records if r.action in (Action.RESERVE_BATCH, Action.FILL_SPARE_POOL)
    )
    assert admitted[0].seq < first_read
    rig.check_end(resumed, lost=1)


async def test_a_run_goes_back_to_an_older_bundle_and_saves_the_same_steps_again(
    rig: Rig,
) -> None:
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(3)
    run.cut.release()
    await run.published(3)
    await run.crash()
    root = rig.directory.root
    resumed = await rig.resume(root / "step_1")
    await resumed.finish()
    rig.check_end(resumed)
    found = scan(root, rig.directory.facts().run_id)
    assert [bundle.path.name for bundle in found.bundles] == [
        "step_0",
        "step_1",
        "step_2",
        "step_3",
        "step_4",
    ]
    assert [debris.path.name for debris in found.debris] == [
        "abandoned_step_2",
        "abandoned_step_3",
    ]
    for bundle in found.bundles[2:]:
        assert read_training_info(verify(bundle.path)).incarnation == resumed.number
        rig.check_bundle(bundle.path)
    assert latest(root).name == "step_4"


async def test_a_run_that_ended_goes_on_with_more_epochs(rig: Rig) -> None:
    rig.configure(task={"prompts": 5})
    run = await rig.launch()
    await run.finish()
    rig.configure(task={"prompts": 5}, epochs=2)
    resumed = await rig.resume(rig.directory.root / "step_3", rig.config)
    report = await resumed.finish()
    assert report.ended == "exhausted"
    assert sorted(trained_per_step(resumed.log.records)) == [3, 4, 5]
    rig.check_end(resumed)


async def test_a_run_that_ended_at_its_budget_goes_on_with_a_larger_one(rig: Rig) -> None:
    rig.configure(max_steps=2)
    run = await rig.launch()
    assert (await run.finish()).ended == "max_steps"
    assert rig.plan(rig.directory.root / "step_2").finished
    rig.configure()
    plan = rig.plan(rig.directory.root / "step_2", rig.config)
    assert not plan.finished
    resumed = await rig.resume(plan.bundle, rig.config)
    assert (await resumed.finish()).ended == "exhausted"
    rig.check_end(resumed)


async def test_a_run_that_ended_for_want_of_a_drop_budget_tries_the_group_again(
    rig: Rig,
) -> None:
    rig.configure(failures={"attempts": 2, "drop_budget": 0})
    run = await rig.launch(started=False)
    run.generator.fail(rig.batch(2)[0])
    with pytest.raises(DropBudgetError, match="failed 2 times and failures"):
        await run.finish()
    resumed = await rig.resume(latest(rig.directory.root))
    await resumed.finish()
    rig.check_end(resumed)
