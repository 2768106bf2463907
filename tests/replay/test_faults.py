"""Faults: what they leave behind, what else notices them, and the command that replays them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest

import cutlock.cli
from cutlock.alphabet import Action
from cutlock.bond import Ending, replay
from cutlock.bond.patches import Patch
from cutlock.conformance.barrier import BARRIER, Crowd
from cutlock.conformance.faults import (
    FAULTS,
    WITHOUT_A_FAULT,
    Fault,
    fault_of,
    named_fault,
    publication,
)
from cutlock.conformance.faults.switch import Switch
from cutlock.conformance.protocol import CUTLOCK, gives_up
from cutlock.conformance.reference.invariants import INVARIANTS
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import (
    ConfigError,
    ConformanceError,
    DivergenceError,
    NotEnabledError,
    ToolError,
)
from cutlock.tlc.action import ActionCall
from cutlock.tlc.config import read_config
from cutlock.tlc.itf import Counterexample, Step, from_itf, to_itf
from cutlock.tlc.outcome import Verdict
from cutlock.tlc.values import ModelValue, Value
from tests.replay.test_counterexamples import EXPECTED, MUTANTS, ROOT, config_of, example_of

RESTORE = (
    Action.CRASH,
    Action.BEGIN_RUN,
    Action.VERIFY_BUNDLE,
    Action.LOAD_PLANE,
    Action.CONNECT_PLANE,
    Action.RESTORE_INDEX,
    Action.RESTORE_SPARE_POOL,
    Action.RESTORE_LEDGER,
    Action.RESTORE_CURSOR,
)

NOTICED_ON_RESTORE: dict[str, Action | None] = {
    "cursor_early": Action.VERIFY_BUNDLE,
    "loader_early": None,
    "pool_early": None,
    "ledger_early": None,
    "admission_unslotted": Action.VERIFY_BUNDLE,
    "loader_unslotted": None,
    "substitute_unslotted": Action.VERIFY_BUNDLE,
    "spare_drain_unslotted": Action.VERIFY_BUNDLE,
    "epoch_in_another_slot": Action.RESTORE_CURSOR,
    "late_forget_on_disk": None,
    "late_forget_not_subtracted_on_save": Action.VERIFY_BUNDLE,
    "stamp_given_twice": Action.VERIFY_BUNDLE,
    "rename_before_manifest": Action.VERIFY_BUNDLE,
    "stale_loader": Action.VERIFY_BUNDLE,
    "stale_cursor": Action.VERIFY_BUNDLE,
    "stale_index": Action.VERIFY_BUNDLE,
    "stale_ledger": Action.VERIFY_BUNDLE,
    "stale_pool": Action.VERIFY_BUNDLE,
    "stale_rows": Action.VERIFY_BUNDLE,
    "narrow_cursor_early": Action.VERIFY_BUNDLE,
    "narrow_loader_early": None,
    "narrow_pool_early": None,
    "narrow_index_early": None,
    "narrow_ledger_early": None,
    "narrow_admission_in_two_steps": Action.VERIFY_BUNDLE,
    "narrow_loader_not_awaited": Action.RESTORE_CURSOR,
    "narrow_units_first": Action.CONNECT_PLANE,
    "changed_units_first": Action.CONNECT_PLANE,
    "narrow_pinned_for_one_unit": Action.CONNECT_PLANE,
    "narrow_cut_beside_step": None,
    "narrow_copied_late": None,
    "narrow_late_weights": None,
}
"""Where a resume from the broken bundle is refused; None if it is not: these protections are
the only line."""


def of_property(*prefixes: str) -> list[str]:
    # As the manifest names it: to read every counterexample here would take seconds.
    return [m for m in EXPECTED if (MUTANTS[m].property or "").startswith(prefixes)]


PATCHES = [
    patch
    for patches in (
        *(fault.switch().patches for fault in FAULTS.values()),
        *BARRIER.faults.values(),
    )
    for patch in patches
]


def in_place() -> list[object]:
    """What the patched attributes are."""
    return [getattr(patch.owner, patch.name) for patch in PATCHES]


AS_IT_IS = in_place()


@contextlib.contextmanager
def taken_to_its_end(mutant: str, folder: Path) -> Iterator[Stepper]:
    """A stepper that has done the counterexample; its fault is switched in within the block."""
    calls = [step.action for step in example_of(mutant).steps[1:]]
    switch = fault_of(mutant).switch()
    with switch.stepper(Bounds.read(config_of(mutant)), folder / "run") as stepper:
        for place, call in enumerate(calls):
            stepper.do(call, gives_up=gives_up(calls, place))
        yield stepper


# What is left behind.


@pytest.mark.parametrize("mutant", [m for m in EXPECTED if fault_of(m).switch().patches])
def test_a_fault_is_switched_in_within_its_block_alone(mutant: str, ram_path: Path) -> None:
    with taken_to_its_end(mutant, ram_path):
        assert in_place() != AS_IT_IS
    assert in_place() == AS_IT_IS


def test_a_patch_is_undone_when_something_raises() -> None:
    class Owner:
        value = 1

    def fail() -> None:
        with Switch(patches=(Patch(Owner, "value", 2),)).applied():
            assert Owner.value == 2
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert Owner.value == 1


def test_every_patch_is_of_an_attribute_that_its_owner_has_itself() -> None:
    for patch in PATCHES:
        assert patch.name in vars(patch.owner)


# What is said of a fault.


def test_faults_have_names_of_their_own_and_say_what_they_take_away() -> None:
    assert all(fault.name == name for name, fault in FAULTS.items())
    assert len({fault.what for fault in FAULTS.values()}) == len(FAULTS)
    assert all(fault.protection != Switch() for fault in FAULTS.values())


def test_what_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no fault 'entropy'; there are: cursor_read_early"):
        named_fault("entropy")
    with pytest.raises(ConfigError, match="it is no mutant of the manifest"):
        fault_of("entropy")
    for mutant, reason in WITHOUT_A_FAULT.items():
        with pytest.raises(ConfigError, match=reason):
            fault_of(mutant)


@pytest.mark.parametrize(
    ("fault", "place"), [(fault, place) for fault in FAULTS.values() for place in fault.blind]
)
def test_what_is_left_out_of_the_comparison_does_differ(fault: Fault, place: str) -> None:
    blind = tuple(path for path in fault.blind if path != place)
    seeing = dataclasses.replace(CUTLOCK, blind=dict.fromkeys(fault.mutants, blind))
    found = [replay(seeing, example_of(mutant), faulty=True) for mutant in fault.mutants]
    seen = [line for replayed in found for line in replayed.differences]
    assert seen
    assert all(line.startswith(place) for line in seen), found


def of_one_state(mutant: str) -> bool:
    """Whether what it breaks is asked of a state; the rest falls by standing still."""
    return MUTANTS[mutant].expected not in {Verdict.DEADLOCK, Verdict.TEMPORAL}


@pytest.mark.parametrize("mutant", [*filter(of_one_state, EXPECTED)])
def test_a_promise_breaks_in_the_last_state_of_its_counterexample_and_not_before(
    mutant: str,
) -> None:
    example, constants = example_of(mutant), read_config(config_of(mutant)).constants
    assert example.property in INVARIANTS
    promise = CUTLOCK.promises[example.property]
    kept = [promise(step.state, constants) for step in example.steps]
    assert kept == [True] * (len(kept) - 1) + [False]


def test_a_promise_that_cannot_be_asked_of_a_state_is_refused() -> None:
    example = dataclasses.replace(example_of("cursor_early"), property="SlotEnters")
    with pytest.raises(ConformanceError, match="cutlock has no promise 'SlotEnters'"):
        replay(CUTLOCK, example)


def test_a_behaviour_that_never_ends_and_does_was_cut_short() -> None:
    example = dataclasses.replace(example_of("gate_wait_starves_cut"), loop=None)
    with pytest.raises(ToolError, match="do not break CutIsTaken: the last ones are missing"):
        replay(CUTLOCK, example)


# What else notices it.


@pytest.mark.parametrize("mutant", of_property("Inventory"))
def test_a_save_refuses_rows_that_are_not_those_of_its_index(mutant: str, ram_path: Path) -> None:
    narrow = mutant.startswith("narrow_")
    says = f"the plane holds {'0 rows and the index 2' if narrow else '2 rows and the index 0'}"
    with (
        taken_to_its_end(mutant, ram_path) as stepper,
        pytest.raises(DivergenceError, match=says),
    ):
        stepper.do(ActionCall(Action.SAVE_PLANE))


@pytest.mark.parametrize("mutant", of_property("Disk", "SavedRows", "Complete"))
def test_a_resume_from_a_broken_bundle_is_refused_where_that_can_be_seen(
    mutant: str, ram_path: Path
) -> None:
    with taken_to_its_end(mutant, ram_path) as stepper:
        for action in RESTORE:
            stepper.do(ActionCall(action))
            if stepper.refusal is not None:
                break
        refused = action if stepper.refusal is not None else None
        assert refused == NOTICED_ON_RESTORE[mutant], stepper.refusal


def test_an_admission_in_two_steps_raises_the_cursor_in_the_second(ram_path: Path) -> None:
    with taken_to_its_end("narrow_admission_in_two_steps", ram_path) as stepper:
        assert stepper.state()["cursor"] == -1
        stepper.do(ActionCall("Late"))
        assert stepper.state()["cursor"] == 0


@pytest.mark.parametrize("mutant", [m for m in EXPECTED if m.startswith("stale_")])
def test_a_file_of_another_save_is_refused_by_its_digest(
    mutant: str, ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = "manifest.json"
    monkeypatch.setattr(publication, "_reseal", lambda bundle: (bundle / sealed).read_bytes())
    with taken_to_its_end(mutant, ram_path) as stepper:
        for action in (Action.CRASH, Action.BEGIN_RUN, Action.VERIFY_BUNDLE):
            stepper.do(ActionCall(action))
        assert stepper.up == "refused"
        assert "expected" in str(stepper.refusal)


# The barrier's own driver.


def crowd_of(writers: set[Value], savers: set[Value]) -> Crowd:
    return Crowd({"Writers": frozenset(writers), "Savers": frozenset(savers)})


def test_who_was_handed_a_place_goes_on_when_told() -> None:
    first, second, saver = map(ModelValue, ("w1", "w2", "s1"))
    with contextlib.closing(crowd_of({first, second}, {saver})) as crowd:
        crowd.enter_fast(first)
        crowd.wait(saver)
        crowd.wait(second)
        assert crowd.state()["queue"] == (saver, second)
        crowd.leave(first)
        assert crowd.state()["open"] is True
        crowd.cancel_granted(saver)
        assert crowd.state()["open"] is False
        crowd.resume(second)
        crowd.leave(second)
        assert crowd.state()["slots"] == 0


def test_an_action_that_somebody_is_not_ready_for_is_refused() -> None:
    writer = ModelValue("w1")
    with contextlib.closing(crowd_of({writer}, set())) as crowd:
        with pytest.raises(NotEnabledError, match="w1 is idle, not inside"):
            crowd.leave(writer)
        crowd.enter_fast(writer)
        with pytest.raises(NotEnabledError, match="w1 is inside, not waiting"):
            crowd.cancel_waiting(writer)


# The command.


def cutlock_(*arguments: object, code: int = 0) -> click.testing.Result:
    runner = click.testing.CliRunner(env={"COLUMNS": "80"})
    given = ["replay", *map(str, arguments)]
    manifest = ["--manifest", str(ROOT / "model_check" / "manifest.toml")]
    result = runner.invoke(cutlock.cli.main, [*given, *manifest], prog_name="cutlock")
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def trace(mutant: str) -> Path:
    return ROOT / "traces" / "counterexamples" / f"{mutant}.itf.json"


def walk(folder: Path, **changes: object) -> Path:
    """A walk of the model `graph_crash`, as the code itself goes it."""
    bounds = Bounds.read(ROOT / "model_check" / "graphs" / "graph_crash.cfg")
    path = folder / "walk.itf.json"
    with Stepper(bounds, folder / "walked") as stepper:
        steps = [Step(ActionCall("Init"), stepper.state())]
        for action in (Action.BEGIN_RUN, Action.START_PUMPS, Action.SYNC_WEIGHTS):
            stepper.do(ActionCall(action))
            steps.append(Step(ActionCall(action), stepper.state()))
    last = {**steps[-1].state, **changes}
    steps[-1] = Step(steps[-1].action, last)  # type: ignore[arg-type]
    path.write_bytes(to_itf(Counterexample("graph_crash", "", tuple(steps))))
    return path


def test_the_command_shows_the_steps_and_the_verdict() -> None:
    output = cutlock_(trace("cursor_early")).stdout.splitlines()
    assert output[0] == "cursor_early.itf.json: against DiskCursor"
    assert output[4] == "   4  ReserveBatch(groups = {<<1, a>>, <<1, b>>})"
    assert output[6] == "   6  ReadCursor()  <- refused"
    assert output[7].startswith("Refused: the code does not do step 6 of 20, ReadCursor(): ")


def test_with_the_fault_the_command_says_what_breaks() -> None:
    output = cutlock_(trace("cursor_early"), "--fault", "auto", code=1).stdout
    assert (
        "BROKEN, as in the counterexample, in step 20 of 20, PublishBundle(): "
        "DiskCursor does not hold." in output
    )
    assert output == cutlock_(trace("cursor_early"), "--fault", "cursor_read_early", code=1).stdout


def test_with_second_lines_the_command_says_what_notices_the_fault() -> None:
    output = cutlock_(trace("cursor_early"), "--fault", "auto", "--second-lines").stdout
    assert "Noticed by the code in step 14 of 20, ReadLedger(): InvariantError: " in output


def test_a_state_that_is_another_one_is_shown() -> None:
    output = cutlock_(trace("rows_left_behind")).stdout
    assert "Kept: all 17 steps were done, and Inventory has held after every step." in output
    assert "rows: spec {<<<<1, a>>, u1>>}, code {}" in output


def test_the_command_replays_the_barrier() -> None:
    output = cutlock_(trace("barrier_does_not_drain")).stdout
    assert "   2  EnterFast(who = s1)  <- differs" in output
    for fault in ("auto", "barrier_does_not_drain"):
        output = cutlock_(trace("barrier_does_not_drain"), "--fault", fault, code=1).stdout
        assert "BROKEN, as in the counterexample, in step 2 of 2" in output
    result = cutlock_(trace("barrier_does_not_drain"), "--fault", "gate_ignored", code=2)
    assert "is no fault of the barrier" in result.stderr


def test_the_command_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "out" / "replay.json"
    cutlock_(trace("gate_ignored"), trace("cursor_early"), "--json", path)
    read = json.loads(path.read_bytes())
    assert read["ok"] is True
    first = read["traces"][0]
    assert first["trace"] == str(trace("gate_ignored"))
    assert first["replayed"]["ending"] == Ending.REFUSED
    assert first["replayed"]["promise"] == "GateBound"
    assert (first["replayed"]["step"], first["replayed"]["length"]) == (12, 13)


def test_a_walk_is_compared_state_by_state(ram_path: Path) -> None:
    output = cutlock_(walk(ram_path)).stdout
    assert "All 3 steps were done." in output


def test_a_walk_that_the_code_goes_otherwise_is_an_error(ram_path: Path) -> None:
    output = cutlock_(walk(ram_path, cursor=5), code=1).stdout
    assert "From step 3 on the state is another one:" in output
    assert "cursor: spec 5, code -1" in output


def test_a_walk_has_no_fault_of_its_own(ram_path: Path) -> None:
    assert "graph_crash" in cutlock_(walk(ram_path), "--fault", "auto", code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([trace("cursor_early"), "--fault", "entropy"], 2, "no fault 'entropy'"),
        ([ROOT / "pyproject.toml"], 4, "pyproject.toml: not a counterexample"),
        ([ROOT / "traces" / "nowhere.itf.json"], 2, "does not exist"),
    ],
    ids=["unknown fault", "no trace", "no file"],
)
def test_bad_input_is_refused(arguments: list[object], code: int, says: str) -> None:
    assert says in cutlock_(*arguments, code=code).stderr


@pytest.mark.parametrize(
    ("mutant", "says"),
    [
        ("narrow_keys_twice", "a retry has row keys of its own"),
        ("story_cursor_early", "it begins in the middle of a run"),
    ],
)
@pytest.mark.parametrize("fault", [(), ("--fault", "auto")])
def test_a_trace_that_the_code_has_no_place_for_is_told_apart_and_the_rest_goes_on(
    mutant: str, says: str, fault: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "replay.json"
    traces = [trace("cursor_early"), trace(mutant), trace("gate_ignored")]
    result = cutlock_(*traces, *fault, "--json", path, code=1 if fault else 2)
    # Lines of words are broken where they are too long.
    assert f"{mutant} has no place in the code of cutlock: {says}" in " ".join(
        result.stdout.split()
    )
    kept, broken = (0, 2) if fault else (2, 0)
    assert result.stdout.splitlines()[-1] == (
        f"{kept} traces as the code promises, {broken} not; 1 that the code has no place for"
    )
    read = json.loads(path.read_bytes())
    counts = (read["ok"], read["replayed"], read["failed"], read["no_place"])
    assert counts == (False, 2, broken, 1)
    first, without, last = read["traces"]
    assert (without["ok"], without["replayed"]) == (False, None)
    assert says in without["verdict"]
    assert first["replayed"]["model"] == "cursor_early"
    assert last["replayed"]["model"] == "gate_ignored"


def test_a_counterexample_can_be_read_back() -> None:
    for mutant in EXPECTED:
        assert to_itf(from_itf(trace(mutant).read_bytes())) == trace(mutant).read_bytes()


def test_a_walk_with_its_bounds_is_replayed(tmp_path: Path) -> None:
    walk = ROOT / "traces" / "regressions" / "few_places.itf.json"
    assert "All 15 steps were done." in cutlock_(walk).stdout
    assert "no fault belongs to a walk" in cutlock_(walk, "--fault", "auto", code=2).stderr
    told = from_itf(walk.read_bytes())
    last = dataclasses.replace(told.steps[-1], state={**told.steps[-1].state, "cursor": 9})
    forged = tmp_path / "forged.itf.json"
    forged.write_bytes(to_itf(dataclasses.replace(told, steps=(*told.steps[:-1], last))))
    assert "From step 15 on the state is another one" in cutlock_(forged, code=1).stdout
