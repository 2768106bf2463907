"""The general layer: alphabets, steppers, observations, replays, covers and logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutlock.bond import (
    ActionCall,
    Actor,
    Alphabet,
    Bond,
    Ending,
    Graph,
    Journal,
    ModelValue,
    NotEnabledError,
    NoticedError,
    Patch,
    Setting,
    State,
    Stepper,
    Stops,
    accept,
    cover,
    expect,
    explored,
    read_journal,
    read_trace,
    record,
    replay,
    step_table,
)
from cutlock.bond.expect import expect_accepted, expect_checked, expect_covered
from cutlock.bond.replay import follow
from cutlock.errors import ConfigError, ConformanceError, DivergenceError, ToolError
from cutlock.tlc.graph import Edge, Node
from cutlock.tlc.itf import Counterexample, Step, to_itf
from cutlock.tlc.run import Toolchain
from tests.support.lock_example import LOCK_FOLDER, Example

LOST_WAKEUP = read_trace(LOCK_FOLDER / "traces" / "lost_wakeup.itf.json")
LAST_FIRST = read_trace(LOCK_FOLDER / "traces" / "last_first.itf.json")


# A protocol that is as small as can be: a counter, which has to stay below three.


class Counter(Stepper):
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.value = 0
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def add(self, by: int) -> None:
        if self.value + by > 2:
            raise NotEnabledError(f"{self.value} and {by} is too much")
        self.value += by

    def reset(self) -> None:
        self.value = 0


MANIFEST = """\
modules = ["."]
configs = "."
[[models]]
name = "counter"
module = "Counter"
config = "counter.cfg"
mode = "graph"
time = "quick"
distinct = 3
why = "all of it"
"""


@pytest.fixture
def counter(tmp_path: Path) -> Bond[Counter]:
    (tmp_path / "manifest.toml").write_text(MANIFEST)
    (tmp_path / "Counter.tla").write_text("never read")
    (tmp_path / "counter.cfg").write_text("CONSTANT Most = 2\nACTION_CONSTRAINT Prints\n")
    return Bond(
        name="counter",
        alphabet=Alphabet({"Add": ("by",), "Reset": ()}),
        manifest=tmp_path / "manifest.toml",
        stepper=Counter,
        observe=lambda stepper: {"value": stepper.value},
        promises={"Small": lambda state, constants: state["value"] <= constants["Most"]},
        faults={"counter": (Patch(Counter, "add", adds_anything),)},
        calls=lambda constants: [add(1), ActionCall("Reset")],
    )


def adds_anything(counter: Counter, by: int) -> None:
    counter.value += by


def add(by: Any) -> ActionCall:
    return ActionCall("Add", {"by": by})


def trace(*steps: tuple[ActionCall, int], broken: str = "Small", **more: Any) -> Counterexample:
    begin = Step(ActionCall("Init"), {"value": 0})
    rest = [Step(call, {"value": value}) for call, value in steps]
    return Counterexample("counter", broken, (begin, *rest), **more)


TOO_MUCH = trace((add(1), 1), (add(2), 3))


def graph(*edges: tuple[int, ActionCall, int]) -> Graph:
    return Graph(
        tuple(Node(f"/\\ value = {value}") for value in range(3)),
        (0,),
        tuple(Edge(*edge) for edge in edges),
    )


WHOLE = graph(
    (0, add(1), 1),
    (1, add(1), 2),
    (0, add(2), 2),
    (1, ActionCall("Reset"), 0),
    (2, ActionCall("Reset"), 0),
)


# Alphabet and stepper.


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (ActionCall("Subtract"), "knows no action 'Subtract'; it has Add, Reset: add it there"),
        (ActionCall("Add", {"of": 1}), r"Add\(of = 1\) has the arguments \(of\), the alphabet"),
        (ActionCall("Add"), r"has the arguments \(\), the alphabet gives Add \(by\); use the same"),
        (
            ActionCall("Reset", {"by": 1}),
            r"the arguments \(by\), the alphabet gives Reset \(\)",
        ),
    ],
)
def test_what_is_not_of_the_alphabet_is_named(
    counter: Bond[Counter], call: ActionCall, problem: str
) -> None:
    with pytest.raises(ConformanceError, match=problem):
        counter.alphabet.check(call)
    with pytest.raises(ConformanceError, match=problem):
        replay(counter, trace((call, 3)))
    with pytest.raises(ConformanceError, match=problem):
        cover(counter, "counter", graph((0, call, 1)))


def test_what_is_not_of_the_alphabet_is_named_before_anything_is_done(
    counter: Bond[Counter],
) -> None:
    unknown = ActionCall("Subtract")
    with pytest.raises(ConformanceError, match="knows no action 'Subtract'"):
        replay(counter, trace((add(9), 0), (unknown, 3)))
    with pytest.raises(ConformanceError, match="knows no action 'Subtract'"):
        cover(counter, "counter", graph((0, add(9), 1), (1, unknown, 2)))
    stuck = trace((add(2), 2), broken="deadlock")
    with pytest.raises(ConformanceError, match="knows no action 'Subtract'"):
        replay(replace(counter, calls=lambda constants: [unknown]), stuck)


def test_an_optional_argument_may_be_left_out_and_no_other_may_be_added() -> None:
    alphabet = Alphabet({"Put": ("key", "attempt")}, optional=frozenset({"attempt"}))
    alphabet.call("Put", key=1)
    alphabet.call("Put", key=1, attempt=2)
    with pytest.raises(ConformanceError, match="time"):
        alphabet.call("Put", key=1, time=2)


class _Lacks(Counter):
    reset = None  # type: ignore[assignment]


class _Renames(Counter):
    def add(self, amount: int) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (_Lacks, "_Lacks has no method reset for the action Reset; write `def reset\\(self\\)`"),
        (_Renames, r"_Renames.add takes \(amount\), the alphabet gives Add \(by\); use the same"),
    ],
)
def test_a_stepper_has_a_method_for_each_action_with_the_same_arguments(
    counter: Bond[Counter], kind: type[Counter], problem: str
) -> None:
    with pytest.raises(ConformanceError, match=problem):
        replay(replace(counter, stepper=kind), TOO_MUCH)


def test_a_stepper_that_does_actions_its_own_way_needs_no_methods(counter: Bond[Counter]) -> None:
    class Own(_Lacks):
        def do(self, call: ActionCall, /) -> None:
            self.value += int(call.name == "Add")

    assert replay(replace(counter, stepper=Own), TOO_MUCH).diverged == 2


def test_a_stepper_is_told_what_it_is_made_for_and_closed_whatever_happens(
    counter: Bond[Counter],
) -> None:
    made: list[Counter] = []

    def make(setting: Setting) -> Counter:
        made.append(Counter(setting))
        return made[-1]

    replay(replace(counter, stepper=make), TOO_MUCH, seed=5)
    with pytest.raises(ConformanceError):
        replay(replace(counter, stepper=make, observe=lambda stepper: {}), TOO_MUCH, faulty=True)
    assert [stepper.closed for stepper in made] == [True, True]
    calls = (add(1), add(2))
    constants = {"Most": 2}
    told = Setting(model="counter", constants=constants, seed=5, calls=calls, trace=TOO_MUCH)
    assert made[0].setting == told
    assert made[1].setting.faulty


def test_a_plane_that_the_stepper_cannot_be_made_on_is_refused(counter: Bond[Counter]) -> None:
    with pytest.raises(ConfigError, match="counter has no plane 'disk'; choose from memory"):
        replay(counter, TOO_MUCH, plane="disk")


# Observation.


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        ({}, "lacks value of the variables of the trace of counter, and has nothing that is none"),
        ({"value": 0, "more": 1}, "lacks nothing .* and has more that is none of them"),
        ({"other": 0}, "lacks value .* and has other that .* against its own bond"),
    ],
)
def test_an_observation_of_other_variables_is_refused(
    counter: Bond[Counter], seen: State, problem: str
) -> None:
    bond = replace(counter, observe=lambda stepper: seen)
    with pytest.raises(ConformanceError, match=problem):
        replay(bond, TOO_MUCH)
    with pytest.raises(ConformanceError, match=problem.replace("trace", "graph")):
        cover(bond, "counter", WHOLE)


def test_an_observation_that_is_no_value_of_tla_is_refused(counter: Bond[Counter]) -> None:
    with pytest.raises(ConformanceError, match=r"the observation of value is no value .*\[0\]"):
        replay(replace(counter, observe=lambda stepper: {"value": [0]}), TOO_MUCH)


# Replay.


def test_with_the_fault_it_breaks_as_told_and_without_it_is_refused(
    counter: Bond[Counter],
) -> None:
    found = replay(counter, TOO_MUCH, faulty=True)
    assert found.breaks_as_told
    assert (found.ending, found.step, found.fault) == (Ending.BROKEN, 2, "counter")
    found = replay(counter, TOO_MUCH)
    assert (found.ending, found.step, found.fault) == (Ending.REFUSED, 2, None)
    assert found.why == "1 and 2 is too much"


def test_the_fault_is_gone_after_the_replay(counter: Bond[Counter]) -> None:
    before = Counter.add
    replay(counter, TOO_MUCH, faulty=True)
    assert Counter.add is before


def test_a_state_that_is_another_one_does_not_end_the_replay(counter: Bond[Counter]) -> None:
    found = replay(counter, trace((add(1), 2), (add(1), 3)))
    assert (found.ending, found.step, found.diverged) == (Ending.KEPT, 2, 1)
    assert found.differences == ("value: spec 2, code 1",)


def test_a_check_of_the_code_that_raises_is_an_ending(counter: Bond[Counter]) -> None:
    class Checks(Counter):
        def add(self, by: int) -> None:
            self.value += by
            if self.value > 2:
                raise NoticedError(f"{self.value} is too much")

    found = replay(replace(counter, stepper=Checks), TOO_MUCH)
    assert (found.ending, found.step, found.why) == (Ending.NOTICED, 2, "3 is too much")
    assert found.diverged is None


def test_code_that_breaks_is_an_error_that_names_the_step(counter: Bond[Counter]) -> None:
    class Breaks(Counter):
        def add(self, by: int) -> None:
            raise DivergenceError("the task broke") from ZeroDivisionError()

    with pytest.raises(DivergenceError, match=r"counter, step 1, Add\(by = 1\): the task") as found:
        replay(replace(counter, stepper=Breaks), TOO_MUCH)
    assert isinstance(found.value.__cause__, ZeroDivisionError)


def test_a_trace_of_another_specification_is_refused(counter: Bond[Counter]) -> None:
    with pytest.raises(ConfigError, match="'lost_wakeup' is no model of counter, whose manifest"):
        replay(counter, LOST_WAKEUP)


def test_a_fault_that_nobody_has_given_is_asked_for(counter: Bond[Counter]) -> None:
    with pytest.raises(ConfigError, match=r"no fault of counter answers to 'counter'.*: none"):
        replay(replace(counter, faults={}), TOO_MUCH, faulty=True)


def test_a_promise_that_nobody_has_given_is_asked_for(counter: Bond[Counter]) -> None:
    with pytest.raises(ConformanceError, match=r"counter has no promise 'Even', .* it has Small"):
        replay(counter, trace((add(1), 1), broken="Even"))


def test_a_trace_that_was_cut_short_shows_nothing(counter: Bond[Counter], example: Example) -> None:
    with pytest.raises(ToolError, match="do not break Small: the last ones are missing"):
        replay(counter, trace((add(1), 1)))
    with pytest.raises(ToolError, match="do not break Served: the last ones are missing"):
        replay(example.bound, replace(LAST_FIRST, loop=None))


def test_a_promise_that_is_not_that_of_the_spec_is_noticed(counter: Bond[Counter]) -> None:
    with pytest.raises(ToolError, match=r"Small in Python falls in step 1 of counter, .* one, 2;"):
        replay(counter, trace((add(3), 3), (add(1), 4)))


@pytest.mark.parametrize(
    ("calls", "ending"), [((), Ending.BROKEN), ((add(2), ActionCall("Reset")), Ending.KEPT)]
)
def test_a_standstill_is_one_if_nothing_further_can_be_done(
    counter: Bond[Counter], calls: tuple[ActionCall, ...], ending: Ending
) -> None:
    bond = replace(counter, calls=lambda constants: calls)
    for stuck in (
        trace((add(2), 2), broken="deadlock"),
        trace((add(2), 2), broken="Moves", loop=1),
    ):
        found = replay(bond, stuck)
        assert (found.ending, found.step) == (ending, 1)
    if calls:
        assert found.why == "Reset() can still be done"


def test_a_standstill_that_nobody_could_end_is_asked_about(counter: Bond[Counter]) -> None:
    with pytest.raises(ConformanceError, match="does not say what would get further; give the"):
        replay(replace(counter, calls=None), trace((add(2), 2), broken="deadlock"))


def test_a_loop_is_gone_round_once_more(counter: Bond[Counter]) -> None:
    done: list[int] = []
    reset = ActionCall("Reset")
    around = trace((add(1), 1), (add(1), 2), (reset, 0), (add(1), 1), broken="Ends", loop=1)
    found = replay(counter, around, on_step=lambda number, step, what: done.append(number))
    # From the state that the loop goes back to, which is that of the last step here.
    assert found.ending is not Ending.BROKEN
    around = trace((add(1), 1), (add(1), 2), (reset, 0), broken="Ends", loop=1)
    done.clear()
    found = replay(counter, around, on_step=lambda number, step, what: done.append(number))
    assert found.breaks_as_told
    assert done == [1, 2, 3, 1, 2, 3]


def test_a_loop_may_be_closed_by_another_step_than_the_one_that_led_into_it(
    counter: Bond[Counter],
) -> None:
    around = trace((add(2), 2), (ActionCall("Reset"), 0), broken="Ends", loop=0)
    around = replace(around, steps=around.steps[:2])
    assert replay(counter, replace(around, loop=0, property="Ends")).ending is Ending.REFUSED
    around = trace((add(2), 2), (ActionCall("Reset"), 0), (add(1), 1), broken="Ends", loop=0)
    assert replay(counter, around).breaks_as_told


def test_the_lock_goes_round_as_told_and_without_its_fault_another_way(example: Example) -> None:
    assert replay(example.bound, LAST_FIRST, faulty=True).breaks_as_told
    found = replay(example.bound, LAST_FIRST)
    assert (found.ending, found.diverged) == (Ending.KEPT, 10)


def test_a_place_that_cannot_be_compared_is_left_out() -> None:
    class Still:
        def do(self, call: ActionCall, /) -> None: ...

        def state(self) -> State:
            return {"value": 0}

    assert follow(TOO_MUCH, Still(), blind=("value",)).diverged is None
    assert follow(TOO_MUCH, Still()).diverged == 1


# Traces.


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"states": 1}'])
def test_what_is_no_trace_is_named_with_its_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.itf.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ToolError, match=r"a\.itf\.json: .*make it anew with `cutlock mutants"):
        read_trace(path)


def test_the_table_shows_what_each_step_changes_and_marks_the_last() -> None:
    table = step_table(TOO_MUCH.steps, 2, ["value: spec 3, code 0"])
    assert table.splitlines() == [
        "    0  Init()                    value = 0",
        "    1  Add(by = 1)               value = 1",
        ">   2  Add(by = 2)               value = 3",
        "       value: spec 3, code 0",
    ]


# Cover.


def test_every_edge_is_taken_and_compared(counter: Bond[Counter]) -> None:
    found = expect_covered(counter, "counter", WHOLE)
    assert (found.edges, found.covered, found.diverged) == (5, 5, 0)


def test_a_divergence_names_step_and_variable_and_keeps_the_walk(
    counter: Bond[Counter], tmp_path: Path
) -> None:
    wrong = graph((0, add(1), 1), (1, add(1), 1), (1, ActionCall("Reset"), 0))
    with pytest.raises(DivergenceError) as found:
        expect_covered(counter, "counter", wrong, save=tmp_path / "kept")
    kept = tmp_path / "kept" / "counter_Add_2.itf.json"
    assert str(found.value).splitlines() == [
        "counter, step 2, Add(by = 1): specification and code differ; the first that differs is "
        "value",
        "    0  Init()                    value = 0",
        "    1  Add(by = 1)               value = 1",
        ">   2  Add(by = 1)               -",
        "       value: spec 1, code 2",
        f"kept in {kept}",
    ]
    assert [step.action for step in read_trace(kept).steps[1:]] == [add(1), add(1)]


def test_an_action_that_is_on_no_edge_is_a_reason(counter: Bond[Counter]) -> None:
    with pytest.raises(ConformanceError, match="counter: no edge takes Reset; widen the bounds"):
        expect_covered(counter, "counter", graph((0, add(1), 1)))
    with counter.manifest.open("a") as manifest:
        manifest.write('coverage = true\nnever = ["Reset"]\n')
    again = replace(counter)
    assert expect_covered(again, "counter", graph((0, add(1), 1))).covered == 1


def test_what_a_difference_usually_means_is_told(counter: Bond[Counter]) -> None:
    bond = replace(counter, explain=lambda call, variables: f"{call.name} forgets {[*variables]}")
    found = cover(bond, "counter", graph((0, add(1), 2)))
    assert found.divergence is not None
    assert found.divergence.text.endswith("likely: Add forgets ['value']")


# Stepping.


@pytest.fixture
def actor() -> Iterator[Actor]:
    made = Actor("a")
    yield made
    made.close()


async def wait_for(future: asyncio.Future[None]) -> None:
    await future


def test_an_actor_that_was_woken_goes_on_when_it_is_told_to(actor: Actor) -> None:
    future = actor.loop.create_future()
    actor.begin(wait_for(future))
    future.set_result(None)
    assert not actor.idle
    actor.go_on()
    assert actor.idle


def test_an_actor_that_is_cancelled_leaves_until_it_has_noticed(actor: Actor) -> None:
    actor.begin(wait_for(actor.loop.create_future()))
    assert not actor.leaving
    actor.cancel()
    assert (actor.leaving, actor.idle) == (True, False)
    actor.go_on()
    assert (actor.leaving, actor.idle) == (False, True)


def test_an_actor_whose_work_breaks_says_so(actor: Actor) -> None:
    async def breaks() -> None:
        raise ZeroDivisionError("of all things")

    with pytest.raises(DivergenceError, match="the task of a broke: ZeroDivisionError") as found:
        actor.begin(breaks())
    assert isinstance(found.value.__cause__, ZeroDivisionError)


def test_a_timeout_comes_by_the_clock_of_the_actor(actor: Actor) -> None:
    async def waits() -> None:
        async with asyncio.timeout(5.0):
            await asyncio.Event().wait()

    actor.begin(waits())
    actor.loop.advance(4.9)
    actor.go_on()
    assert not actor.idle
    actor.loop.advance(0.1)
    with pytest.raises(DivergenceError, match="TimeoutError"):
        actor.go_on()


def test_who_stands_at_a_stop_is_let_go_by_name(actor: Actor) -> None:
    stops: Stops[str] = Stops()
    actor.begin(stops.hold("Release", "a"))
    assert stops.at("Release", "a")
    with pytest.raises(NotEnabledError, match=r"before Release\(b\); tasks stand at: Release\(a\)"):
        stops.release("Release", "b")
    stops.release("Release", "a")
    actor.go_on()
    assert (actor.idle, dict(stops.places)) == (True, {})


def test_a_stop_can_be_left_by_an_error_or_a_cancellation(actor: Actor) -> None:
    stops: Stops[str] = Stops()
    actor.begin(stops.hold("Release"))
    stops.release("Release", error=OSError("no"))
    with pytest.raises(DivergenceError, match="OSError"):
        actor.go_on()
    actor.begin(stops.hold("Release"))
    actor.cancel()
    actor.go_on()
    assert not stops.at("Release")


# Logs.


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    alphabet = Alphabet({"Put": ("keys", "at", "of")})
    journal = Journal(alphabet)
    journal.note("Put", keys=frozenset({1, 2}), at=(1, "a"), of=ModelValue("p1"))
    journal.note("Put", keys=frozenset(), at=(), of=record(x=True))
    journal.save(tmp_path / "runs" / "one.ndjson")
    assert read_journal(tmp_path / "runs" / "one.ndjson", alphabet) == journal.calls


def test_fields_of_a_log_that_are_no_arguments_are_let_be(tmp_path: Path) -> None:
    path = tmp_path / "one.ndjson"
    path.write_text('{"t": 1.5, "action": "Put", "args": {"key": 1}}\n')
    assert read_journal(path, Alphabet({"Put": ("key",)})) == [ActionCall("Put", {"key": 1})]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is no record of a log: JSONDecodeError"),
        ("[]", "is no record of a log: TypeError"),
        ('{"action": "Put"}', "is no record of a log: KeyError"),
        ('{"action": "Put", "args": {"key": 1.5}}', "is no record of a log: ToolError"),
        ('{"action": "Get", "args": {}}', "knows no action 'Get'"),
        ('{"action": "Put", "args": {"of": 1}}', r"the alphabet gives Put \(key\)"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "one.ndjson"
    path.write_text('{"action": "Put", "args": {"key": 1}}\n' + line + "\n")
    with pytest.raises(ConformanceError, match=rf"one\.ndjson:2: .*{problem}"):
        read_journal(path, Alphabet({"Put": ("key",)}))


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConformanceError, match=r"the log .*none\.ndjson cannot be read"):
        read_journal(tmp_path / "none.ndjson", Alphabet({}))


def test_a_journal_takes_only_what_is_of_the_alphabet() -> None:
    with pytest.raises(ConformanceError, match="knows no action 'Get'"):
        Journal(Alphabet({"Put": ("key",)})).note("Get")


@pytest.mark.parametrize(
    ("logs", "problem"),
    [
        ({"one": []}, "the log one has no event, so accepting it would show nothing"),
        ({"one": [ActionCall("Get")]}, "knows no action 'Get'"),
    ],
)
def test_a_log_that_cannot_be_accepted_is_refused_before_java_is_started(
    example: Example, logs: dict[str, list[ActionCall]], problem: str
) -> None:
    with pytest.raises(ConformanceError, match=problem):
        accept(example.bound, logs, None)  # type: ignore[arg-type]


def test_a_bond_without_a_module_for_logs_says_so(counter: Bond[Counter]) -> None:
    with pytest.raises(ConformanceError, match="counter has no module that accepts logs; give"):
        accept(counter, {"one": [add(1)]}, None)  # type: ignore[arg-type]


@pytest.mark.tlc
def test_the_first_event_that_is_no_step_is_named_with_the_state_before_it(
    example: Example, toolchain: Toolchain
) -> None:
    lock = example.bound
    calls = [lock.alphabet.call(name, who=who) for name, who in SHORT]
    logs = {"good": calls, "bad": [*calls[:2], calls[3], *calls[4:]], "late": [*calls, calls[0]]}
    good, bad, late = accept(lock, logs, toolchain)
    assert (good.ok, str(good)) == (True, "good: all 5 events accepted")
    assert (bad.accepted, bad.refused) == (2, 'event 3 of 4, Resume(who = "b")')
    assert bad.state == {
        "owner": '"a"',
        "queue": '<<"b">>',
        "at": '[a |-> "inside", b |-> "waiting", c |-> "idle"]',
    }
    assert late.ok
    with pytest.raises(DivergenceError, match=r"^bad: refused at event 3 of 4"):
        expect_accepted(lock, logs, toolchain)


SHORT = (("Enter", "a"), ("Wait", "b"), ("Release", "a"), ("Resume", "b"), ("Release", "b"))


# TLC.

SPEC = """\
---- MODULE Counter ----
EXTENDS Naturals, TLC
CONSTANT Most
VARIABLES value, act
Init == value = 0 /\\ act = [name |-> "Init"]
Add == value < Most /\\ value' = value + 1 /\\ act' = [name |-> "Add", by |-> 1]
Reset == value > 0 /\\ value' = 0 /\\ act' = [name |-> "Reset"]
Next == Add \\/ Reset
View == value
Prints == PrintT(ToString(act'))
Small == value <= 2
====
"""
MUTANT = """
[[models]]
name = "more"
module = "Counter"
config = "more.cfg"
mode = "mutant"
time = "quick"
expected = "invariant"
property = "Small"
why = "one more is too much"
"""
BEHAVIOUR = "INIT Init\nNEXT Next\nVIEW View\n"


@pytest.fixture
def checked(counter: Bond[Counter], monkeypatch: pytest.MonkeyPatch) -> Bond[Counter]:
    """With a spec and a mutant that TLC can check; the self-test is left out, for its time."""
    folder = counter.manifest.parent
    (folder / "Counter.tla").write_text(SPEC)
    graph = f"CONSTANT Most = 2\n{BEHAVIOUR}ACTION_CONSTRAINT Prints\n"
    (folder / "counter.cfg").write_text(graph)
    (folder / "more.cfg").write_text(f"CONSTANT Most = 3\n{BEHAVIOUR}INVARIANT Small\n")
    counter.manifest.write_text(MANIFEST + MUTANT)
    monkeypatch.setattr(expect, "self_test", lambda toolchain: None)
    return counter


@pytest.mark.tlc
def test_the_graph_of_a_model_is_the_one_that_the_manifest_means(
    checked: Bond[Counter], toolchain: Toolchain
) -> None:
    found = explored(checked, "counter", toolchain)
    assert expect_covered(checked, "counter", found).covered == 4
    checked.manifest.write_text(MANIFEST.replace("distinct = 3", "distinct = 4"))
    with pytest.raises(ConformanceError, match="expected 4 distinct states, found 3"):
        explored(replace(checked), "counter", toolchain)


@pytest.mark.tlc
def test_models_and_kept_counterexamples_are_those_of_tlc(
    checked: Bond[Counter], toolchain: Toolchain, tmp_path: Path
) -> None:
    kept = tmp_path / "traces"
    with pytest.raises(ConformanceError) as found:
        expect_checked(checked, toolchain, kept)
    assert f"more: {kept / 'more.itf.json'} is not the counterexample" in str(found.value)
    assert f"--traces {kept} --write`" in str(found.value)
    kept.mkdir()
    more = [Step(ActionCall("Init"), {"value": 0})]
    more += [Step(add(1), {"value": value}) for value in (1, 2, 3)]
    (kept / "more.itf.json").write_bytes(to_itf(Counterexample("more", "Small", tuple(more))))
    expect_checked(checked, toolchain, kept)


def test_a_graph_of_a_model_that_has_none_is_refused(
    counter: Bond[Counter], toolchain: Toolchain
) -> None:
    with pytest.raises(ConfigError, match="'less' is no model of counter"):
        explored(counter, "less", toolchain)
