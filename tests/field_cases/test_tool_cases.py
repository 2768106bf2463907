"""Public failures of the tools that the model and the conformance tests rest on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import cutlock
from cutlock.alphabet import Action
from cutlock.bond import replay, walk_of
from cutlock.bond.replay import DEADLOCK
from cutlock.cli import main
from cutlock.conformance.barrier import BARRIER
from cutlock.conformance.free import pair as free_pair
from cutlock.conformance.free.moves import MACHINE_MOVES
from cutlock.conformance.free.pair import Pair, constants_of_trace
from cutlock.conformance.protocol import CUTLOCK, FREE
from cutlock.conformance.reference.model import Reference
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import ConfigError, ConformanceError, DivergenceError, ToolError
from cutlock.tlc.check import check_model
from cutlock.tlc.itf import Counterexample, from_itf, to_itf
from cutlock.tlc.logcheck import LogSpec, LogVerdict, check_logs, event
from cutlock.tlc.manifest import load_manifest
from cutlock.tlc.outcome import Verdict
from cutlock.tlc.run import Job, Toolchain
from cutlock.tlc.selftest import FOLDER
from tests.stateful.pair_machine import UNSHRUNK, run
from tests.stateful.regressions import TRACES, kept, read

ROOT = Path(cutlock.__file__).parents[2]
MANIFEST = load_manifest(ROOT / "model_check" / "manifest.toml")
KNOWN = {"few_places", "short_of_more_than_a_step"}
"""Regressions that must not vanish."""

SMALL = Bounds(batches=2, per_epoch=2, members=(1, 2), window=1, max_failures=3)


def module(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.tla"
    head = f"---- MODULE {name} ----\n"
    path.write_text(head + textwrap.dedent(text).strip() + "\n" + "=" * 20 + "\n")
    return path


class TestTraceCutShort:
    """FB-93: a counter from 1 that must stay below 2, and one that must stay below 3."""

    COUNTER = """
        EXTENDS Naturals
        VARIABLE x
        Init == x = 1
        Next == x' = x + 1
        Below2 == x < 2
        Below3 == x < 3
    """

    @pytest.mark.tlc
    @pytest.mark.parametrize("limit", [2, 3])
    def test_fb_93_a_trace_that_is_read_from_tlc_ends_with_the_state_that_breaks_the_promise(
        self, toolchain: Toolchain, tmp_path: Path, limit: int
    ) -> None:
        config = tmp_path / "some.cfg"
        config.write_text(f"INIT Init\nNEXT Next\nINVARIANT Below{limit}\n")
        counter = module(tmp_path, "Counter", self.COUNTER)
        outcome = toolchain.run(Job(counter, config, deadlock=False, tiny=True))
        assert (outcome.verdict, outcome.property) == (Verdict.INVARIANT, f"Below{limit}")
        assert [step.state["x"] for step in outcome.trace] == list(range(1, limit + 1))

    @pytest.mark.parametrize("faulty", [True, False])
    @pytest.mark.parametrize("missing", [1, 2])
    def test_fb_93_a_counterexample_whose_last_state_keeps_the_promise_is_not_replayed(
        self, missing: int, faulty: bool
    ) -> None:
        """Or the code would be said to keep what the trace does not even try to break."""
        example = counterexample("cursor_early")
        short = shortened(example, missing)
        with pytest.raises(ToolError, match=f"do not break {example.property}"):
            replay(CUTLOCK, short, faulty=faulty)

    def test_fb_93_the_command_says_so_too(self, tmp_path: Path) -> None:
        example = counterexample("cursor_early")
        path = tmp_path / "short.itf.json"
        path.write_bytes(to_itf(shortened(example)))
        arguments = ["replay", str(path), "--manifest", str(ROOT / "model_check/manifest.toml")]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 4
        assert "the last ones are missing" in result.stderr

    @pytest.mark.parametrize("mutant", BARRIER.faults)
    def test_fb_93_a_counterexample_of_the_barrier_that_is_cut_short_is_not_replayed(
        self, mutant: str
    ) -> None:
        example = counterexample(mutant)
        short = shortened(example)
        with pytest.raises(ToolError, match=f"do not break {example.property}"):
            replay(BARRIER, short)

    @pytest.mark.slow
    def test_fb_93_the_last_state_of_every_kept_counterexample_breaks_its_promise(self) -> None:
        """What stands still or goes round is seen in no state; those are replayed with their
        faults."""
        looked_at = 0
        for path in sorted((ROOT / "traces" / "counterexamples").glob("*.itf.json")):
            example = from_itf(path.read_bytes())
            if example.model.startswith(("barrier_", "narrow_")) or example.property == DEADLOCK:
                continue
            if example.loop is not None:
                continue
            if example.model == "story_cursor_early":
                continue  # its promise is about two states
            constants = CUTLOCK.constants(CUTLOCK.model(example.model))
            promise = CUTLOCK.promises[example.property]
            before, last = (promise(step.state, constants) for step in example.steps[-2:])
            assert (before, last) == (True, False), path.name
            looked_at += 1
        assert looked_at >= 25


def counterexample(mutant: str) -> Counterexample:
    path = ROOT / "traces" / "counterexamples" / f"{mutant}.itf.json"
    return from_itf(path.read_bytes())


def shortened(example: Counterexample, missing: int = 1) -> Counterexample:
    return Counterexample(example.model, example.property, example.steps[:-missing])


def config_of(mutant: str) -> Path:
    (model,) = MANIFEST.select([mutant])
    return MANIFEST.config(model).path


def bounds_of(mutant: str) -> Bounds:
    return Bounds.read(config_of(mutant))


class TestLivenessWithSymmetry:
    """FB-95: two workers that are alike, and a promise of progress that is known to fail."""

    WORKERS = """
        EXTENDS TLC
        CONSTANTS a, b
        VARIABLE turn
        Workers == {a, b}
        Alike == Permutations(Workers)
        Seen == turn = a
        Init == turn \\in Workers
        Next == \\E w \\in Workers : w # turn /\\ turn' = w
        Spec == Init /\\ [][Next]_turn /\\ WF_turn(Next)
        Settles == \\E w \\in Workers : <>[](turn = w)
    """
    CONFIG = "CONSTANTS\n    a = a\n    b = b\nSPECIFICATION Spec\nPROPERTY Settles\n"

    def manifest(self, folder: Path, more: str = "", **changes: object) -> Path:
        module(folder, "Workers", self.WORKERS)
        (folder / "workers.cfg").write_text(self.CONFIG + more)
        row = {
            "name": "workers",
            "module": "Workers",
            "config": "workers.cfg",
            "mode": "liveness",
            "time": "quick",
            "expected": "temporal",
            "property": "Settles",
            "distinct": 2,
            "why": "they take turns for ever",
            **changes,
        }
        lines = [f"{k} = {json.dumps(v)}" for k, v in row.items() if v is not None]
        path = folder / "manifest.toml"
        head = 'modules = ["."]\nconfigs = "."\n[[models]]\n'
        path.write_text(head + "\n".join(lines) + "\n")
        return path

    @pytest.mark.tlc
    def test_fb_95_the_violation_is_found_without_symmetry(
        self, toolchain: Toolchain, tmp_path: Path
    ) -> None:
        manifest = load_manifest(self.manifest(tmp_path))
        result = check_model(toolchain, manifest, manifest.models[0]).result
        assert result.ok, result.why_not

    @pytest.mark.parametrize("more", ["SYMMETRY Alike\n", "VIEW Seen\n"])
    @pytest.mark.parametrize("mode", ["liveness", "mutant"])
    def test_fb_95_liveness_with_symmetry_or_a_view_is_refused_before_anything_runs(
        self, tmp_path: Path, more: str, mode: str
    ) -> None:
        path = self.manifest(tmp_path, more, mode=mode)
        with pytest.raises(ConfigError, match=f"liveness with {more.split()[0].lower()}"):
            load_manifest(path)

    @pytest.mark.tlc
    @pytest.mark.parametrize("more", ["SYMMETRY Alike\n", ""])
    def test_fb_95_a_temporal_property_in_a_row_that_is_not_about_one_is_not_believed(
        self, toolchain: Toolchain, tmp_path: Path, more: str
    ) -> None:
        """Whatever the checker answers: with symmetry, it may have missed the violation."""
        row = {"mode": "safety", "expected": "success", "coverage": False, "distinct": 1}
        manifest = load_manifest(self.manifest(tmp_path, more, property=None, **row))
        result = check_model(toolchain, manifest, manifest.models[0]).result
        assert not result.ok
        if more and result.got is Verdict.SUCCESS:
            said = " ".join(result.why_not)
            assert "a temporal property was checked" in said
            assert "symmetry" in said.lower()

    def test_fb_95_no_row_of_ours_has_liveness_with_what_may_hide_a_violation(self) -> None:
        live = [model for model in MANIFEST.models if model.checks_liveness()]
        assert len(live) >= 4
        for model in live:
            sections = MANIFEST.config(model).sections
            assert not {"symmetry", "view", "constraints"} & set(sections), model.name

    def test_fb_95_a_seeded_liveness_fault_has_to_be_found_before_anything_is_believed(
        self,
    ) -> None:
        seeded = [m for m in load_manifest(FOLDER / "manifest.toml").models if m.mode == "liveness"]
        assert Verdict.TEMPORAL in {model.expected for model in seeded}


class TestInvariantOnADeadEnd:
    """FB-97: after `Go` two states are possible, and only one of them can go on with `End`."""

    HOLES = """
        EXTENDS Naturals
        VARIABLE x
        Init == x = 0
        Step(event) ==
            CASE event.name = "Go" -> x = 0 /\\ x' \\in {1, 2}
              [] event.name = "End" -> x = 1 /\\ x' = 3
              [] event.name = "Stop" -> x = 2 /\\ x' = 3
        NeverTwo == x # 2
    """

    @pytest.mark.tlc
    def test_fb_97_an_invariant_counts_only_on_a_behaviour_that_matches_the_whole_log(
        self, toolchain: Toolchain, tmp_path: Path
    ) -> None:
        spec = LogSpec(module(tmp_path, "Holes", self.HOLES), invariants=("NeverTwo",))
        go, end, stop = (event(name, {}) for name in ("Go", "End", "Stop"))
        matched, open_end, broken, refused = check_logs(
            toolchain, spec, [(go, end), (go,), (go, stop), (end,)]
        )
        assert matched == LogVerdict(True, 2, 2)
        assert open_end == LogVerdict(True, 1, 1)
        assert (broken.ok, broken.broken) == (False, "NeverTwo")
        assert refused == LogVerdict(False, 0, 1)


class TestOneLoopPerMachine:
    """FB-99: what one rule holds, another one lets go."""

    def test_fb_99_what_one_move_has_entered_is_left_by_a_later_one_in_the_same_loop(
        self, ram_path: Path
    ) -> None:
        with Stepper(SMALL, ram_path / "run", moves=MACHINE_MOVES) as stepper:
            pair, loop = Pair(Reference(SMALL), stepper), stepper.loop
            inside: set[str] = set()
            while pair.steps[-1].action.name != Action.END_RUN:
                pair.do(next(call for call in pair.options() if call.name not in TROUBLE))
                assert stepper.loop is loop
                assert not loop.is_closed()
                incarnation = stepper.incarnation
                if incarnation is not None and incarnation.stage == "running":
                    state = incarnation.engine.state
                    inside |= {pair.steps[-1].action.name} if state.barrier.slots else set()
            # Slots were held from one move to the next, and every one of them was left.
            assert {Action.BEGIN_COMMIT, Action.PUT_ROWS} <= inside
            assert state.barrier.slots == 0
            assert not loop.mishaps
        assert loop.is_closed()

    def test_fb_99_moves_of_several_tasks_are_interleaved_by_the_schedule(
        self, ram_path: Path
    ) -> None:
        """Two commits and a request for the cut, all under way at the same time."""
        with Stepper(SMALL, ram_path / "run", moves=MACHINE_MOVES) as stepper:
            pair = Pair(Reference(SMALL), stepper)

            def to(*wanted: str) -> None:
                while True:
                    calls = [c for c in pair.options() if c.name not in {*TROUBLE, *LATER}]
                    named = [call for call in pair.options() if call.name in wanted]
                    pair.do((named or calls)[0])
                    if named:
                        return

            to(Action.BEGIN_COMMIT)
            to(Action.BEGIN_COMMIT)
            assert stepper.incarnation is not None
            barrier = stepper.incarnation.engine.state.barrier
            assert barrier.slots == 2
            to(Action.PUT_ROWS)
            to(Action.REQUEST_CUT)
            assert (barrier.slots, barrier.waiting) == (2, ("cut",))

    def test_fb_99_no_machine_has_rules_which_hypothesis_would_not_await(self) -> None:
        """The machine is a plain loop over moves; one of Hypothesis's own has to be looked at."""
        machine = re.compile(r"^class \w+\(.*StateMachine.*\):", re.MULTILINE)
        assert not [path for path in sources() if machine.search(path.read_text())]


TROUBLE = {
    Action.FAIL_GROUP,
    Action.ROLLBACK_GROUP,
    Action.FAIL_SAVE,
    Action.CRASH,
    "CancelCommit",
    "CancelCommitTwice",
}
LATER = {Action.PUT_ROWS, Action.REQUEST_CUT, Action.COMMIT_GROUP, Action.BEGIN_COMMIT}


def sources() -> list[Path]:
    return [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]


KIT = """
    import asyncio

    import pytest
    from hypothesis import given, settings
    from hypothesis import strategies as st

    BOTH = {"first": lambda number: number, "second": lambda number: FAULT}


    @pytest.fixture(params=BOTH)
    async def made(request):
        lock = asyncio.Lock()
        await lock.acquire()
        yield asyncio.get_running_loop(), lock, BOTH[request.param]
        lock.release()


    async def test_the_fixture_is_of_the_loop_of_the_test(made):
        loop, lock, make = made
        assert loop is asyncio.get_running_loop()
        waiter = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(0)
        lock.release()
        assert await waiter


    @pytest.mark.parametrize("name", BOTH)
    @settings(max_examples=5, database=None)
    @given(number=st.integers())
    async def test_a_property(name, number):
        await asyncio.sleep(0)
        assert BOTH[name](number) == number
"""

INHERITED = """
    import asyncio

    from hypothesis import given, settings
    from hypothesis import strategies as st


    class Kit:
        @settings(max_examples=5, database=None)
        @given(number=st.integers())
        async def test_a_property(self, number):
            await asyncio.sleep(0)


    class TestFirst(Kit):
        pass


    class TestSecond(Kit):
        pass
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The outcome of each test, by pytest with the settings of this project."""
    return judged(
        tmp_path_factory.mktemp("kits"),
        sound=KIT.replace("FAULT", "number"),
        faulty=KIT.replace("FAULT", "0 if number else 1"),
        inherited=INHERITED,
    )


class TestTwoImplementationsOfOneKit:
    """FB-101: one suite of async tests, with a property and a fixture, two implementations."""

    def test_fb_101_the_second_implementation_runs_like_the_first(self, said: str) -> None:
        found = re.findall(r"^(\w+) test_sound\.py::\w+\[(\w+)\]", said, re.MULTILINE)
        assert sorted(found) == [("PASSED", "first")] * 2 + [("PASSED", "second")] * 2, said

    def test_fb_101_a_fault_of_the_second_implementation_is_found(self, said: str) -> None:
        found = re.findall(r"^FAILED test_faulty\.py::(\S+)", said, re.MULTILINE)
        assert found == ["test_a_property[second]"], said

    def test_fb_101_a_property_that_two_subclasses_inherit_is_refused_out_loud(
        self, said: str
    ) -> None:
        """So a kit is parametrised here and not inherited, and nobody is led to believe else."""
        assert len(re.findall(r"^FAILED test_inherited\.py", said, re.MULTILINE)) == 1, said
        assert "differing_executors" in said

    @pytest.mark.slow
    def test_fb_101_an_async_test_that_nobody_would_await_fails(self, tmp_path: Path) -> None:
        text = "async def test_nothing():\n    assert False\n"
        said = judged(tmp_path, "-o", "asyncio_mode=strict", unawaited=text)
        assert "FAILED test_unawaited.py::test_nothing" in said

    def test_fb_101_one_loop_serves_a_test_and_its_fixtures(self) -> None:
        options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
        options = options["ini_options"]
        assert options["asyncio_mode"] == "auto"
        assert options["asyncio_default_fixture_loop_scope"] == "function"
        assert options.get("asyncio_default_test_loop_scope", "function") == "function"
        assert options["filterwarnings"] == ["error"]
        assert options["xfail_strict"] is True


def judged(folder: Path, *options: str, **files: str) -> str:
    """What pytest says of these files with the settings of this project."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-rA"]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


class TestReportAndRegressions:
    """FB-103: a failing invariant, and an example that was pinned."""

    def test_fb_103_the_report_of_a_machine_names_invariant_step_and_the_moves_before_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken_once_trained(terms: Any) -> list[str]:
            return ["OneOwner"] if terms.state.version else []

        monkeypatch.setattr(free_pair, "broken", broken_once_trained)
        with pytest.raises(DivergenceError, match=r"^RaiseVersion\(.*breaks OneOwner") as failure:
            run(UNSHRUNK)
        notes = "\n".join(failure.value.__notes__)
        moves = re.findall(r"^ +(\d+) (\w+)\(", notes, re.MULTILINE)
        assert [int(number) for number, _ in moves] == list(range(1, len(moves) + 1))
        assert moves[0][1] == "BeginRun"
        assert moves[-1][1] == "RaiseVersion"

    def test_fb_103_no_example_is_pinned_where_hypothesis_would_ignore_it(self) -> None:
        """That is on rules; there are none, and regressions have a runner of their own."""
        rule = re.compile(r"^\s*@(\w+\.)*(initialize|rule)\b", re.MULTILINE)
        assert not [path for path in sources() if rule.search(path.read_text())]

    def test_fb_103_every_file_among_the_regressions_is_a_case_of_their_runner(self) -> None:
        assert {path.name for path in TRACES.iterdir()} == {path.name for path in kept()}
        assert {path.name.partition(".")[0] for path in kept()} >= KNOWN

    @pytest.mark.parametrize("name", sorted(KNOWN))
    def test_fb_103_every_step_of_a_regression_is_done(self, name: str, tmp_path: Path) -> None:
        path, report = TRACES / f"{name}.itf.json", tmp_path / "report.json"
        manifest = str(ROOT / "model_check/manifest.toml")
        arguments = ["replay", str(path), "--manifest", manifest, "--json", str(report)]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        (found,) = msgspec.json.decode(report.read_bytes())["traces"]
        trace, _ = read(path)
        assert found["replayed"]["step"] == found["replayed"]["length"] == len(trace.steps) - 1 > 0

    def test_fb_103_a_regression_without_a_step_fails_instead_of_passing(self) -> None:
        trace, _ = read(TRACES / f"{sorted(KNOWN)[0]}.itf.json")
        empty = Counterexample(trace.model, trace.property, trace.steps[:1])
        with pytest.raises(ConformanceError, match="no step"):
            replay(FREE, walk_of(empty), constants=constants_of_trace(empty))
