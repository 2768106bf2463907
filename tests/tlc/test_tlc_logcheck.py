from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cutlock.errors import BudgetError, ToolError
from cutlock.tlc.logcheck import LogSpec, LogVerdict, check_logs, event, log_module
from cutlock.tlc.run import Toolchain
from cutlock.tlc.values import Function
from tests.tlc.conftest import SPECS
from tests.tlc.playback import Player

ONE, TWO = event("Fill", {"units": 1}), event("Fill", {"units": 2})
DRAIN, CHANGE = event("Drain", {}), event("Change", {})
SPEC = LogSpec(
    SPECS / "TankLog.tla",
    constants="CONSTANTS\n    Max = 3\n    hose = hose",
    invariants=("Bounded", "NeverFull"),
    show="Show",
)


def level(units: int) -> Function:
    return Function({"level": units})


def said(player: Player, *verdicts: str) -> Toolchain:
    """A checker that prints these verdicts where a good one prints actions of a graph."""
    toolchain = player.plays("graph")
    text = (player.folder / "said").read_text().splitlines(keepends=True)
    kept = [line for line in text if not line.startswith('"')]
    place = next(i for i, line in enumerate(kept) if "STARTMSG 2193" in line)
    kept[place:place] = [f"{verdict}\n" for verdict in verdicts]
    (player.folder / "said").write_text("".join(kept))
    return toolchain


@pytest.mark.tlc
def test_bad_events_are_found_at_their_places_among_many_logs(toolchain: Toolchain) -> None:
    cycle = [ONE, DRAIN, TWO, DRAIN, DRAIN]
    long = cycle * 100
    verdicts = check_logs(
        toolchain,
        SPEC,
        [
            long,
            [*long[:333], DRAIN, DRAIN, DRAIN, *long[333:]],
            [DRAIN],
            [],
            [*long[:498], ONE, DRAIN],
            [CHANGE, CHANGE],
            [CHANGE, DRAIN, DRAIN],
        ],
    )
    assert verdicts == (
        LogVerdict(True, 500, 500),
        LogVerdict(False, 335, 503, shown=level(0)),
        LogVerdict(False, 0, 1, shown=level(0)),
        LogVerdict(True, 0, 0),
        LogVerdict(False, 499, 500, "NeverFull", level(3)),
        LogVerdict(True, 2, 2),
        LogVerdict(True, 3, 3),
    )


@pytest.mark.tlc
def test_a_specification_without_a_first_state_is_no_acceptance(toolchain: Toolchain) -> None:
    with pytest.raises(ToolError, match="no verdict on logs 0 of 1"):
        check_logs(toolchain, replace(SPEC, init="NoInit"), [[ONE]])


def test_no_logs_need_no_checker(player: Player) -> None:
    assert check_logs(player.plays("parse"), SPEC, []) == ()
    assert player.jobs() == []


def test_an_event_is_written_once_however_often_it_happens() -> None:
    text = log_module(SPEC, [[ONE, DRAIN, ONE], [ONE]])
    assert text.count('[name |-> "Fill", units |-> 1]') == 1
    assert "<<0,\n1,\n2,\n1>>" in text


def test_a_beginning_that_logs_share_is_checked_once() -> None:
    text = log_module(SPEC, [[ONE, DRAIN, ONE], [ONE], [ONE, TWO], [ONE, DRAIN]])
    assert "<<0,\n1,\n3,\n2,\n1>>" in text
    assert "LogEnds == {2, 3, 4, 5}" in text
    assert "LogForks == <<{4}>>" in text
    assert "LogForkOf == <<0,\n1,\n-1,\n0,\n-1>>" in text


def test_a_log_is_accepted_if_one_of_its_explanations_is(player: Player) -> None:
    toolchain = said(player, r'"<<\"BAD\", 3>>"', r'"<<\"OK\", 3>>"', r'"<<\"BAD\", 2>>"')
    assert check_logs(toolchain, SPEC, [[ONE, TWO]]) == (LogVerdict(True, 2, 2),)


def test_of_several_refusals_the_furthest_counts(player: Player) -> None:
    toolchain = said(player, r'"<<\"BAD\", 2>>"', r'"<<\"BAD\", 3>>"')
    assert check_logs(toolchain, SPEC, [[ONE, TWO]]) == (LogVerdict(False, 1, 2),)


def test_a_log_without_a_verdict_is_an_error(player: Player) -> None:
    toolchain = said(player, r'"<<\"OK\", 3>>"')  # the node of the first log's end
    with pytest.raises(ToolError, match="no verdict on logs 1 of 2"):
        check_logs(toolchain, SPEC, [[ONE], [TWO]])


def test_a_verdict_that_cannot_be_read_is_an_error(player: Player) -> None:
    toolchain = said(player, r'"<<\"MAYBE\", 1>>"')
    with pytest.raises(ToolError, match="not a verdict"):
        check_logs(toolchain, SPEC, [[ONE]])


def test_a_check_that_did_not_run_is_an_error(player: Player) -> None:
    with pytest.raises(ToolError, match=r"logs: parse_error: .*nothing"):
        check_logs(player.plays("parse"), SPEC, [[ONE]])


def test_a_check_out_of_time_is_inconclusive(player: Player) -> None:
    with pytest.raises(BudgetError, match="1 logs: stopped at the time limit"):
        check_logs(player.runs("sleep 600 & wait"), SPEC, [[ONE]], limit_s=0.2)


def test_an_event_that_no_module_can_hold_is_refused(player: Player) -> None:
    with pytest.raises(ValueError, match="plain ASCII"):
        check_logs(player.plays("success"), SPEC, [[event("Caf\u00e9", {})]])


def test_deadlocks_are_not_looked_for_in_logs(player: Player) -> None:
    check_logs(said(player, r'"<<\"OK\", 2>>"'), SPEC, [[ONE]])
    words = player.jobs()[0].split()
    assert "-deadlock" in words
    assert words[words.index("-workers") + 1] == "1"
    assert any(word == f"-DTLA-Library={SPECS}" for word in words)
    assert Path(words[-1]).name == "LogCheck"
