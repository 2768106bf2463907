"""From the loader to an admitted batch: position, admission ids, cursor, stamps, weights.

Promise P3: stamps are given once and in order, and cursor, position and epoch belong together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.check import Check, Handler

__all__ = ["Admissions", "Admitted"]


@dataclass(frozen=True)
class Admitted:
    """What a group was given when its batch was admitted."""

    admission: int
    cursor: int
    stamp: int | None
    start_weight: int | None
    """None of a substitute under a sampler of the user's own, which alone knows."""


class Admissions(Check):
    """The counters of the rollout pump's first half."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = -1
        self.next_admission = 0
        self.loader = (0, 0)
        """Epoch and position."""
        self.given: dict[str, Admitted] = {}
        """By group; a substitute has what the group had that it stands in for, but its weight."""
        self._sampler = ""
        self._version = 0
        self._last_stamp = -1
        self._reserved: dict[int, list[str]] = {}
        self._opened: set[int] = set()

    def _handle(self) -> Mapping[Action, Handler]:
        return {
            Action.BEGIN_RUN: self._begin,
            Action.RESERVE_BATCH: self._reserve_served,
            Action.FILL_SPARE_POOL: self._serve,
            Action.DRAIN_SPARE_POOL: self._reserve,
            Action.RAISE_EPOCH: self._raise_epoch,
            Action.OPEN_GATE: self._open_gate,
            Action.COMMIT_ADMISSION: self._admit,
            Action.SUBSTITUTE_GROUP: self._substitute,
            Action.RAISE_VERSION: self._raise_version,
            Action.READ_CURSOR: lambda a: self._same("cursor", a.cursor, self.cursor),
            Action.READ_LOADER: self._read_loader,
            Action.TAKE_CUT: self._take_cut,
            Action.RESTORE_CURSOR: lambda a: self._same("cursor", a.cursor, self.cursor),
        }

    def _begin(self, args: Any) -> None:
        self._sampler = args.sampler
        self._opened.clear()

    def _serve(self, args: Any) -> None:
        self._same("epoch", args.epoch, self.loader[0])
        self.loader = (args.epoch, args.position)

    def _reserve(self, args: Any) -> None:
        self._same("admission", args.admission, self.next_admission)
        self.next_admission = args.admission + 1
        self._reserved[args.admission] = args.groups

    def _reserve_served(self, args: Any) -> None:
        self._serve(args)
        self._reserve(args)

    def _raise_epoch(self, args: Any) -> None:
        self._same("epoch", args.epoch, self.loader[0] + 1)
        self.loader = (args.epoch, 0)

    def _open_gate(self, args: Any) -> None:
        self._same("version", args.version, self._version)
        self._require(
            args.admission in self._reserved and args.admission not in self._opened,
            f"admission {args.admission} does not wait at the gate",
        )
        self._opened.add(args.admission)

    def _admit(self, args: Any) -> None:
        self._require(args.admission in self._opened, "the gate was not opened")
        self._same("the batch", args.groups, self._reserved.pop(args.admission, None))
        self._same("cursor", args.cursor, self.cursor + 1)
        self._same("start weight", args.start_weight, self._version)
        self.cursor = args.cursor
        if args.stamp is not None:
            self._require(
                args.stamp > self._last_stamp,
                f"stamp {args.stamp} comes after stamp {self._last_stamp}",
            )
            self._last_stamp = args.stamp
        given = Admitted(args.admission, args.cursor, args.stamp, args.start_weight)
        self.given.update(dict.fromkeys(args.groups, given))

    def _substitute(self, args: Any) -> None:
        lost = self.given.get(args.group)
        if lost is not None:
            weight = {"windowed": self._version, "custom": None}.get(
                self._sampler, lost.start_weight
            )
            self.given[args.substitute] = replace(lost, start_weight=weight)

    def _raise_version(self, args: Any) -> None:
        self._version = args.version

    def _take_cut(self, args: Any) -> None:
        self._same("cursor", args.cursor, self.cursor)
        self._read_loader(args)

    def _read_loader(self, args: Any) -> None:
        self._same("(epoch, position)", (args.epoch, args.position), self.loader)
