"""What the code keeps count of beside the variables of the specification.

The specification works these out from its variables, so that two states of the code that differ
in them alone would look the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutlock.alphabet import Action
from cutlock.conformance.stepping.incarnation import Incarnation

__all__ = ["miscounts"]

_SPANNING = frozenset({Action.RAISE_EPOCH})
_IN_A_SLOT = _SPANNING | {Action.PUT_ROWS, Action.COMMIT_GROUP}
_SELECTED = frozenset({"advantages", "train", "clear", "raise"})


def miscounts(incarnation: Incarnation) -> Iterator[str]:
    """What is not as it follows from the rest of the state, of pumps that run."""
    if incarnation.run is None or incarnation.run.done():
        return
    engine, stands = incarnation.engine, incarnation.stands
    state = engine.state
    # The spec knows a cut only from its first read on; the code has it when it stands before that.
    awaited = _SPANNING if incarnation.narrow else _IN_A_SLOT
    inside = [str(action) for action, _ in stands.places if action in awaited]
    if inside and (stands.at(Action.OPEN_CUT) or stands.at(Action.TAKE_CUT)):
        yield f"the cut was entered although tasks stand before {', '.join(inside)}, in a slot"
    # The pump has the first place of a batch in its hands from before the gate on.
    ahead = stands.at(Action.OPEN_GATE) or stands.at(Action.COMMIT_ADMISSION)
    owed = len(state.buffer.ready()) + engine.in_flight + ahead
    if state.permits.held != owed:
        yield f"{state.permits.held} places are taken, and {owed} groups have one"
    following = state.version.value + (engine.phases.train in _SELECTED)
    if state.next_selection != following:
        yield f"the next selection is of step {state.next_selection}, not of {following}"
