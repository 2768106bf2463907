"""Who does an action, what it does in a sentence, and the states that a prompt can be in.

Sources: the table of `spec/README.md` (who runs what) and `cutlock.alphabet`.
"""

from __future__ import annotations

from typing import NamedTuple

from cutlock.alphabet import Action

__all__ = ["BARRIER_LANES", "LANES", "STATES", "Doing", "Lane", "State", "doing", "state"]


class Lane(NamedTuple):
    """One row of the upper part of a picture."""

    key: str
    title: str


class State(NamedTuple):
    """Owner of a prompt, or what a task does."""

    key: str
    letter: str
    """Stands for it in a picture, so that nobody has to tell colours apart."""
    meaning: str


class Doing(NamedTuple):
    """An action for a reader: who does it, and what it does."""

    lane: str
    meaning: str


LANES = (
    Lane("rollout", "rollout pump"),
    Lane("train", "train pump"),
    Lane("watchdog", "watchdog"),
    Lane("cut", "cut"),
    Lane("plane", "plane"),
    Lane("disk", "disk"),
    Lane("start", "controller"),
)
BARRIER_LANES = (Lane("slot", "slots"), Lane("cut", "cuts"))

STATES = {
    found.key: found
    for found in (
        State("unread", "·", "not yet handed out by the dataloader"),
        State("spare pool", "P", "held back to replace a lost prompt"),
        State("reserved", "R", "taken from the loader, not yet let in by the gate"),
        State("admitted", "A", "let in and stamped; its rollouts are being generated"),
        State("buffer", "B", "finished: rows in the plane, entry in the index"),
        State("in training", "T", "claimed by the open training step"),
        State("trained", "✓", "the optimizer has stepped on it"),
        State("dropped", "✕", "given up on purpose, with a reason"),
        State("two owners", "2!", "owned twice: it would be trained twice"),
        State("lost", "0!", "handed out, and owned by nobody"),
        State("foreign", "?", "not of this run: somebody else uses the plane"),
        State("idle", "·", "holds nothing and waits for nothing"),
        State("waiting", "w", "waits in the queue"),
        State("granted", "g", "was handed a place, has not run yet"),
        State("inside", "I", "inside its section"),
    )
}

_DOING: dict[str, dict[Action, str]] = {
    "rollout": {
        Action.RESERVE_BATCH: "Takes the next batch from the loader and reserves it in the ledger.",
        Action.FILL_SPARE_POOL: "Takes the next batch from the loader and holds it back as spares.",
        Action.DRAIN_SPARE_POOL: "The data is at its end: spares become a batch of their own.",
        Action.RAISE_EPOCH: "The batch was the last of its epoch: the epoch counter is raised.",
        Action.OPEN_GATE: "The wait at the gate is over; the batch may be admitted.",
        Action.COMMIT_ADMISSION: "Admits the batch: raises the dispatch cursor, stamps its prompts "
        "with it.",
        Action.LAUNCH_GROUP: "Starts to generate the rollouts of a prompt.",
        Action.BEGIN_COMMIT: "The rollouts are finished; their commit enters its slot.",
        Action.COMMIT_GROUP: "The group becomes ready in the buffer, and its ledger record goes.",
        Action.ROLLBACK_GROUP: "The commit has failed: the rows that it has put are cleared.",
        Action.FAIL_GROUP: "Generation has failed.",
        Action.DROP_GROUP: "The prompt is given up; its step is closed one group short.",
        Action.SUBSTITUTE_GROUP: "The prompt is given up, and a spare takes its place.",
    },
    "watchdog": {
        Action.ABORT_STALE: "Aborts a rollout that is too old to be trained.",
    },
    "train": {
        Action.EVICT_GROUPS: "Drops finished groups that are too old to be trained.",
        Action.SELECT_GROUPS: "Claims the groups of the next training step.",
        Action.WRITE_ADVANTAGES: "Computes advantages and writes them onto the claimed rows.",
        Action.TRAIN_STEP: "The optimizer steps on the claimed groups.",
        Action.CLEAR_ROWS: "Deletes the rows of the step; its claim ends.",
        Action.RAISE_VERSION: "The trainer's version rises, and the gate moves with it.",
        Action.SYNC_WEIGHTS: "The generators take the new weights.",
    },
    "cut": {
        Action.REQUEST_CUT: "A save begins: it asks for the cut.",
        Action.OPEN_CUT: "The exclusive window opens: nothing moves a prompt until it closes.",
        Action.READ_CURSOR: "The save reads the dispatch cursor.",
        Action.READ_LOADER: "The save reads the loader's position and epoch.",
        Action.READ_SPARE_POOL: "The save reads the spare pool.",
        Action.READ_INDEX: "The save reads the index of the buffer.",
        Action.READ_LEDGER: "The save reads the ledger, without what the index owns.",
        Action.TAKE_CUT: "The cut: cursor, loader, pool, index and ledger are read in one step.",
        Action.COPY_POLICY: "The trainer is copied; then it may go on.",
        Action.CLOSE_CUT: "The exclusive window closes.",
        Action.FAIL_SAVE: "The save fails; the run goes on, and the last bundle stays.",
    },
    "plane": {
        Action.STORE_ROW: "One storage unit stores its part of a group.",
        Action.PUT_ROWS: "The plane has taken all rows of the group.",
        Action.SAVE_PLANE: "The plane writes its key map; in a full window its rows as well.",
        Action.SAVE_UNIT: "One storage unit writes its rows, as they are by now.",
        Action.FLUSH_DEFERRED: "Clears that waited for the units to be saved are done.",
        Action.LOAD_PLANE: "The rows of the bundle are brought back into the plane.",
        Action.CONNECT_PLANE: "The controller connects; rows and index of the bundle must agree.",
    },
    "disk": {
        Action.WRITE_POLICY: "Weights and optimizer are written.",
        Action.WRITE_SIDECARS: "Counters, loader, pool, index and ledger are written.",
        Action.WRITE_MANIFEST: "The manifest is written, with the digest of every file.",
        Action.PUBLISH_BUNDLE: "One rename makes the bundle the one to resume from.",
        Action.PRUNE_BUNDLES: "Old bundles go; the save is over.",
        Action.VERIFY_BUNDLE: "The bundle to resume from is verified, file by file.",
    },
    "start": {
        Action.BEGIN_RUN: "A controller starts.",
        Action.START_PUMPS: "The controller is complete and starts its pumps.",
        Action.END_RUN: "The run ends.",
        Action.CRASH: "The process dies: all that is left is on disk.",
        Action.RESTORE_INDEX: "Finished groups come back into the buffer.",
        Action.RESTORE_SPARE_POOL: "Spares come back.",
        Action.RESTORE_LEDGER: "Prompts that are owed come back into the ledger.",
        Action.RESTORE_CURSOR: "Cursor, loader position and version come back.",
    },
}

_BY_NAME = {
    str(action): Doing(lane, meaning)
    for lane, actions in _DOING.items()
    for action, meaning in actions.items()
}
_NOT_IN_THE_ALPHABET = {
    "Init": Doing("start", "The state that the behaviour starts from."),
    "Late": Doing("rollout", "Late work of a task that had already said that it was done."),
    "EnterFast": Doing("slot", "Enters at once: nobody waits and nothing is in the way."),
    "Wait": Doing("slot", "Has to wait, and queues up."),
    "Resume": Doing("slot", "Runs again with the place that it was handed."),
    "Leave": Doing("slot", "Leaves, and hands free places to the head of the queue."),
    "CancelWaiting": Doing("slot", "Is cancelled while it waits."),
    "CancelGranted": Doing("slot", "Is cancelled in the turn in which it was handed a place."),
}


def doing(action: str) -> Doing:
    """Who does an action and what it does; `Refused...` is a step that was not possible."""
    known = {**_NOT_IN_THE_ALPHABET, **_BY_NAME}
    if action in known:
        return known[action]
    refused = known.get(action.removeprefix("Refused"))
    if refused is not None:
        return Doing(refused.lane, f"Is tried and refused: {refused.meaning}")
    return Doing("start", "An action that the alphabet does not know.")


def state(key: str) -> State:
    """A state by its key; of an unknown one, the key is all that is known."""
    return STATES.get(key, State(key, key[:1], key))
