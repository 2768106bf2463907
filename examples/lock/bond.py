"""The bond of the lock: its alphabet, how it is stepped, and how it is observed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lock import FairLock

from cutlock.bond import (
    Actor,
    Alphabet,
    Bond,
    Constants,
    LogSpec,
    NotEnabledError,
    Patch,
    Setting,
    State,
    Stepper,
    Stops,
    record,
)

__all__ = ["LOCK"]

SPEC = Path(__file__).parent / "spec"

ALPHABET = Alphabet(
    {
        "Enter": ("who",),
        "Wait": ("who",),
        "Resume": ("who",),
        "Release": ("who",),
        "Cancel": ("who",),
        "Notice": ("who",),
    }
)


class LockStepper(Stepper):
    """One lock and its users: actors, which continue when told to."""

    def __init__(self, setting: Setting) -> None:
        names = setting.constants["People"]
        assert isinstance(names, frozenset)
        self.lock = FairLock()
        self.people = {str(name): Actor(str(name)) for name in names}
        self.stops: Stops[str] = Stops()

    def close(self) -> None:
        for person in self.people.values():
            person.close()

    async def _use(self, who: str) -> None:
        async with self.lock:
            await self.stops.hold("Release", who)

    # The actions.

    def enter(self, who: str) -> None:
        self._require(who, "idle").begin(self._use(who))

    def wait(self, who: str) -> None:
        self.enter(who)  # the lock decides whether that means to wait

    def resume(self, who: str) -> None:
        self._require(who, "granted").go_on()

    def release(self, who: str) -> None:
        person = self._require(who, "inside")
        self.stops.release("Release", who)
        person.go_on()

    def cancel(self, who: str) -> None:
        self._require(who, "waiting", "granted").cancel()

    def notice(self, who: str) -> None:
        self._require(who, "leaving").go_on()

    def _require(self, who: str, *places: str) -> Actor:
        if self.at(who) not in places:
            raise NotEnabledError(f"{who} is {self.at(who)}, not {' or '.join(places)}")
        return self.people[who]

    # What can be seen.

    def at(self, who: str) -> str:
        """The state of one user, in the words of the spec."""
        person = self.people[who]
        if person.idle:
            return "idle"
        if person.leaving:
            return "leaving"
        if self.stops.at("Release", who):
            return "inside"
        return "waiting" if who in self.lock.queue else "granted"


def observe(stepper: LockStepper) -> State:
    """The variables of `Lock.tla`."""
    return {
        "owner": stepper.lock.owner or "nobody",
        "queue": stepper.lock.queue,
        "at": record(**{who: stepper.at(who) for who in stepper.people}),
    }


# What is promised, of any state.

PLACES = {"idle", "waiting", "granted", "inside", "leaving"}


def type_ok(state: State, constants: Constants) -> bool:
    people = constants["People"]
    assert isinstance(people, frozenset)
    return state["owner"] in people | {"nobody"} and PLACES.issuperset(state["at"].values())


def exclusion(state: State, constants: Constants) -> bool:
    holders = {who for who, place in state["at"].items() if place in {"granted", "inside"}}
    return holders <= {state["owner"]}


def no_lost_wakeup(state: State, constants: Constants) -> bool:
    at: Mapping[str, str] = state["at"]
    return "waiting" not in at.values() or at.get(state["owner"], "idle") != "idle"


# The mutants of the spec, in the code.


def just_goes(lock: FairLock) -> None:
    """In place of `_give_back`."""


def nobody_queued(lock: FairLock) -> bool:
    """In place of `_is_free`."""
    return lock.owner is None and not lock.queue


def nobody_waits(lock: FairLock) -> bool:
    """In place of `_is_free`."""
    return all(place.cancelled() for _, place in lock._waiters)


_hand_over = FairLock._hand_over


def to_a_stranger(lock: FairLock) -> None:
    """In place of `_hand_over`."""
    _hand_over(lock)
    lock.owner = lock.owner or "stranger"


LOCK = Bond(
    name="lock",
    alphabet=ALPHABET,
    manifest=SPEC / "manifest.toml",
    stepper=LockStepper,
    observe=observe,
    promises={"TypeOK": type_ok, "Exclusion": exclusion, "NoLostWakeup": no_lost_wakeup},
    faults={
        "lost_wakeup": (Patch(FairLock, "_give_back", just_goes),),
        "queues_behind_cancelled": (Patch(FairLock, "_is_free", nobody_queued),),
        "barges_in": (Patch(FairLock, "_is_free", nobody_waits),),
        "left_to_a_stranger": (Patch(FairLock, "_hand_over", to_a_stranger),),
        "last_first": (Patch(FairLock, "_in_turn", lambda lock: list(lock._waiters)[::-1]),),
    },
    logs=LogSpec(
        SPEC / "LockLog.tla",
        constants='CONSTANT People = {"a", "b", "c"}',
        invariants=("Exclusion", "NoLostWakeup"),
        show="Shown",
    ),
)
