"""Control state in the words of the spec, from where the tasks of a controller stand."""

from __future__ import annotations

from cutlock.alphabet import Action
from cutlock.conformance.stepping.incarnation import Incarnation

__all__ = ["door", "save", "tasks", "train_pump"]

_TRAIN = {
    Action.EVICT_GROUPS: "idle",
    Action.SELECT_GROUPS: "idle",
    Action.REQUEST_CUT: "idle",
    Action.WRITE_ADVANTAGES: "advantages",
    Action.TRAIN_STEP: "train",
    Action.CLEAR_ROWS: "clear",
    Action.RAISE_VERSION: "raise",
    Action.ABORT_STALE: "sync",
    Action.SYNC_WEIGHTS: "sync",
}

_SAVE = {
    Action.OPEN_CUT: "requested",
    Action.TAKE_CUT: "requested",
    Action.COPY_POLICY: "copy",
    Action.READ_CURSOR: "cursor",
    Action.READ_LOADER: "loader",
    Action.READ_SPARE_POOL: "pool",
    Action.READ_INDEX: "index",
    Action.READ_LEDGER: "ledger",
    Action.SAVE_PLANE: "plane",
    Action.CLOSE_CUT: "close",
    Action.SAVE_UNIT: "files",
    Action.FLUSH_DEFERRED: "files",
    Action.WRITE_POLICY: "files",
    Action.WRITE_SIDECARS: "files",
    Action.WRITE_MANIFEST: "files",
    Action.PUBLISH_BUNDLE: "files",
    Action.PRUNE_BUNDLES: "published",
}


def save(incarnation: Incarnation) -> str:
    """`sv`: what the open save does next."""
    state = incarnation.state
    for action, _ in incarnation.stands.places:
        # A save that has failed clears what waited for it, and is none any more.
        if action in _SAVE and (action is not Action.FLUSH_DEFERRED or incarnation.saver.capture):
            return _SAVE[action]
    return "requested" if state is not None and "cut" in state.barrier.waiting else "none"


def train_pump(incarnation: Incarnation) -> str:
    """`tp`: what the train pump does next; `idle` before it runs, while it waits, at its end."""
    if incarnation.stage == "started":
        return "idle"
    for action, _ in incarnation.stands.places:
        if action in _TRAIN:
            return _TRAIN[action]
    saving = save(incarnation)
    if incarnation.narrow:
        return "saving" if saving in {"requested", "copy"} else "idle"
    return "idle" if saving == "none" else "saving"


def door(incarnation: Incarnation) -> str:
    """`door`: closing from the request of a cut until the cut begins, shut until it ends."""
    state = incarnation.state
    if state is None:
        return "open"
    before = incarnation.stands.at(Action.OPEN_CUT) or incarnation.stands.at(Action.TAKE_CUT)
    if before or "cut" in state.barrier.waiting:
        return "closing"
    return "shut" if state.barrier.cut_open else "open"


def tasks(incarnation: Incarnation) -> dict[str, str]:
    """`task` by group id, of the groups that have one."""
    found = dict.fromkeys(incarnation.generator.groups, "gen")
    for action, group in incarnation.stands.places:
        if group is None:
            continue
        match action:
            case Action.LAUNCH_GROUP if incarnation.failed_before(group):
                found[group] = "failed"
            case Action.DROP_GROUP:
                found[group] = "failed"
            case Action.STORE_ROW | Action.PUT_ROWS:
                found[group] = "committing"
            case Action.COMMIT_GROUP:
                found[group] = "put"
    return found
