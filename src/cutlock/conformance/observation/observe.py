"""The observation: the variables of the spec, read off the real things.

What the spec keeps of memory is read from the controller's parts, what it keeps of the plane
from the store, what it keeps of the disk from files; only how far tasks have come is taken
from where they stand. Values are those of `cutlock.tlc.values`, to be compared with a state
of TLC.

Source: variables of `spec/State.tla`; design, section 13.
"""

from __future__ import annotations

from cutlock.alphabet import Action
from cutlock.conformance.observation.on_disk import Disk
from cutlock.conformance.observation.words import Owned, Words, dropped_in, record
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.conformance.stepping.stepped_run import SteppedRun
from cutlock.run.capture import Capture, LedgerRead
from cutlock.run.state import RunState, SavePhase
from cutlock.tlc.values import Function, Value

__all__ = ["Observer"]

_UNSET = record(set=False)
_NOBODY: frozenset[Value] = frozenset()


def _set(value: Value) -> Function:
    return record(set=True, v=value)


_LAST_READS = frozenset({Action.READ_LEDGER, Action.TAKE_CUT})

_NO_CAPTURE = record(
    **dict.fromkeys(("cursor", "loader", "pool", "index", "ledger"), _UNSET),
    **dict.fromkeys(("keys", "rows", "derived", "files"), _NOBODY),
    order=(),
)


class Observer:
    """Looks at one run."""

    def __init__(self, stepper: SteppedRun) -> None:
        self._stepper = stepper
        self._words = Words(stepper.bounds)
        self._disk = Disk(stepper.bounds, stepper.directory, stepper.host)

    def state(self) -> dict[str, Value]:
        """All variables by name."""
        stepper, incarnation = self._stepper, self._stepper.incarnation
        disk = self._disk.published()
        found: dict[str, Value] = {
            "up": stepper.up,
            "disk": disk,
            "failures": stepper.failures,
            "crashes": stepper.crashes,
            **self._plane(incarnation),
            **self._history(incarnation, disk),
        }
        state = None if incarnation is None else incarnation.state
        found |= self._memory(state)
        found |= self._control(incarnation, state)
        return found

    def _plane(self, incarnation: Incarnation | None) -> dict[str, Value]:
        rows = self._stepper.host.rows()
        state = None if incarnation is None else incarnation.state
        return {
            "rows": self._words.rows(rows),
            "derived": self._words.derived(rows),
            "deferred": self._words.keys(() if state is None else state.plane.deferred),
        }

    def _history(self, incarnation: Incarnation | None, disk: Function) -> dict[str, Value]:
        """What is true of all starts together, as far as it has survived."""
        trained, dropped = disk["trained"], disk["dropped"]
        if incarnation is not None and incarnation.trainer is not None:
            trained = self._words.trained(incarnation.trainer.trained)
            dropped = self._words.set_of(self._dropped(incarnation, incarnation.log.count))
        return {"trained": trained, "dropped": dropped}

    def _dropped(self, incarnation: Incarnation, count: int) -> frozenset[str]:
        """Groups given up until that many records of the log of this start."""
        new = dropped_in(incarnation.log.records[:count])
        past = incarnation.past
        return new if past is None else new | self._disk.dropped_by(*past)

    def _memory(self, state: RunState | None) -> dict[str, Value]:
        words = self._words
        if state is None:
            nothing = self._disk.nothing
            return {
                name: nothing[name]
                for name in (
                    *("pos", "epoch", "pool", "led", "idx", "wt", "cursor", "index", "order"),
                    *("version", "short"),
                )
            } | {"claimed": _NOBODY}
        ready, admitted = state.buffer.ready(), state.ledger.admitted()
        reserved = [record for _, batch in state.ledger.reserved() for record in batch]
        owned: tuple[Owned, ...] = (*admitted, *ready)
        steps = {*self._stepper.bounds.steps, *state.shortfall._missing}
        return {
            "pos": words.position(state.loader.epoch, state.loader.position),
            "epoch": state.loader.epoch,
            "pool": words.set_of(spare.key for spare in state.pool._spares),
            "led": words.led((*admitted, *reserved)),
            "idx": words.idx(owned),
            "wt": words.wt(owned),
            "cursor": state.sampler.cursor,
            "index": words.set_of(entry.group_id for entry in ready),
            "order": words.order_of(entry.group_id for entry in ready),
            "claimed": words.set_of(state.buffer.claimed),
            "version": state.version.value,
            "short": words.short({step: state.shortfall.of(step) for step in steps}),
        }

    def _control(self, incarnation: Incarnation | None, state: RunState | None) -> dict[str, Value]:
        words = self._words
        if incarnation is None or state is None or incarnation.run is None:
            return {
                "raising": False,
                "gate": False,
                "task": words.of({}, "none"),
                "computed": _NOBODY,
                "tp": "idle",
                "sv": "none",
                "door": "open",
                "cap": _NO_CAPTURE,
                "saved": -1,
            }
        assert incarnation.plane is not None
        advantaged = incarnation.plane.advantaged
        return {
            "raising": state.loader.raise_due,
            "gate": incarnation.engine.gate_passed,
            "task": words.of(incarnation.engine.attempt_phases(), "none"),
            "computed": words.set_of(
                group
                for group, entry in state.buffer.claimed.items()
                if advantaged.issuperset(entry.row_keys)
            ),
            "tp": str(state.phases.train),
            "sv": str(state.phases.save),
            "door": _door(state),
            "cap": self._capture(incarnation),
            "saved": self._saved(incarnation),
        }

    def _saved(self, incarnation: Incarnation) -> int:
        saver = incarnation.engine.saver
        if saver.saved_step is not None:
            return saver.saved_step
        # The first save of a run that starts from nothing is due until it was tried.
        return -1 if saver._failures else -2

    # What the open save has so far.

    def _capture(self, incarnation: Incarnation) -> Function:
        words, opened = self._words, incarnation.engine.saver.open
        if opened is None:
            return _NO_CAPTURE
        capture = opened.capture
        cursor: Value = _UNSET if capture.cursor is None else _set(capture.cursor)
        loader = pool = index = ledger = _UNSET
        if (at := capture.loader) is not None:
            loader = _set(record(pos=words.position(at.epoch, at.position), epoch=at.epoch))
        if capture.spare_pool is not None:
            pool = _set(words.set_of(spare.key for spare in capture.spare_pool))
        finished = [entry.group_id for entry in capture.index or ()]
        if capture.index is not None:
            index = _set(words.set_of(finished))
        if capture.ledger is not None:
            ledger = _set(self._captured_ledger(incarnation, capture, capture.ledger))
        attempt = incarnation.engine.saver.attempt(opened.step)
        saved, files = self._disk.in_progress(opened.step, attempt)
        return record(
            cursor=cursor,
            loader=loader,
            pool=pool,
            index=index,
            ledger=ledger,
            order=words.order_of(finished),
            keys=words.keys(saved.keys),
            rows=words.rows(saved.rows),
            derived=words.derived(saved.rows),
            files=files,
        )

    def _captured_ledger(
        self, incarnation: Incarnation, capture: Capture, read: LedgerRead
    ) -> Function:
        words, trainer = self._words, incarnation.trainer
        assert trainer is not None
        owned: tuple[Owned, ...] = (*(capture.index or ()), *read.records)
        reads = (r.seq for r in incarnation.log.records if r.action in _LAST_READS)
        done = max(reads, default=-1)
        # Until it is copied the trainer stands still, and so it does in the full window.
        copied = incarnation.narrow and incarnation.engine.phases.save is not SavePhase.COPY
        trained = trainer.copied_groups if copied else trainer.trained
        return record(
            led=words.led(read.records),
            idx=words.idx(owned),
            wt=words.wt(owned),
            short=words.short(dict(read.shortfall)),
            dropped=words.set_of(self._dropped(incarnation, done + 1)),
            weights=record(version=read.version, trained=words.trained(trained)),
        )


def _door(state: RunState) -> str:
    """`door`: closing from the request of a cut until the cut begins, shut until it ends."""
    if state.phases.save is SavePhase.REQUESTED:
        return "closing"
    return "shut" if state.barrier.cut_open else "open"
