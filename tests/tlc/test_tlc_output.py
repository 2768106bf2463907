from __future__ import annotations

import pytest

from cutlock.tlc.outcome import Coverage, Step, Verdict
from cutlock.tlc.output import OutputReader, read_output
from cutlock.tlc.values import Function, ModelValue
from tests.tlc.playback import outcome_of, recorded

HOSE = frozenset({ModelValue("hose")})


@pytest.mark.parametrize(
    ("name", "verdict", "broken"),
    [
        ("success", Verdict.SUCCESS, None),
        ("live", Verdict.SUCCESS, None),
        ("invariant", Verdict.INVARIANT, "NeverFull"),
        ("initial", Verdict.INVARIANT, "NotEmpty"),
        ("one_variable", Verdict.INVARIANT, "NeverBoth"),
        ("deadlock", Verdict.DEADLOCK, None),
        ("action_property", Verdict.ACTION_PROPERTY, "NeverDrains"),
        ("lasso", Verdict.TEMPORAL, None),
        ("stuttering", Verdict.TEMPORAL, None),
        ("assumption", Verdict.ASSUMPTION, None),
        ("evaluation", Verdict.EVALUATION_ERROR, None),
        ("assertion", Verdict.EVALUATION_ERROR, None),
        ("stack_overflow", Verdict.EVALUATION_ERROR, None),
        ("parse", Verdict.PARSE_ERROR, None),
        ("missing_module", Verdict.PARSE_ERROR, None),
        ("unknown_name", Verdict.CONFIG_ERROR, None),
        ("missing_constant", Verdict.CONFIG_ERROR, None),
        ("missing_config", Verdict.CONFIG_ERROR, None),
        ("no_heap", Verdict.TOOL_ERROR, None),
    ],
)
def test_every_kind_of_output_is_told_apart(
    name: str, verdict: Verdict, broken: str | None
) -> None:
    outcome = outcome_of(name)
    assert (outcome.verdict, outcome.property) == (verdict, broken)


def test_a_success_has_its_counts() -> None:
    outcome = outcome_of("success")
    assert (outcome.generated, outcome.distinct, outcome.depth, outcome.queue) == (19, 9, 4, 0)
    assert outcome.trace == ()
    assert outcome.messages == ()
    assert "2.15" in outcome.version


def test_coverage_is_counted_by_action() -> None:
    assert outcome_of("coverage").coverage == {
        "Fill": Coverage(5, 11),
        "Drain": Coverage(3, 7),
        "Overflow": Coverage(0, 0),
    }


def test_the_last_coverage_report_counts() -> None:
    exit_code, lines = recorded("coverage")
    start = next(i for i, line in enumerate(lines) if "STARTMSG 2201" in line)
    end = next(i for i, line in enumerate(lines) if "ENDMSG 2202" in line)
    twice = lines[: end + 1] + lines[start:]
    assert read_output(twice, exit_code).coverage == outcome_of("coverage").coverage


def test_a_trace_has_actions_and_states() -> None:
    assert outcome_of("invariant").trace == (
        Step("Init", {"level": 0, "used": frozenset(), "act": Function({"name": "Init"})}),
        Step("Fill", {"level": 1, "used": HOSE, "act": Function({"name": "Fill", "units": 1})}),
        Step("Fill", {"level": 3, "used": HOSE, "act": Function({"name": "Fill", "units": 2})}),
    )


def test_a_violation_of_the_initial_state_is_a_trace_of_one_state() -> None:
    (step,) = outcome_of("initial").trace
    assert step.action == "Init"
    assert step.state["level"] == 0


def test_the_state_of_a_single_variable_is_read() -> None:
    assert outcome_of("one_variable").trace[-1] == Step(
        "Flip", {"on": Function({"left": True, "right": True})}
    )


def test_a_lasso_knows_where_it_goes_back_to() -> None:
    outcome = outcome_of("lasso")
    assert outcome.liveness
    assert [step.action for step in outcome.trace] == ["Init", "Fill", "Drain", "Drain"]
    assert (outcome.loop, outcome.stuttering) == (1, False)


def test_stuttering_stays_in_the_last_state() -> None:
    outcome = outcome_of("stuttering")
    assert (len(outcome.trace), outcome.loop, outcome.stuttering) == (1, 0, True)


def test_safety_alone_is_not_liveness() -> None:
    assert not outcome_of("success").liveness
    assert outcome_of("live").liveness


def test_a_warning_is_kept_and_the_advice_on_garbage_collectors_is_not() -> None:
    assert outcome_of("success").warnings == ()
    (warning,) = outcome_of("warning").warnings
    assert "symmetry during liveness" in warning


def test_the_parser_of_tlc_is_quoted_without_its_chatter() -> None:
    messages = outcome_of("parse").messages
    assert "Unknown operator: `nothing'." in messages
    assert not any(message.startswith("Parsing file") for message in messages)


def test_a_message_within_a_message_is_part_of_it() -> None:
    messages = outcome_of("assertion").messages
    assert any("unexpected exception" in text and '"too far"' in text for text in messages)


def test_an_evaluation_error_comes_with_the_way_to_it() -> None:
    assert [step.action for step in outcome_of("evaluation").trace] == ["Init", "Fill"]


def test_what_the_specification_prints_is_kept_line_by_line() -> None:
    printed = outcome_of("graph").printed
    assert len(printed) == 10
    assert printed[0] == r'"[name |-> \"Fill\", units |-> 1]"'


def test_random_walks_succeed_without_a_complete_search() -> None:
    outcome = outcome_of("walks", simulated=True)
    assert outcome.verdict is Verdict.SUCCESS
    assert outcome.generated == 36
    assert outcome.distinct is None


def test_random_walks_find_violations() -> None:
    outcome = outcome_of("walk_invariant", simulated=True)
    assert (outcome.verdict, outcome.property) == (Verdict.INVARIANT, "NeverFull")
    assert outcome.trace


def test_a_search_that_only_walked_is_no_success() -> None:
    assert outcome_of("walks").verdict is Verdict.TOOL_ERROR


@pytest.mark.parametrize("name", ["success", "coverage", "invariant", "lasso", "parse"])
def test_an_output_cut_at_any_line_is_never_believed(name: str) -> None:
    exit_code, lines = recorded(name)
    last = max(i for i, line in enumerate(lines) if "ENDMSG 2186" in line)
    for end in range(last):
        assert read_output(lines[:end], exit_code).verdict is Verdict.TOOL_ERROR


@pytest.mark.parametrize("code", [2193, 2199])
def test_success_needs_both_the_word_and_the_count_of_tlc(code: int) -> None:
    _, lines = recorded("success")
    start = next(i for i, line in enumerate(lines) if f"STARTMSG {code}" in line)
    end = next(i for i, line in enumerate(lines) if f"ENDMSG {code}" in line)
    assert read_output(lines[:start] + lines[end + 1 :], 0).verdict is Verdict.TOOL_ERROR


def test_success_needs_an_empty_queue() -> None:
    _, lines = recorded("success")
    more = [line.replace("found, 0 states left", "found, 1 states left") for line in lines]
    outcome = read_output(more, 0)
    assert outcome.verdict is Verdict.TOOL_ERROR
    assert "not complete" in outcome.messages[-1]


def test_exit_code_0_in_spite_of_a_violation_is_no_success() -> None:
    _, lines = recorded("invariant")
    assert read_output(lines, 0).verdict is Verdict.TOOL_ERROR


@pytest.mark.parametrize("exit_code", [1, 11, 13, 150, 255, -9])
def test_exit_code_and_message_have_to_agree(exit_code: int) -> None:
    _, lines = recorded("invariant")
    assert read_output(lines, exit_code).verdict is Verdict.TOOL_ERROR


def test_a_run_that_was_stopped_has_no_verdict_but_the_budget() -> None:
    _, lines = recorded("success")
    assert read_output(lines, None).verdict is Verdict.BUDGET


def test_a_state_that_cannot_be_read_is_an_error_of_the_tool() -> None:
    exit_code, lines = recorded("invariant")
    torn = [line.replace("{hose}", "{hose") for line in lines]
    outcome = read_output(torn, exit_code)
    assert outcome.verdict is Verdict.TOOL_ERROR
    assert "the trace cannot be read" in outcome.messages[-1]


def test_a_state_that_is_missing_is_an_error_of_the_tool() -> None:
    exit_code, lines = recorded("invariant")
    starts = [i for i, line in enumerate(lines) if "STARTMSG 2217" in line]
    outcome = read_output(lines[: starts[1]] + lines[starts[2] :], exit_code)
    assert outcome.verdict is Verdict.TOOL_ERROR


def test_a_loop_to_nowhere_is_an_error_of_the_tool() -> None:
    exit_code, lines = recorded("lasso")
    torn = [line.replace("2: Back to state", "9: Back to state") for line in lines]
    assert read_output(torn, exit_code).verdict is Verdict.TOOL_ERROR


def test_a_value_of_several_lines_is_one_value() -> None:
    exit_code, lines = recorded("invariant")
    wrapped = [line.replace("used = {hose}", "used = { hose,\n  nozzle }") for line in lines]
    outcome = read_output("".join(wrapped).splitlines(), exit_code)
    assert outcome.trace[1].state["used"] == HOSE | {ModelValue("nozzle")}


def test_progress_is_known_while_the_output_comes() -> None:
    _, lines = recorded("success")
    reader = OutputReader()
    assert reader.progress is None
    for line in lines:
        reader.feed(line)
    assert reader.progress is not None
    assert (reader.progress.depth, reader.progress.distinct) == (4, 9)


def test_numbers_with_separators_are_read() -> None:
    reader = OutputReader()
    for line in (
        "@!@!@STARTMSG 2200:0 @!@!@",
        "Progress(1,024) at 2026-11-29 19:08:19: 1,234,567 states generated (672 s/min), "
        "345,678 distinct states found (298 ds/min), 9,012 states left on queue.",
        "@!@!@ENDMSG 2200 @!@!@",
    ):
        reader.feed(line)
    assert reader.progress is not None
    assert (reader.progress.depth, reader.progress.generated) == (1024, 1_234_567)
    assert (reader.progress.distinct, reader.progress.queue) == (345_678, 9_012)
