"""The fate of every prompt occurrence, told from the surviving history alone.

The walk is deliberately not the runtime's own book-keeping: it knows the data set, the
alphabet, and which owner each action takes a group from.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable

from cutlock.alphabet import Action
from cutlock.audit.history import Segment
from cutlock.events import Record
from cutlock.workers.chain import FIRST_CHAIN, extend_chain

__all__ = ["Fate", "Fates"]


class Fate(enum.StrEnum):
    """Owner of an occurrence, or how it ended."""

    UNREAD = "unread"
    POOL = "spare pool"
    LEDGER = "ledger"
    BUFFER = "buffer"
    TRAINING = "in training"
    TRAINED = "trained"
    DROPPED = "dropped"
    LOST = "lost"


PENDING = frozenset({Fate.POOL, Fate.LEDGER, Fate.BUFFER, Fate.TRAINING})


class Fates:
    """Owners of all occurrences after the records walked so far.

    Args:
        prompts: stable ids of the data set.
        epochs: how often each is to be served.
    """

    def __init__(self, prompts: Iterable[str], epochs: int) -> None:
        self._prompts = tuple(prompts)
        self.of = {
            f"{prompt}@{epoch}": Fate.UNREAD for epoch in range(epochs) for prompt in self._prompts
        }
        self.trained: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        """Occurrence to the reason of its drop."""
        self.problems: list[str] = []
        self.chain = FIRST_CHAIN
        self._served: Counter[int] = Counter()
        self._failed: dict[str, str] = {}
        self._where = ""
        self._restored: dict[str, Fate] = {}
        self._handlers: dict[Action, Callable[[dict[str, object]], None]] = {
            Action.RESERVE_BATCH: lambda a: self._serve(a, Fate.LEDGER),
            Action.FILL_SPARE_POOL: lambda a: self._serve(a, Fate.POOL),
            Action.DRAIN_SPARE_POOL: lambda a: self._move(a["groups"], Fate.POOL, Fate.LEDGER),
            Action.RAISE_EPOCH: self._raise_epoch,
            Action.COMMIT_GROUP: lambda a: self._move([a["group"]], Fate.LEDGER, Fate.BUFFER),
            Action.FAIL_GROUP: self._fail,
            Action.DROP_GROUP: lambda a: self._drop([a["group"]], Fate.LEDGER, str(a["reason"])),
            Action.SUBSTITUTE_GROUP: self._substitute,
            Action.ABORT_STALE: lambda a: self._drop([a["group"]], Fate.LEDGER, "stale in flight"),
            Action.EVICT_GROUPS: lambda a: self._drop(a["groups"], Fate.BUFFER, "stale, evicted"),
            Action.SELECT_GROUPS: lambda a: self._move(a["groups"], Fate.BUFFER, Fate.TRAINING),
            Action.TRAIN_STEP: self._train,
            Action.RESTORE_INDEX: lambda a: self._restore(a["groups"], Fate.BUFFER),
            Action.RESTORE_SPARE_POOL: lambda a: self._restore(a["groups"], Fate.POOL),
            Action.RESTORE_LEDGER: lambda a: self._restore(a["groups"], Fate.LEDGER),
            Action.RESTORE_CURSOR: self._end_restore,
        }

    def walk(self, segment: Segment) -> None:
        """Follow the records of one segment."""
        for record in segment.records:
            self._where = f"{segment.path.name}:{record.seq + 1} {record.action}"
            self.follow(record)

    def follow(self, record: Record) -> None:
        """Follow one record."""
        handler = self._handlers.get(Action(record.action))
        if handler is not None:
            handler(record.args)

    def finish(self, *, everything_served: bool) -> None:
        """Call what is unread or pending lost, if the run says that it has trained all."""
        for key, fate in self.of.items():
            if everything_served and (fate is Fate.UNREAD or fate in PENDING):
                self.of[key] = Fate.LOST
                self.problems.append(f"{key} is {fate} at the end of a run that served all")

    def owned(self, fate: Fate) -> set[str]:
        """The occurrences of one fate."""
        return {key for key, owner in self.of.items() if owner is fate}

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self._where}: {text}")

    def _move(self, groups: object, source: Fate, target: Fate) -> None:
        for group in _ids(groups):
            if group not in self.of:
                self._problem(f"{group} is of no prompt of the data set")
            elif self.of[group] is not source:
                self._problem(f"{group} goes from {source} to {target} and is {self.of[group]}")
            self.of[group] = target

    def _serve(self, args: dict[str, object], owner: Fate) -> None:
        groups, epoch, position = _ids(args["groups"]), args["epoch"], args["position"]
        self._move(groups, Fate.UNREAD, owner)
        if not isinstance(epoch, int):
            self._problem(f"epoch {epoch!r} is no number")
            return
        self._served[epoch] += len(groups)
        if self._served[epoch] != position:
            self._problem(
                f"the loader stands at {position} of epoch {epoch} and has handed out "
                f"{self._served[epoch]} prompts"
            )

    def _raise_epoch(self, args: dict[str, object]) -> None:
        epoch = args["epoch"]
        if isinstance(epoch, int) and self._served[epoch - 1] != len(self._prompts):
            self._problem(
                f"epoch {epoch - 1} ends after {self._served[epoch - 1]} of "
                f"{len(self._prompts)} prompts"
            )

    def _fail(self, args: dict[str, object]) -> None:
        self._failed[str(args["group"])] = str(args["error"])

    def _drop(self, groups: object, source: Fate, reason: str) -> None:
        for group in _ids(groups):
            self._move([group], source, Fate.DROPPED)
            self.reasons[group] = reason

    def _substitute(self, args: dict[str, object]) -> None:
        group, spare = str(args["group"]), str(args["substitute"])
        reason = self._failed.get(group, "failed")
        self._drop([group], Fate.LEDGER, f"replaced by {spare}: {reason}")
        self._move([spare], Fate.POOL, Fate.LEDGER)

    def _train(self, args: dict[str, object]) -> None:
        groups, step = _ids(args["groups"]), args["step"]
        self._move(groups, Fate.TRAINING, Fate.TRAINED)
        self.trained.update(groups)
        if isinstance(step, int):
            self.chain = extend_chain(self.chain, step, groups)

    def _restore(self, groups: object, owner: Fate) -> None:
        for group in _ids(groups):
            if group in self._restored:
                self._problem(f"{group} is restored as {self._restored[group]} and as {owner}")
            self._restored[group] = owner

    def _end_restore(self, args: dict[str, object]) -> None:
        """Compare what a restore brought with who owned what at the cut."""
        for group, fate in list(self.of.items()):
            restored = self._restored.pop(group, None)
            if fate in PENDING and restored is None:
                self._problem(f"{group} was {fate} at the cut and was not restored")
                self.of[group] = Fate.LOST
            elif restored is not None:
                given_back = (fate, restored) == (Fate.BUFFER, Fate.LEDGER)
                if restored is not fate and not given_back:
                    self._problem(f"{group} was {fate} at the cut and was restored as {restored}")
                self.of[group] = restored
        for group in self._restored:
            self._problem(f"{group} was restored and is of no prompt of the data set")
        self._restored.clear()


def _ids(groups: object) -> list[str]:
    return [str(group) for group in groups] if isinstance(groups, list) else []
