from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.audit import audit_run
from cutlock.errors import ConformanceError, DivergenceError, NotEnabledError, NoWorkerError
from cutlock.tlc.action import ActionCall
from tests.replay.script import SAVE, Script, beside_a_save, everything, of

IN_BOTH_MODES = pytest.mark.parametrize("narrow", [False, True], ids=["full", "narrow"])


@IN_BOTH_MODES
def test_a_run_goes_to_its_end_and_the_audit_finds_nothing(ram_path: Path, narrow: bool) -> None:
    size = {"batches": 4, "per_epoch": 2, "members": (1, 2), "units": ("u1", "u2")}
    with Script(ram_path / "run", **size, narrow=narrow) as script:
        script.finish()
        assert script.everything_trained_once
        assert audit_run(script.stepper.directory).problems == ()


def test_the_same_schedule_gives_the_same_states(ram_path: Path) -> None:
    def run(name: str) -> Script:
        with Script(ram_path / name, batches=3, per_epoch=3, spare_mark=1) as script:
            script.start().to(Action.LAUNCH_GROUP)
            script.do(Action.FAIL_GROUP, script.done[-1].arguments["group"], gives_up=True)
            script.to(Action.SYNC_WEIGHTS).save().do(Action.CRASH)
            return script.finish()

    first, second = run("first"), run("second")
    assert first.done == second.done
    assert first.states == second.states


def test_a_crash_takes_everything_but_the_disk(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.COMMIT_GROUP)
        disk = script.state["disk"]
        state = script.do(Action.CRASH)
        assert state["disk"] == disk
        assert state == {**script.states[0], "disk": disk, "crashes": 1}


@IN_BOTH_MODES
def test_a_crashed_run_resumes_what_the_bundle_holds(ram_path: Path, narrow: bool) -> None:
    with Script(ram_path / "run", narrow=narrow) as script:
        script.start().to(Action.SYNC_WEIGHTS).to(Action.COMMIT_GROUP).save()
        kept = {**script.state, "crashes": 1}
        script.do(Action.CRASH)
        script.start()
        names = ("pos", "epoch", "led", "index", "order", "rows", "cursor", "version", "trained")
        assert {n: script.state[n] for n in names} == {n: kept[n] for n in names}
        script.finish()
        assert script.everything_trained_once
        assert audit_run(script.stepper.directory).problems == ()


@pytest.mark.slow
@IN_BOTH_MODES
def test_a_crash_may_come_at_any_action(ram_path: Path, narrow: bool) -> None:
    with Script(ram_path / "whole", narrow=narrow) as script:
        calls = script.finish().done
    for number in range(1, len(calls)):
        with Script(ram_path / str(number), narrow=narrow) as script:
            for call in calls[:number]:
                script.do(Action(call.name), **call.arguments)
            script.do(Action.CRASH)
            script.finish()
            assert script.everything_trained_once


def test_every_action_can_be_done(ram_path: Path) -> None:
    done = {name for script in everything(ram_path) for name in script.names}
    assert done == set(Action)


def test_the_pumps_go_on_while_a_narrow_save_writes(ram_path: Path) -> None:
    with Script(ram_path / "run", narrow=True) as script:
        before = beside_a_save(script)
        assert script.state["rows"] == before["rows"]
        assert script.state["deferred"] == before["index"] != frozenset()
        script.to(Action.PUBLISH_BUNDLE)
        assert Action.FLUSH_DEFERRED in script.names
        assert script.state["deferred"] == frozenset()
        disk = script.state["disk"]
        assert (disk["index"], disk["rows"]) == (before["index"], before["rows"])
        assert disk["trained"] == before["trained"] != script.state["trained"]
        script.do(Action.CRASH)
        script.finish()
        assert script.everything_trained_once


@pytest.mark.parametrize(
    "call",
    [
        of(Action.START_PUMPS),
        of(Action.BEGIN_RUN),
        of(Action.VERIFY_BUNDLE),
        of(Action.END_RUN),
        of(Action.FILL_SPARE_POOL),
        of(Action.OPEN_GATE),
        of(Action.LAUNCH_GROUP, (2, 1)),
        of(Action.BEGIN_COMMIT, (1, 1)),
        of(Action.FAIL_GROUP, (1, 1)),
        of(Action.COMMIT_GROUP, (1, 1)),
        of(Action.ROLLBACK_GROUP, (1, 1)),
        of(Action.DROP_GROUP, (1, 1)),
        of(Action.ABORT_STALE, (1, 1)),
        of(Action.SELECT_GROUPS),
        of(Action.EVICT_GROUPS),
        of(Action.OPEN_CUT),
        of(Action.FAIL_SAVE),
        of(Action.SYNC_WEIGHTS),
    ],
    ids=str,
)
def test_an_action_that_cannot_happen_is_refused_and_changes_nothing(
    ram_path: Path, call: ActionCall
) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.COMMIT_ADMISSION, without=(Action.REQUEST_CUT,))
        assert script.stepper.incarnation is not None
        before = script.stepper.incarnation.log.count
        with pytest.raises(NotEnabledError):
            script.stepper.do(call)
        assert script.stepper.state() == script.state
        assert script.stepper.incarnation.log.count == before
        script.finish()


def test_a_shut_gate_is_not_passed(ram_path: Path) -> None:
    with Script(ram_path / "run", window=0) as script:
        script.start().to(Action.COMMIT_ADMISSION).to(Action.RESERVE_BATCH).to(Action.RAISE_EPOCH)
        with pytest.raises(NotEnabledError, match="the gate is shut: cursor 0, version 0"):
            script.stepper.do(of(Action.OPEN_GATE))
        script.finish()


def test_nobody_enters_a_slot_behind_a_requested_cut(ram_path: Path) -> None:
    with Script(ram_path / "run", batches=3, per_epoch=3) as script:
        script.start().to(Action.LAUNCH_GROUP, without=(Action.REQUEST_CUT,))
        script.do(Action.BEGIN_COMMIT, (1, 1))
        script.do(Action.REQUEST_CUT)
        for call in (of(Action.RESERVE_BATCH), of(Action.OPEN_CUT)):
            with pytest.raises(NotEnabledError):
                script.stepper.do(call)
        script.do(Action.PUT_ROWS, (1, 1))
        script.do(Action.COMMIT_GROUP, (1, 1))
        assert script.do(Action.OPEN_CUT)["door"] == "shut"
        script.finish()


def test_groups_that_the_code_would_not_take_are_refused(ram_path: Path) -> None:
    with Script(ram_path / "run", batches=2, per_epoch=2, sampler="ready_first") as script:
        script.start().to(Action.COMMIT_GROUP)
        with pytest.raises(NotEnabledError, match="the code would select"):
            script.stepper.do(of(Action.SELECT_GROUPS, groups=frozenset({(2, 1)})))
        script.do(Action.SELECT_GROUPS, groups=frozenset({(1, 1)}))


def test_the_record_has_to_say_what_the_call_says(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start()
        with pytest.raises(DivergenceError, match="groups is recorded as"):
            script.stepper.do(of(Action.RESERVE_BATCH, groups=frozenset({(2, 1)})))


def test_arguments_and_actions_that_do_not_exist_are_named(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start()
        with pytest.raises(ConformanceError, match="no action 'Sleep'"):
            script.stepper.do(ActionCall("Sleep"))
        with pytest.raises(ConformanceError, match="is no prompt"):
            script.stepper.do(of(Action.LAUNCH_GROUP, (9, 9)))
        with pytest.raises(ConformanceError, match="'group' is missing"):
            script.stepper.do(of(Action.LAUNCH_GROUP))
        with pytest.raises(ConformanceError, match="no argument 'colour'"):
            script.stepper.do(of(Action.RESERVE_BATCH, colour="red"))


def test_a_lost_group_is_tried_again_or_given_up_as_the_schedule_says(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.LAUNCH_GROUP)
        script.do(Action.FAIL_GROUP, (1, 1))
        with pytest.raises(NotEnabledError):
            script.stepper.do(of(Action.DROP_GROUP, (1, 1)))
        script.do(Action.LAUNCH_GROUP, (1, 1))
        script.do(Action.FAIL_GROUP, (1, 1), gives_up=True)
        with pytest.raises(NotEnabledError):
            script.stepper.do(of(Action.LAUNCH_GROUP, (1, 1)))
        assert script.do(Action.DROP_GROUP, (1, 1))["dropped"] == frozenset({(1, 1)})
        script.finish()


@pytest.mark.parametrize("stop", SAVE[1:-1])
def test_a_save_may_fail_wherever_it_stands(ram_path: Path, stop: Action) -> None:
    with Script(ram_path / "run") as script:
        before = SAVE[SAVE.index(stop) - 1]
        script.start().to(before)
        state = script.do(Action.FAIL_SAVE)
        assert (state["sv"], state["tp"], state["door"], state["saved"]) == (
            "none",
            "idle",
            "open",
            -1,
        )
        assert state["cap"] == script.states[0]["cap"]
        assert state["disk"] == script.states[0]["disk"]
        script.finish()


def test_a_damaged_bundle_refuses_the_start(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.PUBLISH_BUNDLE).do(Action.CRASH)
        (ram_path / "run" / "step_0" / "policy" / "optimizer.pt").write_text("other")
        script.do(Action.BEGIN_RUN)
        assert script.do(Action.VERIFY_BUNDLE)["up"] == "refused"
        assert "optimizer.pt" in str(script.stepper.refusal)


def test_a_run_that_breaks_is_a_divergence(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.LAUNCH_GROUP)
        assert script.stepper.incarnation is not None
        script.stepper.incarnation.generator._future(script.bounds.group((1, 1))).set_exception(
            NoWorkerError("no generator lives")
        )
        with pytest.raises(DivergenceError, match="the run broke: no generator lives"):
            script.stepper.do(of(Action.LAUNCH_GROUP, (2, 1)))


def test_no_pump_runs_before_the_first_weight_sync(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        assert script.to(Action.START_PUMPS).state["up"] == "started"
        for action in (Action.REQUEST_CUT, Action.RESERVE_BATCH):
            with pytest.raises(NotEnabledError):
                script.stepper.do(of(action))
        assert script.do(Action.SYNC_WEIGHTS)["up"] == "running"
        script.finish()
