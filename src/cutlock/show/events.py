"""The events of a log as moments in words: owners by the audit's own walk, and what a save holds.

Nothing here looks at a runtime; a log is all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.account import Account
from cutlock.audit.fates import PENDING, Fate
from cutlock.audit.history import Event
from cutlock.show.moments import HELD, NOTHING, Moment, Owner, listed

__all__ = ["Follower", "Saved", "groups_of"]

_READS = {
    Action.READ_SPARE_POOL: (Fate.POOL,),
    Action.READ_INDEX: (Fate.BUFFER,),
    Action.READ_LEDGER: (Fate.RESERVED, Fate.ADMITTED),
}
_ROLLOUT = {
    Action.LAUNCH_GROUP: "generating",
    Action.BEGIN_COMMIT: "commit begun, rows are being put",
    Action.PUT_ROWS: "rows put, entry not ready yet",
    Action.COMMIT_GROUP: "",
    Action.ROLLBACK_GROUP: "failed",
    Action.FAIL_GROUP: "failed",
    Action.DROP_GROUP: "",
    Action.SUBSTITUTE_GROUP: "",
    Action.ABORT_STALE: "",
}
_TRAIN_PUMP = {
    Action.SELECT_GROUPS: "groups claimed, advantages due",
    Action.WRITE_ADVANTAGES: "optimizer step due",
    Action.TRAIN_STEP: "trained, rows to be cleared",
    Action.CLEAR_ROWS: "version to be raised",
    Action.RAISE_VERSION: "weights to be synced",
    Action.SYNC_WEIGHTS: "between two steps",
}
_SAVE = {
    Action.REQUEST_CUT: "the cut is asked for",
    Action.OPEN_CUT: "window open",
    Action.TAKE_CUT: "cut taken, policy to be copied",
    Action.COPY_POLICY: "key map and rows to be written",
    Action.SAVE_PLANE: "rows and files are written",
    Action.CLOSE_CUT: "files are written",
    Action.PUBLISH_BUNDLE: "published",
    Action.PRUNE_BUNDLES: "",
    Action.FAIL_SAVE: "",
}
_DOOR = {
    Action.REQUEST_CUT: "closing",
    Action.OPEN_CUT: "shut",
    Action.TAKE_CUT: "open",
    Action.CLOSE_CUT: "open",
    Action.FAIL_SAVE: "open",
}

_OF_ALL = frozenset(
    {
        Action.BEGIN_RUN,
        Action.VERIFY_BUNDLE,
        Action.RESTORE_INDEX,
        Action.RESTORE_SPARE_POOL,
        Action.RESTORE_LEDGER,
        Action.RESTORE_CURSOR,
    }
)
"""Actions after which other groups than the named ones may have other owners."""


@dataclass
class Saved:
    """What a save has read, and so what its bundle holds."""

    step: str = ""
    cursor: str = ""
    loader: str = ""
    owners: dict[str, Owner] = field(default_factory=dict)


def groups_of(event: Event) -> list[str]:
    """All groups that an event names."""
    args = event.args
    found: list[str] = []
    for name in ("groups", "spares", "index", "ledger"):
        found += getattr(args, name, [])
    return found + [getattr(args, name) for name in ("group", "substitute") if hasattr(args, name)]


class Follower:
    """What is true after each event of one start.

    Args:
        account: of everything in the logs before the start.
        bundles: what the bundles of earlier starts hold, by start and step; filled further.
        disk: what the last published bundle holds.
        resumes: whether the start goes on from a bundle.
    """

    def __init__(
        self,
        account: Account,
        bundles: dict[tuple[int, str], Saved],
        disk: Saved | None = None,
        *,
        resumes: bool = False,
    ) -> None:
        self._account = account
        self._bundles = bundles
        self._incarnation = 0
        self._restored: set[str] | None = set() if resumes else None
        """Groups that have come back so far, while a restore goes on."""
        self._alive = False
        self._rows: dict[str, str] = {}
        self._rollouts: dict[str, str] = {}
        self._details = {"door of the barrier": "open", "train pump": "between two steps"}
        self._saving: Saved | None = None
        self.disk = disk
        self._owners: dict[str, Owner] = {}
        self._tell_all()

    def follow(self, event: Event) -> list[tuple[str, str]]:
        """Follow one event.

        Returns:
            What the audit notices now: check and message.
        """
        before = [len(check.problems) for check in self._account.checks]
        self._note(event.action, event.args)
        self._account.follow(event)
        self._note_owners(event.action, event.args)
        if event.action in _OF_ALL:
            self._tell_all()
        else:
            self._owners = {**self._owners, **self._told(groups_of(event))}
        return [
            (type(check).__name__, problem)
            for check, known in zip(self._account.checks, before, strict=True)
            for problem in check.problems[known:]
        ]

    def crash(self) -> Moment:
        """The moment after the process has died; nothing of it is followed any more."""
        self._restored = set()
        self._alive = False
        self._rows.clear()
        self._rollouts.clear()
        self._details = {}
        self._saving = None
        self._tell_all()
        return self.moment({"down": "no process"})

    def moment(self, bands: Mapping[str, str] | None = None) -> Moment:
        """What is true now, in words."""
        disk = self.disk
        return Moment(
            owners=self._owners,
            rows=dict(self._rows),
            disk={} if disk is None else disk.owners,
            counters=self._counters(),
            details={
                **self._details,
                **{f"rollout of {group}": told for group, told in self._rollouts.items()},
            },
            bands=self._bands() if bands is None else bands,
        )

    @property
    def _fates(self) -> Mapping[str, Fate]:
        return self._account.fates.of

    def _tell_all(self) -> None:
        self._owners = self._told(self._fates)

    def _told(self, groups: Iterable[str]) -> dict[str, Owner]:
        fates = self._fates
        return {group: self._owner(group, fates[group]) for group in groups if group in fates}

    def _owner(self, group: str, fate: Fate) -> Owner:
        if self._restored is not None and fate in PENDING and group not in self._restored:
            return NOTHING
        return self._described(group, fate)

    def _described(self, group: str, fate: Fate) -> Owner:
        times = self._account.fates.trained[group]
        if times > 1:
            return Owner("two owners", f"trained {times} times")
        given = self._account.admissions.given.get(group)
        if fate not in {Fate.ADMITTED, Fate.BUFFER} or given is None:
            reason = self._account.fates.reasons.get(group, "") if fate is Fate.DROPPED else ""
            return Owner(str(fate), reason)
        if given.stamp is None:
            return Owner(str(fate), f"cursor {given.cursor}")
        return Owner(str(fate), f"stamp {given.stamp}")

    def _counters(self) -> dict[str, str]:
        epoch, position = self._account.admissions.loader
        saving, disk = self._saving or Saved(), self.disk or Saved()
        return {
            "trainer version": str(self._account.steps.step) if self._alive else "",
            "dispatch cursor": str(self._account.admissions.cursor) if self._alive else "",
            "loader": f"{epoch}:{position}" if self._alive else "",
            "save: cursor": saving.cursor,
            "save: loader": saving.loader,
            "disk: step": disk.step,
            "disk: cursor": disk.cursor,
            "disk: loader": disk.loader,
        }

    def _bands(self) -> dict[str, str]:
        if not self._alive:
            return {"down": "starting"}
        found = {}
        if self._details.get("save"):
            found["save"] = "save"
        if self._details.get("door of the barrier") == "shut":
            found["window"] = "window"
        if self._details.get("door of the barrier") == "closing":
            found["drain"] = "door closing"
        return found

    def _note(self, action: Action, args: Any) -> None:
        """What the event says of the process, before the owners change."""
        if action in _ROLLOUT:
            self._rollouts[args.group] = _ROLLOUT[action]
        if action in _TRAIN_PUMP:
            self._details["train pump"] = _TRAIN_PUMP[action]
        if action in _SAVE:
            self._details["save"] = _SAVE[action]
        if action in _DOOR:
            self._details["door of the barrier"] = _DOOR[action]
        match action:
            case Action.BEGIN_RUN:
                self._incarnation = args.incarnation
            case Action.VERIFY_BUNDLE:
                self.disk = self._bundles.get((args.incarnation, str(args.step)))
            case Action.RESTORE_CURSOR:
                self._restored = None
            case Action.START_PUMPS:
                self._alive = True
            case Action.END_RUN:
                self._details["run"] = f"ended: {args.reason}"
            case Action.PUT_ROWS:
                self._rows[args.group] = "all"
            case Action.RESTORE_INDEX:
                self._rows.update(dict.fromkeys(args.groups, "all"))
            case Action.ROLLBACK_GROUP:
                self._rows.pop(args.group, None)
            case Action.CLEAR_ROWS | Action.EVICT_GROUPS | Action.FLUSH_DEFERRED:
                for group in args.groups:
                    self._rows.pop(group, None)
        if self._restored is not None and action in {
            Action.RESTORE_INDEX,
            Action.RESTORE_SPARE_POOL,
            Action.RESTORE_LEDGER,
        }:
            self._restored.update(args.groups)

    def _note_owners(self, action: Action, args: Any) -> None:
        """What a save holds, with the owners as they are when it reads them."""
        match action:
            case Action.OPEN_CUT | Action.TAKE_CUT:
                self._saving = self._begin_save(str(args.step))
                if action is Action.TAKE_CUT:
                    self._saving.cursor = str(args.cursor)
                    self._saving.loader = f"{args.epoch}:{args.position}"
                    for groups, fates in (
                        (args.spares, (Fate.POOL,)),
                        (args.index, (Fate.BUFFER,)),
                        (args.ledger, (Fate.RESERVED, Fate.ADMITTED)),
                    ):
                        self._read(groups, fates)
                    self._bundles[self._incarnation, self._saving.step] = self._saving
                    self._details[f"{HELD}index"] = listed(args.index)
                    self._details[f"{HELD}ledger"] = listed(args.ledger)
            case Action.READ_CURSOR if self._saving:
                self._saving.cursor = str(args.cursor)
            case Action.READ_LOADER if self._saving:
                self._saving.loader = f"{args.epoch}:{args.position}"
            case Action.READ_SPARE_POOL | Action.READ_INDEX | Action.READ_LEDGER if self._saving:
                self._read(args.groups, _READS[action])
                name = {
                    Action.READ_SPARE_POOL: f"{HELD}spare pool",
                    Action.READ_INDEX: f"{HELD}index",
                    Action.READ_LEDGER: f"{HELD}ledger",
                }[action]
                self._details[name] = listed(args.groups)
            case Action.CLOSE_CUT if self._saving:
                self._bundles[self._incarnation, self._saving.step] = self._saving
            case Action.PUBLISH_BUNDLE:
                self.disk = self._saving or self.disk
                self._end_save()
            case Action.FAIL_SAVE:
                self._end_save()

    def _begin_save(self, step: str) -> Saved:
        """What is known at the cut of prompts that nobody owes any more, or not yet."""
        gone = {Fate.TRAINED, Fate.DROPPED, Fate.UNREAD}
        owners = {
            group: self._described(group, fate) if fate in gone else Owner("lost")
            for group, fate in self._fates.items()
        }
        return Saved(step=step, owners=owners)

    def _read(self, groups: Iterable[str], fates: tuple[Fate, ...]) -> None:
        assert self._saving is not None
        for group in groups:
            fate = self._fates.get(group, fates[-1])
            owner = self._described(group, fate if fate in fates else fates[-1])
            before = self._saving.owners.get(group, Owner("lost"))
            if before.state not in {"lost", owner.state}:
                owner = Owner("two owners", f"{before.state} + {owner.state}")
            self._saving.owners[group] = owner

    def _end_save(self) -> None:
        self._saving = None
        for name in [name for name in self._details if name.startswith(HELD)]:
            del self._details[name]
