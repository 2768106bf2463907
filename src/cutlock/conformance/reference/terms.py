"""The vocabulary of the reference: what a state says, in the terms of the spec.

`Ordered = TRUE`: where the code chooses by order there is one choice.

Source: `spec/State.tla`, `spec/Samplers.tla`, `spec/Protections.tla`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from cutlock.conformance.reference.state import Prompt, Prompts, Rows, State, prompts_of
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.tlc.values import Value

__all__ = ["ALL_FILES", "NO_BUNDLE", "START_DUE", "Terms"]

NO_BUNDLE = -1
START_DUE = -2
"""A run that starts from nothing saves before it trains."""

ALL_FILES = ("policy", "sidecars", "manifest")
"""Of a bundle, beside those of the units."""

_HOLDING_TASKS = ("committing", "put")


class Terms:
    """The definitions of the spec over one state; each has the name that it has there.

    Args:
        max_crashes: `MaxCrashes`.
        crash_anywhere: `CrashAnywhere`.
    """

    def __init__(
        self, bounds: Bounds, state: State, max_crashes: int, crash_anywhere: bool
    ) -> None:
        self.bounds = bounds
        self.state = state
        self._max_crashes = max_crashes
        self._crash_anywhere = crash_anywhere
        self.prompts = prompts_of(bounds)

    # Vocabulary.

    def members(self, batch: int) -> Prompts:
        """The prompts of a batch."""
        return frozenset((batch, member) for member in self.bounds.members)

    def earlier(self, prompt: Prompt) -> int:
        """The place of a prompt in the order in which the loader hands them out."""
        batch, member = prompt
        return batch * self.bounds.size + self.bounds.members.index(member)

    @cached_property
    def reserved(self) -> Prompts:
        """Prompts that the ledger owns and nobody has admitted."""
        return frozenset(p for p in self.prompts if self.state.led[p] == "RESERVED")

    @cached_property
    def admitted(self) -> Prompts:
        """Prompts that are admitted and not finished."""
        return frozenset(p for p in self.prompts if self.state.led[p] == "ADMITTED")

    @cached_property
    def owned(self) -> Prompts:
        """Prompts that the ledger owns."""
        return self.reserved | self.admitted

    @cached_property
    def running(self) -> Prompts:
        """Prompts whose rollout has a task."""
        return frozenset(p for p in self.prompts if self.state.task[p] != "none")

    @cached_property
    def holders(self) -> Prompts:
        """Prompts whose task is inside the slot of its commit."""
        return frozenset(p for p in self.running if self.state.task[p] in _HOLDING_TASKS)

    @property
    def gated(self) -> bool:
        """Whether dispatch waits at a gate."""
        return self.bounds.sampler != "windowed"

    @property
    def stamping(self) -> bool:
        """Whether a batch is meant for one step."""
        return self.bounds.sampler == "in_order"

    @property
    def credits_(self) -> bool:
        """Whether a lost group is credited to its step."""
        return self.bounds.sampler in {"in_order", "ready_first"}

    @property
    def weight(self) -> int:
        """The start weight that an admission gives, kept only where a choice looks at it."""
        return self.state.version if self.bounds.keeps_weights else -1

    @property
    def exhausted(self) -> bool:
        """Whether the loader has handed out everything."""
        return self.state.pos == self.bounds.batches

    @property
    def settled(self) -> bool:
        """Whether nothing more will be committed."""
        return self.exhausted and not self.state.pool and not self.owned

    @property
    def finished(self) -> bool:
        """Whether the run has nothing left to do but its last save."""
        s = self.state
        quiet = s.tp == "idle" and s.sv == "none" and not s.raising
        return self.settled and not s.deferred and not s.index and quiet

    @property
    def next_selection(self) -> int:
        """The step whose groups have not been selected yet."""
        s = self.state
        return s.version if s.tp in {"idle", "saving", "sync"} else s.version + 1

    @property
    def held(self) -> int:
        """Places of the buffer that are taken: by a group from its launch to its selection."""
        return len(self.state.index) + len(self.running)

    def rows_of(self, groups: Iterable[Prompt]) -> Rows:
        """All rows of groups."""
        return frozenset((group, unit) for group in groups for unit in self.bounds.units)

    @property
    def all_files(self) -> frozenset[Value]:
        """The files of a whole bundle."""
        return frozenset((*ALL_FILES, *self.bounds.units))

    def epoch_of(self, pos: int) -> int:
        """Where the loader's epoch counter stands between two slots."""
        return pos // self.bounds.per_epoch

    @property
    def published(self) -> bool:
        """Whether there is a bundle."""
        return bool(self.state.disk.files)

    # Choice of groups.

    def in_window(self, prompt: Prompt) -> bool:
        """Whether a group may still be trained, by its start weight."""
        return self.state.wt[prompt] >= self.state.version - self.bounds.window

    @cached_property
    def evictable(self) -> Prompts:
        """Finished groups that can never be selected any more."""
        s = self.state
        match self.bounds.sampler:
            case "in_order":
                return frozenset(p for p in s.index if s.idx[p] < s.version)
            case "ready_first":
                return frozenset()
        return frozenset(p for p in s.index if not self.in_window(p))

    @cached_property
    def live(self) -> Prompts:
        """Groups that are owed to the trainer: finished or admitted."""
        return self.state.index | self.admitted

    @property
    def oldest_weight(self) -> int:
        """The oldest start weight that may still be trained; -1 without one."""
        return min((self.state.wt[p] for p in self.live if self.in_window(p)), default=-1)

    @property
    def empty_step_due(self) -> bool:
        """Whether only an empty step opens the gate again, if all that it let in is lost."""
        return self.state.cursor >= self.state.version + self.bounds.window

    @property
    def need(self) -> int:
        """Groups that the next step trains."""
        size = self.bounds.size
        if self.credits_:
            return max(0, size - self.state.short[self.state.version])
        if self.bounds.sampler == "weight_fifo":
            oldest = self.oldest_weight
            if oldest != -1 or self.empty_step_due:
                return min(size, sum(self.state.wt[p] == oldest for p in self.live))
        return size

    @property
    def candidates(self) -> Prompts:
        """Finished groups that it may be made of."""
        s = self.state
        match self.bounds.sampler:
            case "in_order":
                return frozenset(p for p in s.index if s.idx[p] == s.version)
            case "ready_first":
                return s.index
            case "weight_fifo":
                return frozenset(p for p in s.index if s.wt[p] == self.oldest_weight)
        return frozenset(p for p in s.index if self.in_window(p))

    def selections(self) -> Iterator[Prompts]:
        """The sets of groups that may be trained now: with `Ordered` at most one."""
        s = self.state
        need = min(self.need, len(s.index)) if self.settled else self.need
        candidates = self.candidates
        if not (self.settled and not s.index) and len(candidates) >= need:
            yield frozenset([p for p in s.order if p in candidates][:need])

    def spares(self, count: int) -> Prompts:
        """The spares that are taken next."""
        return frozenset(sorted(self.state.pool, key=self.earlier)[:count])

    @cached_property
    def stale(self) -> Prompts:
        """Rollouts that can never train any more."""
        running = (p for p in self.running if self.state.task[p] == "gen")
        return frozenset(p for p in running if not self.in_window(p))

    @property
    def first_stale(self) -> Prompts:
        """The one of them that is aborted first."""
        first = sorted(self.stale, key=lambda p: (self.state.idx[p], self.earlier(p)))
        return frozenset(first[:1])

    # Protections.

    @property
    def door_open(self) -> bool:
        """Whether a slot whose effects span an await may be entered."""
        return self.state.door == "open"

    @property
    def slot_open(self) -> bool:
        """Whether any other slot may be entered."""
        return self.bounds.narrow or self.door_open

    @property
    def may_open(self) -> bool:
        """Whether no slot is held that a cut waits for."""
        return not self.state.raising and (self.bounds.narrow or not self.holders)

    @property
    def pinned(self) -> Prompts:
        """Groups that the open save has captured and whose rows are not all written yet."""
        cap = self.state.cap
        written = cap.files.issuperset(self.bounds.units)
        return frozenset() if cap.index is None or written else cap.index

    @property
    def gate_open(self) -> bool:
        """Whether the gate is open."""
        return not self.gated or self.state.cursor < self.state.version + self.bounds.window

    @cached_property
    def unlaunched(self) -> Prompts:
        """Admitted groups that have no place yet."""
        return frozenset(p for p in self.admitted if self.state.task[p] == "none")

    def before(self, prompt: Prompt) -> int:
        """How many admitted groups get their places before this one."""
        idx = self.state.idx
        return sum(idx[other] < idx[prompt] for other in self.unlaunched)

    @property
    def bound(self) -> bool:
        """Whether the bundle's artifacts are all of one save."""
        return len(set(self.state.disk.of.values())) == 1

    @property
    def fits(self) -> bool:
        """Whether the finished groups of the bundle have places; the capacity never changes."""
        return len(self.state.disk.index) <= self.bounds.capacity

    @property
    def cursor_holds(self) -> bool:
        """Whether the bundle's cursor is not below a stamp."""
        s = self.state
        return all(s.idx[p] <= s.disk.cursor for p in s.index | self.admitted)

    @property
    def may_crash(self) -> bool:
        """Whether the process may die."""
        s = self.state
        now = self._crash_anywhere or s.sv == "published"
        return s.crashes < self._max_crashes and s.up != "down" and now

    # Rollout pump and save.

    @property
    def pool_low(self) -> bool:
        """Whether the next batch goes into the spare pool."""
        return self.state.cursor >= 0 and len(self.state.pool) < self.bounds.spare_mark

    @property
    def wanted(self) -> int:
        """Places that are taken, and those that admitted groups wait for."""
        return self.held + len(self.unlaunched)

    @property
    def pump_free(self) -> bool:
        """Whether the pump has nothing left from before."""
        places = self.wanted <= self.bounds.capacity
        return not self.reserved and places and not self.state.raising

    @property
    def inventory_holds(self) -> bool:
        """Whether the plane holds the rows of the captured index, and in the window no others."""
        index = self.state.cap.index
        if index is None:
            return False
        owned = self.rows_of(index)
        return owned <= self.state.rows if self.bounds.narrow else owned == self.state.rows
