"""What a narrow cut has not read, pinned, waited for or brought back."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

from cutlock.alphabet import Action
from cutlock.barrier import Barrier, Cut, Slot
from cutlock.bundle.layout import DATA_PLANE
from cutlock.conformance.faults.dispatch import RAISES_NO_CURSOR
from cutlock.conformance.faults.sections import UNDRAINED
from cutlock.conformance.faults.switch import (
    TRUSTS_THE_CUT,
    Fault,
    Patch,
    Reaching,
    Switch,
    built,
    nothing,
)
from cutlock.conformance.stepping.doing import Doing, Records
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.conformance.stepping.parts import NotingTrainer
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import PlaneError, RowsMissingError
from cutlock.loader import PromptLoader
from cutlock.plane.base import Fields, PlaneStamp, write_stamp
from cutlock.plane.memory import MemoryPlane, MemoryStore, PlaneStep, PlaneSteps
from cutlock.plane.pinning import PinningPlane
from cutlock.run import cut
from cutlock.run.open_save import OpenSave
from cutlock.run.restore import ResumePlan
from cutlock.run.save import Saver
from cutlock.run.state import RunState
from cutlock.run.together import together
from cutlock.samplers.base import GatedSampler
from cutlock.tlc.values import Function, Value

__all__ = ["NARROW_FAULTS"]

# The cut.

_CURSOR = "the cursor"


class _RaisesLate:
    """The slot of an admission that stands once more, and then raises the cursor."""

    def __init__(self, slot: Slot, state: RunState) -> None:
        self._slot = slot
        self._state = state

    async def __aenter__(self) -> Slot:
        return await self._slot.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._state.stops.reach(Action.COMMIT_ADMISSION, group=_CURSOR)
        cast(GatedSampler, self._state.sampler)._cursor += 1
        await self._slot.__aexit__(*error)


def _admits_in_two_steps() -> Switch:
    def change(state: RunState) -> None:
        enters = state.barrier.atomic_mutation

        def mutation(kind: str) -> object:
            slot = enters(kind)
            return _RaisesLate(slot, state) if kind == "admission" else slot

        vars(state.barrier)["atomic_mutation"] = mutation

    def late(doing: Doing) -> Records:
        doing.release(Action.COMMIT_ADMISSION, _CURSOR)
        return ()

    return built(change) | RAISES_NO_CURSOR | Switch(moves={"Late": late})


def _door_stays_closed() -> Switch:
    sets = Barrier._set_open

    def set_open(barrier: Barrier, opened: Cut | None) -> None:
        if opened is not None:
            sets(barrier, opened)

    def shows(stepper: Stepper, state: dict[str, Value]) -> None:
        if state["door"] == "shut":
            state["door"] = "closing"

    return Switch(patches=(Patch(Barrier, "_set_open", set_open),), shows=shows)


async def _units_or_stamp(plane: MemoryPlane, directory: Path, stamp: PlaneStamp | None) -> None:
    """`MemoryPlane.snapshot_rows` in two halves: the units without a stamp, then the stamp."""
    if stamp is not None:
        write_stamp(directory, stamp)
        return
    store = plane._store
    for unit in range(store.info.units):
        await store.step("snapshot", "unit", unit=unit)
        (directory / f"unit_{unit}.safetensors").write_bytes(store.dump_unit(unit))


def _units_first() -> Switch:
    """The units write as soon as a cut is asked for, and the stamp comes in their place."""
    takes = OpenSave.cut

    async def take(opened: OpenSave) -> None:
        directory = opened.writer.path / DATA_PLANE

        async def beside(stop: Callable[[], Awaitable[None]]) -> None:
            await together(
                cast(Any, stop()), opened.state.plane.snapshot_rows(directory, cast(Any, None))
            )

        stops = Reaching(opened.state.stops, Action.TAKE_CUT, beside)
        opened.state = dataclasses.replace(opened.state, stops=stops)
        await takes(opened)

    def save_plane(doing: Doing) -> Records:
        doing.release(Action.SAVE_PLANE)
        return (Action.SAVE_PLANE, *(Action.SAVE_UNIT for _ in doing.stepper.bounds.units))

    def save_unit(doing: Doing) -> Records:
        doing.release(Action.SAVE_UNIT, str(doing.unit))
        return ()

    return Switch(
        patches=(
            Patch(OpenSave, "cut", take),
            Patch(MemoryPlane, "snapshot_rows", _units_or_stamp),
        ),
        moves={Action.SAVE_PLANE: save_plane, Action.SAVE_UNIT: save_unit},
    )


# Pins.


async def _clear_now(plane: PinningPlane, keys: Sequence[str]) -> None:
    await plane._plane.clear(keys)


def _pinned_late() -> Switch:
    pin, writes = PinningPlane.pin, OpenSave._save_key_map

    async def save_key_map(opened: OpenSave) -> None:
        await writes(opened)
        index = opened.capture.index or ()
        pin(opened.state.plane, [key for entry in index for key in entry.row_keys])

    return Switch(
        patches=(
            Patch(PinningPlane, "pin", nothing),
            Patch(OpenSave, "_save_key_map", save_key_map),
        )
    )


class _UnpinsAfterOne:
    """`PlaneSteps` of a store whose snapshot lets go of its rows when one unit is written."""

    def __init__(self, steps: PlaneSteps, incarnation: Incarnation) -> None:
        self._steps = steps
        self._incarnation = incarnation

    async def reach(self, step: PlaneStep, /) -> None:
        if step.op == "snapshot" and step.unit:
            assert self._incarnation.state is not None
            self._incarnation.state.plane.unpin()
        await self._steps.reach(step)


def _unpin_after_one(incarnation: Incarnation) -> None:
    incarnation.stands.steps = _UnpinsAfterOne(incarnation.stands.steps, incarnation)


def _deferred_forgotten() -> Switch:
    records = Saver._record_failure

    def record_failure(saver: Saver, step: int, error: Exception) -> None:
        records(saver, step, error)
        saver._state.plane.unpin()
        saver._state.plane._deferred.clear()

    return Switch(patches=(Patch(Saver, "_record_failure", record_failure),))


def _flush_in_a_save() -> Switch:
    """What a failed save has left waits for the next one, which waits for the failed one."""
    flushes = OpenSave.flush

    async def flush(opened: OpenSave) -> None:
        opened.state.plane.unpin()
        # A failed save flushes while its error is handled, any other one outside.
        if sys.exception() is not None and opened.state.plane.deferred:
            await asyncio.Event().wait()
        await flushes(opened)

    return Switch(patches=(Patch(OpenSave, "flush", flush),))


def _nothing_pruned() -> Switch:
    """Rows are loaded for an empty index too, which would do without."""
    directory = property(lambda plan: plan.bundle / DATA_PLANE)
    return Switch(
        patches=(
            Patch(ResumePlan, "plane_directory", directory),
            Patch(MemoryStore, "drop_all_but", nothing),
        )
    )


# A put.

_LIMIT = 1.0
"""Seconds of the virtual clock."""


def _put_outlives_its_slot() -> Switch:
    """A put that is over a limit is given up by its commit, and goes on in the store."""
    puts = PinningPlane.put

    async def put(plane: PinningPlane, keys: Sequence[str], fields: Fields) -> None:
        try:
            async with asyncio.timeout(_LIMIT):
                await asyncio.shield(puts(plane, keys, fields))
        except TimeoutError:
            raise PlaneError(f"the put of {list(keys)} has taken {_LIMIT} s") from None

    def roll_back(doing: Doing) -> Records:
        doing.require_at(Action.STORE_ROW, doing.group)
        doing.stepper.loop.advance(_LIMIT)
        doing.stepper.failures += 1
        return Action.ROLLBACK_GROUP, Action.FAIL_GROUP

    def shows(stepper: Stepper, state: dict[str, Value]) -> None:
        if stepper.incarnation is None:
            return
        task = dict(cast(Function, state["task"]))
        for group in stepper.incarnation.stands.groups(Action.LAUNCH_GROUP):
            if task[stepper.bounds.prompt(group)] == "committing":
                task[stepper.bounds.prompt(group)] = "failed"
        state["task"] = Function(task)

    return Switch(
        patches=(Patch(PinningPlane, "put", put),),
        moves={Action.ROLLBACK_GROUP: roll_back},
        shows=shows,
    )


# The trainer.


def _pump_goes_on(*while_save_is: str) -> Switch:
    """Show a train pump that waits for groups, and would be taken to wait for the save."""

    def shows(stepper: Stepper, state: dict[str, Value]) -> None:
        if state["tp"] == "saving" and state["sv"] in while_save_is:
            state["tp"] = "idle"

    return Switch(shows=shows)


def _cut_beside_step() -> Switch:
    saves = Saver.save

    async def save(saver: Saver) -> None:
        saver.tasks.create_task(saves(saver))
        await asyncio.sleep(0)  # it has begun, so that it can be waited for

    return _pump_goes_on("requested", "copy") | Switch(patches=(Patch(Saver, "save", save),))


def _copied_late() -> Switch:
    copies, writes = OpenSave.copy, OpenSave.write

    async def copy(opened: OpenSave) -> None:
        pass

    async def write(opened: OpenSave) -> None:
        await copies(opened)
        await writes(opened)

    patches = (Patch(OpenSave, "copy", copy), Patch(OpenSave, "write", write))
    return _pump_goes_on("copy") | Switch(patches=patches)


def _late_weights() -> Switch:
    saves = NotingTrainer.save

    async def save(trainer: NotingTrainer, directory: Path) -> None:
        copied, trainer.copied = trainer.copied, trainer.steps
        await saves(trainer, directory)
        trainer.copied = copied

    return Switch(patches=(Patch(NotingTrainer, "save", save),))


def _stale_advantages() -> Switch:
    puts = PinningPlane.put

    async def put(plane: PinningPlane, keys: Sequence[str], fields: Fields) -> None:
        if "advantage" not in fields or not await _all_carry(plane, keys):
            await puts(plane, keys, fields)

    return Switch(patches=(Patch(PinningPlane, "put", put),))


async def _all_carry(plane: PinningPlane, keys: Sequence[str]) -> bool:
    try:
        await plane.get(keys, ("advantage",))
    except RowsMissingError:
        return False
    return True


NARROW_FAULTS = (
    Fault(
        name="admission_in_two_steps",
        what="an admission stamps its batch in one step and raises the cursor in another",
        mutants=("narrow_admission_in_two_steps",),
        protection=_admits_in_two_steps(),
        second_lines=TRUSTS_THE_CUT,
    ),
    Fault(
        name="loader_not_awaited",
        what="a narrow cut is taken while the loader's slot is held",
        mutants=("narrow_loader_not_awaited",),
        protection=UNDRAINED,
        second_lines=Switch(patches=(Patch(PromptLoader, "_refuse_raise_due", nothing),)),
    ),
    Fault(
        name="door_stays_closed",
        what="the door does not open when the cut is taken",
        mutants=("narrow_door_stays_closed",),
        protection=_door_stays_closed(),
    ),
    Fault(
        name="units_first",
        what="the units write before the index is read",
        mutants=("narrow_units_first", "changed_units_first"),
        protection=_units_first(),
        blind={"cap.files": "files of units are looked at when there is a key map for them"},
    ),
    Fault(
        name="clears_not_deferred",
        what="pinned rows are cleared at once",
        mutants=("narrow_clears_not_deferred",),
        protection=Switch(patches=(Patch(PinningPlane, "clear", _clear_now),)),
    ),
    Fault(
        name="pinned_late",
        what="rows are pinned when the key map is written",
        mutants=("narrow_pinned_late",),
        protection=_pinned_late(),
    ),
    Fault(
        name="pinned_for_one_unit",
        what="rows are pinned no longer when one unit has written them",
        mutants=("narrow_pinned_for_one_unit",),
        protection=Switch(prepare=_unpin_after_one),
    ),
    Fault(
        name="deferred_forgotten",
        what="a save that fails forgets what waits to be cleared",
        mutants=("narrow_deferred_forgotten",),
        protection=_deferred_forgotten(),
    ),
    Fault(
        name="flush_in_a_save",
        what="what waits to be cleared when a save fails waits for the next save",
        mutants=("narrow_flush_in_a_save",),
        protection=_flush_in_a_save(),
    ),
    Fault(
        name="put_outlives_its_slot",
        what="a put is given up by its commit, and goes on in the store",
        mutants=("narrow_put_cancelled",),
        protection=_put_outlives_its_slot(),
    ),
    Fault(
        name="nothing_pruned",
        what="a restore keeps rows that the index does not own",
        mutants=("narrow_nothing_pruned",),
        protection=_nothing_pruned(),
    ),
    Fault(
        name="cut_beside_step",
        what="the train pump does not wait for the cut",
        mutants=("narrow_cut_beside_step",),
        protection=_cut_beside_step(),
        second_lines=Switch(patches=(Patch(cut, "_require_between_steps", nothing),)),
    ),
    Fault(
        name="copied_late",
        what="the train pump does not wait for the copy of the trainer",
        mutants=("narrow_copied_late",),
        protection=_copied_late(),
        blind={
            "cap.ledger.v.weights.trained": "the trainer itself is looked at until it is copied",
        },
    ),
    Fault(
        name="weights_of_the_write",
        what="the trainer writes what it is by then, not what was copied",
        mutants=("narrow_late_weights",),
        protection=_late_weights(),
    ),
    Fault(
        name="advantages_taken_over",
        what="advantages that rows carry are taken over",
        mutants=("narrow_stale_advantages",),
        protection=_stale_advantages(),
    ),
)
