"""Artifacts that are read before the cut is asked for."""

from __future__ import annotations

import dataclasses

from cutlock.alphabet import Action
from cutlock.barrier import Cut
from cutlock.conformance.faults.switch import TRUSTS_THE_CUT, Fault, Patch, Switch
from cutlock.conformance.stepping.doing import Doing, Records
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.events import MemoryLog
from cutlock.run.capture import Capture
from cutlock.run.cut import read_in_window
from cutlock.run.open_save import OpenSave
from cutlock.run.state import Phases, RunState
from cutlock.stops import NO_STOPS
from cutlock.tlc.values import Value

__all__ = ["EARLY_FAULTS"]

_BEFORE = "before the cut"


class _KeepsFirst(Capture):
    """A capture that passes over what it has already."""

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, name, None) is None:
            super().__setattr__(name, value)


def _early(action: Action, attribute: str) -> Switch:
    """A save makes one read first and then asks for its cut.

    The first save of a fresh run begins by itself; it stands before its early read.
    """
    original = OpenSave.cut

    async def take(opened: OpenSave) -> None:
        opened.capture = _KeepsFirst()
        await opened.state.stops.reach(Action.REQUEST_CUT, group=_BEFORE)
        setattr(opened.capture, attribute, getattr(await _read_now(opened.state), attribute))
        await original(opened)

    def move(doing: Doing) -> Records:
        if doing.at(Action.REQUEST_CUT, _BEFORE):
            doing.release(Action.REQUEST_CUT, _BEFORE)
            return ()
        return MOVES[action](doing)

    def shows(stepper: Stepper, state: dict[str, Value]) -> None:
        incarnation = stepper.incarnation
        if (
            incarnation is not None
            and incarnation.stands.at(Action.REQUEST_CUT)
            and getattr(incarnation.engine.saver.capture, attribute) is not None
        ):
            state["tp"] = "saving"

    return Switch(patches=(Patch(OpenSave, "cut", take),), moves={action: move}, shows=shows)


async def _read_now(state: RunState) -> Capture:
    """Make the reads of a cut, without a cut."""
    looking = dataclasses.replace(state, stops=NO_STOPS, events=MemoryLog(), phases=Phases())
    cut, capture = Cut(looking.barrier), Capture()
    cut._state = "live"
    await read_in_window(looking, cut, capture)
    return capture


_STAMP = "a stamp is captured with its owner, and this group has none"

EARLY_FAULTS = (
    Fault(
        name="cursor_read_early",
        what="the cursor is read before the cut is asked for",
        mutants=("cursor_early", "narrow_cursor_early"),
        protection=_early(Action.READ_CURSOR, "cursor"),
        second_lines=TRUSTS_THE_CUT,
    ),
    Fault(
        name="loader_read_early",
        what="the loader is read before the cut is asked for",
        mutants=("loader_early", "narrow_loader_early"),
        protection=_early(Action.READ_LOADER, "loader"),
    ),
    Fault(
        name="pool_read_early",
        what="the spare pool is read before the cut is asked for",
        mutants=("pool_early", "narrow_pool_early"),
        protection=_early(Action.READ_SPARE_POOL, "spare_pool"),
    ),
    Fault(
        name="index_read_early",
        what="the index is read before the cut is asked for",
        mutants=("index_early", "narrow_index_early"),
        protection=_early(Action.READ_INDEX, "index"),
        blind={
            "cap.ledger.v.idx": _STAMP,
            "disk.idx": _STAMP,
        },
    ),
    Fault(
        name="ledger_read_early",
        what="the ledger is read before the cut is asked for",
        mutants=("ledger_early", "ledger_early_at_the_end", "narrow_ledger_early"),
        protection=_early(Action.READ_LEDGER, "ledger"),
    ),
)
