"""The reads of a cut: six values of one instant, in one step or inside a window.

Source: spec actions `ReadCursor` to `ReadLedger`, and `TakeCut`; design, sections 4 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cutlock.alphabet import Action
from cutlock.barrier import Cut
from cutlock.errors import InvariantError, InventoryError
from cutlock.plane.base import DataPlane, take_inventory
from cutlock.records import IndexEntry
from cutlock.run.capture import Capture, LedgerRead
from cutlock.run.state import Facts, RunState, SavePhase

__all__ = ["read_in_window", "require_inventory", "take_cut"]


async def read_in_window(state: RunState, cut: Cut, capture: Capture) -> None:
    """Make the reads one after the other, each an action of its own; nothing may change."""
    _require_between_steps(state)
    for place, (action, read) in enumerate(_READS.items()):
        state.phases.save = _READING[place]

        async def made(read: Read = read) -> Facts:
            return read(state, cut, capture)

        await state.act(action, made)
    state.phases.save = SavePhase.PLANE


def take_cut(state: RunState, cut: Cut, capture: Capture) -> None:
    """Make all reads in one synchronous step, and pin the rows of the captured index in it."""
    _require_between_steps(state)
    facts = {action: read(state, cut, capture) for action, read in _READS.items()}
    if state.config.checkpoint.rows:
        state.plane.pin([key for entry in capture.index or () for key in entry.row_keys])
    state.events.record(
        Action.TAKE_CUT,
        step=state.step,
        **facts[Action.READ_CURSOR],
        **facts[Action.READ_LOADER],
        spares=facts[Action.READ_SPARE_POOL]["groups"],
        index=facts[Action.READ_INDEX]["groups"],
        ledger=facts[Action.READ_LEDGER]["groups"],
    )


async def require_inventory(
    plane: DataPlane, index: Sequence[IndexEntry], *, alone: bool = True
) -> None:
    """Show that the plane holds the rows of the index.

    Args:
        alone: whether it may hold no others: nobody puts or clears rows meanwhile.

    Raises:
        InventoryError: it does not.
    """
    indexed = {key for entry in index for key in entry.row_keys}
    found = await take_inventory(plane, indexed)
    unowned = found.unowned if alone else []
    if found.missing or unowned:
        raise InventoryError(
            f"the plane holds {len(found.listed)} rows and the index {len(indexed)}: not in the "
            f"index {unowned[:4]}, not in the plane {found.missing[:4]}; nothing "
            "was saved, resume from the last bundle"
        )


def _require_between_steps(state: RunState) -> None:
    if state.buffer.claimed or state.next_selection != state.step:
        raise InvariantError(
            f"the open training step {state.step} still owns {sorted(state.buffer.claimed)}, "
            "or has trained and is not counted yet; save between two steps"
        )


def _read_cursor(state: RunState, cut: Cut) -> int:
    state.barrier.require_cut(cut)
    return state.sampler.cursor


def _cursor(state: RunState, cut: Cut, capture: Capture) -> dict[str, Any]:
    capture.cursor = _read_cursor(state, cut)
    return {"cursor": capture.cursor}


def _loader(state: RunState, cut: Cut, capture: Capture) -> dict[str, Any]:
    capture.loader = loader = state.loader.snapshot(cut)
    return {"epoch": loader.epoch, "position": loader.position}


def _spare_pool(state: RunState, cut: Cut, capture: Capture) -> dict[str, Any]:
    capture.spare_pool = spares = state.pool.snapshot(cut)
    return {"groups": [spare.key for spare in spares]}


def _index(state: RunState, cut: Cut, capture: Capture) -> dict[str, Any]:
    capture.index = index = state.buffer.snapshot(cut)
    return {"groups": [entry.group_id for entry in index]}


def _ledger(state: RunState, cut: Cut, capture: Capture) -> dict[str, Any]:
    owned = {entry.group_id for entry in capture.index or ()}
    records = state.ledger.snapshot(cut, owned)
    capture.ledger = LedgerRead(
        records=records,
        next_admission=state.ledger.next_admission,
        shortfall=state.shortfall.snapshot(cut),
        dropped=state.dropped,
        step=state.step,
        version=state.version.value,
    )
    return {"groups": [record.group_id for record in records]}


Read = Callable[[RunState, Cut, Capture], dict[str, Any]]

_READS: dict[Action, Read] = {
    Action.READ_CURSOR: _cursor,
    Action.READ_LOADER: _loader,
    Action.READ_SPARE_POOL: _spare_pool,
    Action.READ_INDEX: _index,
    Action.READ_LEDGER: _ledger,
}

_READING = (
    SavePhase.CURSOR,
    SavePhase.LOADER,
    SavePhase.POOL,
    SavePhase.INDEX,
    SavePhase.LEDGER,
)
"""Where a save is before each of the reads."""
