"""The plugin in a project outside this one: the example of the lock, as it is and broken."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.support.lock_example import LOCK_FOLDER
from tests.support.outside_project import WITHOUT_TLC, OutsideProject, text_of

pytest_plugins = ["pytester"]


# The example as it is.


@pytest.mark.tlc
def test_the_whole_example_passes_outside_this_repository(project: OutsideProject) -> None:
    result = project.run()
    result.assert_outcomes(passed=14)
    assert "cutlock: bond bond:LOCK, plane memory, seed 0" in text_of(result)


def test_without_java_each_trace_is_two_tests(project: OutsideProject) -> None:
    result = project.run("-v", *WITHOUT_TLC)
    result.assert_outcomes(passed=10, deselected=4)
    for name in (
        "barges_in",
        "last_first",
        "left_to_a_stranger",
        "lost_wakeup",
        "queues_behind_cancelled",
    ):
        assert f"keeps_the_promise[{name}] PASSED" in text_of(result)
        assert f"breaks_in_the_same_step[{name}] PASSED" in text_of(result)


def test_collection_starts_no_java_and_imports_neither_ray_nor_torch(
    project: OutsideProject,
) -> None:
    (project.path / "conftest.py").write_text(
        "import subprocess, sys\n"
        "def refuse(*arguments, **named): raise AssertionError('a process was started')\n"
        "subprocess.Popen.__init__ = refuse\n"
        "def pytest_sessionfinish():\n"
        "    loaded = {'ray', 'torch', 'transfer_queue', 'cutlock.tlc.run'} & set(sys.modules)\n"
        "    print('loaded:', sorted(loaded))\n"
    )
    (project.path / "bond.py").write_text("raise AssertionError('read while collecting')\n")
    (project.path / "test_lock.py").write_text(
        "def test_a_trace(cutlock_trace): cutlock_trace.holds()\n"
        "def test_a_model(cutlock_model): cutlock_model.check()\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "cutlock.pytest_plugin", "--collect-only"]
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 tests collected" in done.stdout
    assert "loaded: []" in done.stdout


# A broken lock.


def test_a_lost_wakeup_is_told_with_the_steps_up_to_it(project: OutsideProject) -> None:
    project.break_the_lock()
    result = project.run(*WITHOUT_TLC, "-k", "as_it_is")
    result.assert_outcomes(passed=4, failed=1, deselected=9)
    result.stdout.fnmatch_lines(
        [
            "*test_the_lock_as_it_is_keeps_the_promise*lost_wakeup*",
            'lost_wakeup: the code as it is breaks NoLostWakeup in step 6 of 6, Notice(who = "b")',
            '    3  Release(who = "a")        at.a = "idle"; at.b = "granted"; owner = "b"; *',
            '    5  Cancel(who = "b")         at.b = "leaving"',
            '>   6  Notice(who = "b")         at.b = "idle"',
            "       NoLostWakeup does not hold",
        ]
    )
    assert "Traceback" not in text_of(result)
    assert "another exception" not in text_of(result)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "all(place.cancelled() for _, place in self._waiters)",
            "not self._waiters",
            "queues_behind_cancelled: the code as it is breaks NoLostWakeup in step 5 of 5, "
            'Wait(who = "a")',
        ),
        (
            "return list(self._waiters)",
            "return list(self._waiters)[::-1]",
            'last_first: the code as it is breaks Served in step 12 of 12, Cancel(who = "c")',
        ),
    ],
    ids=["queues behind the cancelled", "last first"],
)
def test_another_fault_in_the_lock_is_told_by_its_own_trace_alone(
    project: OutsideProject, old: str, new: str, told: str
) -> None:
    project.change("lock.py", old, new)
    result = project.run(*WITHOUT_TLC, "-k", "as_it_is")
    result.assert_outcomes(passed=4, failed=1, deselected=9)
    assert f"\n{told}\n" in text_of(result)


def test_a_fault_that_is_none_is_told_with_the_first_variable(project: OutsideProject) -> None:
    project.change("bond.py", "def just_goes(lock: FairLock) -> None:\n", HANDS_ON)
    result = project.run(*WITHOUT_TLC, "-k", "same_step and lost_wakeup")
    result.assert_outcomes(failed=1, deselected=13)
    result.stdout.fnmatch_lines(
        [
            "lost_wakeup: the code with the fault is in another state after step 6 of 6, "
            'Notice(who = "b"); the first that differs is at.a',
            '>   6  Notice(who = "b")         at.b = "idle"',
            '       at.a: spec "waiting", code "granted"',
            '       owner: spec "b", code "a"',
        ]
    )


HANDS_ON = """\
def just_goes(lock: FairLock) -> None:
    return lock._hand_over()


def _not_used(lock: FairLock) -> None:
"""


def test_a_lock_that_breaks_is_shown_where_it_does(project: OutsideProject) -> None:
    project.change("lock.py", "        self._hand_over()\n        self._note", NO_OWNER)
    result = project.run(*WITHOUT_TLC, "-k", "as_it_is and lost_wakeup")
    result.assert_outcomes(failed=1, deselected=13)
    result.stdout.fnmatch_lines(
        [
            "lock.py:*: ZeroDivisionError",
            'E*DivergenceError: lost_wakeup, step 3, Release(who = "a"): the task of a broke: *',
        ]
    )


NO_OWNER = "        1 // 0\n        self._note"


# Wrong use.


def test_a_missing_trace_folder_is_named_with_the_way_out(project: OutsideProject) -> None:
    result = project.run("--cutlock-traces", "nowhere")
    result.assert_outcomes(errors=1)
    assert f"the trace folder {project.path / 'nowhere'} is not there" in text_of(result)
    assert "name another folder with --cutlock-traces" in text_of(result)
    assert "Traceback" not in text_of(result)


def test_an_empty_trace_folder_is_named_with_the_way_out(project: OutsideProject) -> None:
    shutil.rmtree(project.path / "traces")
    (project.path / "traces").mkdir()
    result = project.run()
    result.assert_outcomes(errors=1)
    assert f"the trace folder {project.path / 'traces'} has no *.itf.json" in text_of(result)
    assert "`cutlock mutants --manifest MANIFEST --traces" in text_of(result)


def test_a_test_that_asks_for_no_trace_needs_no_folder(project: OutsideProject) -> None:
    shutil.rmtree(project.path / "traces")
    (project.path / "test_lock.py").write_text("def test_a_seed(cutlock_seed): pass\n")
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("where", ["command line", "configuration"])
def test_an_unknown_plane_is_refused_before_anything_runs(
    project: OutsideProject, where: str
) -> None:
    arguments = ["--cutlock-plane", "disk"]
    if where == "configuration":
        arguments = []
        project.change("pyproject.toml", "cutlock_traces", 'cutlock_plane = "disk"\ncutlock_traces')
    result = project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unknown plane 'disk'; choose from memory, transfer_queue" in text_of(result)


def test_a_plane_that_the_protocol_has_not_is_told_by_each_test(project: OutsideProject) -> None:
    result = project.run("--cutlock-plane", "transfer_queue", *WITHOUT_TLC)
    result.assert_outcomes(failed=10, deselected=4)
    assert "lock has no plane 'transfer_queue'; choose from memory" in text_of(result)


def test_a_seed_that_is_no_number_is_refused(project: OutsideProject) -> None:
    result = project.run("--cutlock-seed", "lucky")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "seed 'lucky' is no whole number" in text_of(result)


def test_the_seed_and_the_plane_are_handed_to_the_tests(project: OutsideProject) -> None:
    (project.path / "test_lock.py").write_text(
        "def test_both(cutlock_seed, cutlock_plane):\n"
        "    assert (cutlock_seed, cutlock_plane) == (7, 'memory')\n"
    )
    result = project.run("--cutlock-seed", "7")
    result.assert_outcomes(passed=1)
    assert "seed 7" in text_of(result)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not a counterexample in the Informal Trace Format"),
        ('{"states": [], "vars": []}', "KeyError('#meta')"),
        ("\xff\xfe", "not a counterexample in the Informal Trace Format"),
    ],
)
def test_a_malformed_trace_is_an_error_of_its_own_test(
    project: OutsideProject, content: str, problem: str
) -> None:
    broken = project.path / "traces" / "lost_wakeup.itf.json"
    broken.write_bytes(content.encode("latin-1"))
    result = project.run(*WITHOUT_TLC)
    result.assert_outcomes(passed=8, errors=2, deselected=4)
    assert f"{broken}: " in text_of(result)
    assert problem in text_of(result)
    assert "--write`" in text_of(result)
    assert "Traceback" not in text_of(result)


def test_a_trace_of_another_spec_names_the_models_that_there_are(project: OutsideProject) -> None:
    other = LOCK_FOLDER.parents[1] / "traces" / "counterexamples" / "barrier_leaks_a_count.itf.json"
    shutil.copy(other, project.path / "traces")
    result = project.run(*WITHOUT_TLC)
    result.assert_outcomes(passed=10, failed=2, deselected=4)
    assert "'barrier_leaks_a_count' is no model of lock" in text_of(result)
    assert "goes with its own bond" in text_of(result)


@pytest.mark.parametrize(
    ("bond", "problem"),
    [
        ("", "the bond '' is not MODULE:NAME"),
        ("bond", "the bond 'bond' is not MODULE:NAME"),
        ("nowhere:LOCK", "the module 'nowhere' of the bond 'nowhere:LOCK' is not found"),
        ("bond:UNLOCK", "'bond:UNLOCK' is NoneType, no Bond"),
        ("lock:FairLock", "'lock:FairLock' is type, no Bond"),
    ],
)
def test_a_bond_that_is_none_is_told(project: OutsideProject, bond: str, problem: str) -> None:
    result = project.run("--cutlock-bond", bond, *WITHOUT_TLC)
    result.assert_outcomes(errors=10, deselected=4)
    assert problem in text_of(result)


# Choosing.


def test_a_marker_chooses_among_the_traces(project: OutsideProject) -> None:
    (project.path / "test_lock.py").write_text(
        "import pytest\n"
        "@pytest.mark.cutlock_traces('lost_*', 'last_*')\n"
        "def test_some(cutlock_trace): cutlock_trace.breaks()\n"
    )
    result = project.run("-v")
    result.assert_outcomes(passed=2)
    assert "queues_behind_cancelled" not in text_of(result)


def test_a_marker_that_fits_no_trace_names_those_that_there_are(project: OutsideProject) -> None:
    (project.path / "test_lock.py").write_text(
        "import pytest\n"
        "@pytest.mark.cutlock_traces('found_*')\n"
        "def test_some(cutlock_trace): pass\n"
    )
    result = project.run()
    result.assert_outcomes(errors=1)
    assert "matches 'found_*'; there are: barges_in, last_first, " in text_of(result)


def test_a_project_that_does_not_use_it_notices_nothing(project: OutsideProject) -> None:
    for path in project.path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (project.path / "test_other.py").write_text("def test_other(): pass\n")
    result = project.run()
    result.assert_outcomes(passed=1)
    assert "cutlock:" not in text_of(result)
