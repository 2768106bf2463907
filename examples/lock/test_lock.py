from __future__ import annotations

from bond import LOCK
from crowd import run

from cutlock.bond import accept
from cutlock.pytest_plugin import ModelTests, TraceTests


def test_the_model_keeps_its_promises_and_its_mutants_fall(cutlock_model: ModelTests) -> None:
    cutlock_model.check()


def test_the_lock_does_every_transition_of_the_model(cutlock_model: ModelTests) -> None:
    assert cutlock_model.cover("graph").covered == 420


def test_with_its_fault_the_lock_breaks_in_the_same_step(cutlock_trace: TraceTests) -> None:
    cutlock_trace.breaks()


def test_the_lock_as_it_is_keeps_the_promise(cutlock_trace: TraceTests) -> None:
    cutlock_trace.holds()


def test_real_runs_are_behaviours_of_the_model(
    cutlock_model: ModelTests, cutlock_seed: int
) -> None:
    logs = {f"seed {seed}": run(seed) for seed in range(cutlock_seed, cutlock_seed + 20)}
    happened = {call.name for calls in logs.values() for call in calls}
    assert happened == set(LOCK.alphabet.actions)
    cutlock_model.accept(logs)


def test_a_log_that_leaves_out_a_hand_over_is_refused_there(
    cutlock_model: ModelTests, cutlock_seed: int
) -> None:
    calls = run(cutlock_seed)
    place = next(at for at, call in enumerate(calls) if call.name == "Release")
    (found,) = accept(LOCK, {"short": calls[:place] + calls[place + 1 :]}, cutlock_model.toolchain)
    assert not found.ok
    assert found.accepted >= place
