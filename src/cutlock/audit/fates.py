"""The fate of every prompt occurrence, told from the event logs alone.

The walk is deliberately not the runtime's own book-keeping: it knows the data set, the
alphabet, and which owner each action takes a group from.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.check import Check, Handler
from cutlock.workers.training import FIRST_CHAIN, extend_chain

__all__ = ["PENDING", "Fate", "Fates"]


class Fate(enum.StrEnum):
    """Owner of an occurrence, or how it ended."""

    UNREAD = "unread"
    POOL = "spare pool"
    RESERVED = "reserved"
    ADMITTED = "admitted"
    BUFFER = "buffer"
    TRAINING = "in training"
    TRAINED = "trained"
    DROPPED = "dropped"
    LOST = "lost"


PENDING = frozenset({Fate.POOL, Fate.RESERVED, Fate.ADMITTED, Fate.BUFFER, Fate.TRAINING})
"""Owned by somebody who still owes it to the trainer."""

_LEDGER = frozenset({Fate.RESERVED, Fate.ADMITTED})


class Fates(Check):
    """Owners of all occurrences after the events followed so far.

    Args:
        prompts: stable ids of the data set.
        epochs: how often each is to be served.
    """

    def __init__(self, prompts: Iterable[str], epochs: int) -> None:
        super().__init__()
        self._prompts = tuple(prompts)
        self.of = {
            f"{prompt}@{epoch}": Fate.UNREAD for epoch in range(epochs) for prompt in self._prompts
        }
        self.trained: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        """Occurrence to the reason of its drop."""
        self.chain = FIRST_CHAIN
        self.given_up = 0
        """Occurrences dropped because their generation kept failing."""
        self._served: Counter[int] = Counter()
        self._failed: dict[str, str] = {}
        self._restored: dict[str, frozenset[Fate]] = {}

    def _handle(self) -> Mapping[Action, Handler]:
        return {
            Action.RESERVE_BATCH: lambda a: self._serve(a, Fate.RESERVED),
            Action.FILL_SPARE_POOL: lambda a: self._serve(a, Fate.POOL),
            Action.DRAIN_SPARE_POOL: lambda a: self._move(a.groups, Fate.POOL, Fate.RESERVED),
            Action.RAISE_EPOCH: self._raise_epoch,
            Action.COMMIT_ADMISSION: lambda a: self._move(a.groups, Fate.RESERVED, Fate.ADMITTED),
            Action.LAUNCH_GROUP: lambda a: self._move([a.group], Fate.ADMITTED, Fate.ADMITTED),
            Action.BEGIN_COMMIT: lambda a: self._move([a.group], Fate.ADMITTED, Fate.ADMITTED),
            Action.COMMIT_GROUP: lambda a: self._move([a.group], Fate.ADMITTED, Fate.BUFFER),
            Action.FAIL_GROUP: self._fail,
            Action.DROP_GROUP: lambda a: self._give_up(a.group, a.reason),
            Action.SUBSTITUTE_GROUP: self._substitute,
            Action.ABORT_STALE: lambda a: self._drop([a.group], Fate.ADMITTED, "stale in flight"),
            Action.EVICT_GROUPS: lambda a: self._drop(a.groups, Fate.BUFFER, "stale, evicted"),
            Action.SELECT_GROUPS: lambda a: self._move(a.groups, Fate.BUFFER, Fate.TRAINING),
            Action.TRAIN_STEP: self._train,
            Action.READ_SPARE_POOL: lambda a: self._read(a.groups, Fate.POOL),
            Action.READ_INDEX: lambda a: self._read(a.groups, Fate.BUFFER),
            Action.READ_LEDGER: lambda a: self._read(a.groups, *_LEDGER),
            Action.TAKE_CUT: self._take_cut,
            Action.RESTORE_INDEX: lambda a: self._restore(a.groups, Fate.BUFFER),
            Action.RESTORE_SPARE_POOL: lambda a: self._restore(a.groups, Fate.POOL),
            Action.RESTORE_LEDGER: lambda a: self._restore(a.groups, *_LEDGER),
            Action.RESTORE_CURSOR: lambda a: self._end_restore(),
        }

    def finish(self, epochs: int) -> None:
        """Call lost what is pending or unread: for the end of a run that says it served all.

        Args:
            epochs: how many the run was to serve; what is unread of later ones is not owed.
        """
        for key, fate in self.of.items():
            unread = fate is Fate.UNREAD and int(key.rpartition("@")[2]) < epochs
            if unread or fate in PENDING:
                self.of[key] = Fate.LOST
                self.problems.append(f"{key} is {fate} at the end of a run that served all")

    def owned(self, *fates: Fate) -> set[str]:
        """The occurrences of these fates."""
        return {key for key, owner in self.of.items() if owner in fates}

    def _move(self, groups: Iterable[str], source: Fate, target: Fate) -> None:
        for group in groups:
            if group not in self.of:
                self._problem(f"{group} is of no prompt of the data set")
            elif self.of[group] is not source:
                self._problem(f"{group} goes from {source} to {target} and is {self.of[group]}")
            self.of[group] = target

    def _serve(self, args: Any, owner: Fate) -> None:
        self._move(args.groups, Fate.UNREAD, owner)
        self._served[args.epoch] += len(args.groups)
        for group in args.groups:
            if not group.endswith(f"@{args.epoch}"):
                self._problem(f"{group} is served in epoch {args.epoch}")
        if self._served[args.epoch] != args.position:
            self._problem(
                f"the loader stands at {args.position} of epoch {args.epoch} and has handed out "
                f"{self._served[args.epoch]} prompts"
            )

    def _raise_epoch(self, args: Any) -> None:
        served = self._served[args.epoch - 1]
        if served != len(self._prompts):
            self._problem(
                f"epoch {args.epoch - 1} ends after {served} of {len(self._prompts)} prompts"
            )

    def _fail(self, args: Any) -> None:
        self._failed[args.group] = args.error
        self._move([args.group], Fate.ADMITTED, Fate.ADMITTED)

    def _drop(self, groups: Iterable[str], source: Fate, reason: str) -> None:
        for group in groups:
            self._move([group], source, Fate.DROPPED)
            self.reasons[group] = reason

    def _give_up(self, group: str, reason: str) -> None:
        self.given_up += 1
        self._drop([group], Fate.ADMITTED, reason)

    def _substitute(self, args: Any) -> None:
        reason = self._failed.get(args.group, "failed")
        self._give_up(args.group, f"replaced by {args.substitute}: {reason}")
        self._move([args.substitute], Fate.POOL, Fate.ADMITTED)

    def _train(self, args: Any) -> None:
        self._move(args.groups, Fate.TRAINING, Fate.TRAINED)
        self.trained.update(args.groups)
        self.chain = extend_chain(self.chain, args.step, args.groups)

    def _read(self, groups: list[str], *fates: Fate) -> None:
        """Compare one read of a cut with the owners at that moment."""
        owned = self.owned(*fates)
        if len(set(groups)) < len(groups):
            self._problem(f"a group is read twice: {sorted(groups)}")
        if owned != set(groups):
            self._problem(
                f"the cut reads {len(groups)} groups as {' or '.join(sorted(fates))} and there "
                f"are {len(owned)}: only in the cut {sorted(set(groups) - owned)[:4]}, not in "
                f"it {sorted(owned - set(groups))[:4]}"
            )

    def _take_cut(self, args: Any) -> None:
        self._read(args.spares, Fate.POOL)
        self._read(args.index, Fate.BUFFER)
        self._read(args.ledger, *_LEDGER)

    def _restore(self, groups: Iterable[str], *owners: Fate) -> None:
        for group in groups:
            if group in self._restored:
                self._problem(
                    f"{group} is restored as {' or '.join(sorted(self._restored[group]))} and as "
                    f"{' or '.join(sorted(owners))}"
                )
            self._restored[group] = frozenset(owners)

    def _end_restore(self) -> None:
        """Compare what a restore brought with who owned what at the cut."""
        for group, fate in list(self.of.items()):
            owners = self._restored.pop(group, None)
            if owners is None:
                if fate in PENDING:
                    self._problem(f"{group} was {fate} at the cut and was not restored")
                    self.of[group] = Fate.LOST
            elif fate not in owners:
                # Finished groups whose rows are not restored are generated again.
                given_back = fate is Fate.BUFFER and Fate.ADMITTED in owners
                self.of[group] = Fate.ADMITTED if given_back else min(owners)
                if not given_back:
                    self._problem(
                        f"{group} was {fate} at the cut and was restored as "
                        f"{' or '.join(sorted(owners))}"
                    )
        for group in self._restored:
            self._problem(f"{group} was restored and is of no prompt of the data set")
        self._restored.clear()
