from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cutlock.errors import ToolError
from cutlock.tlc import run
from cutlock.tlc.outcome import Progress, Verdict
from cutlock.tlc.run import Job, Simulation, Toolchain
from tests.tlc.conftest import SPECS
from tests.tlc.playback import Player

JOB = Job(SPECS / "Tank.tla", SPECS / "Good.cfg")


def test_a_run_ends_with_what_tlc_said(player: Player) -> None:
    outcome = player.plays("invariant").run(JOB)
    assert (outcome.verdict, outcome.property) == (Verdict.INVARIANT, "NeverFull")
    assert outcome.seconds > 0


def test_every_run_has_private_folders_that_are_gone_afterwards(player: Player) -> None:
    toolchain = player.plays("success")
    toolchain.run(JOB)
    toolchain.run(JOB)
    folders = []
    for line in player.jobs():
        words = line.split()
        temporary = next(w for w in words if w.startswith("-Djava.io.tmpdir="))
        folder = Path(temporary.partition("=")[2])
        assert words[words.index("-metadir") + 1] == f"{folder}/states"
        assert not folder.exists()
        folders.append(folder)
    assert folders[0] != folders[1]


def test_the_configuration_is_given_relative_to_the_module(player: Player, tmp_path: Path) -> None:
    config = tmp_path / "elsewhere.cfg"
    player.plays("success").run(replace(JOB, config=config))
    words = player.jobs()[0].split()
    given = Path(words[words.index("-config") + 1])
    assert not given.is_absolute()
    assert (SPECS / given).resolve() == config.resolve()


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (JOB, "-XX:+UseParallelGC"),
        (JOB, "-workers 1"),
        (JOB, "-lncheck final"),
        (replace(JOB, workers=2), "-workers 2"),
        (replace(JOB, tiny=True), "-XX:+UseSerialGC"),
        (replace(JOB, heap="6g"), "-Xmx6g"),
        (replace(JOB, coverage=True), "-coverage 1"),
        (replace(JOB, deadlock=False), "-deadlock"),
        (replace(JOB, dump=True), "-dump dot,actionlabels"),
        (replace(JOB, libraries=(Path("/a b"), Path("/c"))), "-DTLA-Library=/a b:/c"),
        (
            replace(JOB, simulation=Simulation(5, 7, 3)),
            "-simulate num=5 -depth 7 -seed 3",
        ),
    ],
)
def test_a_job_is_turned_into_options(player: Player, job: Job, words: str) -> None:
    player.plays("success").run(job)
    assert words in player.jobs()[0]


@pytest.mark.parametrize("word", ["-deadlock", "-coverage", "-simulate", "-dump", "TLA-Library"])
def test_nothing_is_asked_for_that_the_job_does_not_want(player: Player, word: str) -> None:
    player.plays("success").run(JOB)
    assert word not in player.jobs()[0]


@pytest.mark.parametrize("word", ["-continue", "-generateSpecTE"])
def test_options_that_make_tlc_lie_or_hang_are_never_used(player: Player, word: str) -> None:
    player.plays("success").run(replace(JOB, coverage=True, deadlock=False, dump=True))
    assert word not in player.jobs()[0]


def test_the_printed_command_does_what_the_run_does(player: Player) -> None:
    toolchain = player.plays("success")
    job = replace(JOB, libraries=(Path("/with blank"),), coverage=True, dump=True)
    toolchain.run(job)
    subprocess.run(["bash", "-c", toolchain.command(job)], check=True, capture_output=True)
    run, printed = (
        line.replace(line.split("-Djava.io.tmpdir=")[1].split()[0], "WORK")
        for line in player.jobs()
    )
    assert run == printed


def test_the_limit_kills_the_whole_process_group(player: Player) -> None:
    # The child holds the output open: the run could not end while the child lives.
    toolchain = player.runs("sleep 600 & echo started; wait")
    outcome = toolchain.run(replace(JOB, limit_s=0.2))
    assert outcome.verdict is Verdict.BUDGET
    assert outcome.exit_code is None


def test_an_interrupted_run_leaves_no_process(player: Player) -> None:
    toolchain = player.runs(
        "sleep 600 & echo '@!@!@STARTMSG 2200:0 @!@!@'\n"
        "echo '9 states generated, 4 distinct states found, 0 states left on queue.'\n"
        "echo '@!@!@ENDMSG 2200 @!@!@'; wait"
    )

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toolchain.run(JOB, interrupt)


def test_an_interrupt_that_comes_while_java_starts_leaves_no_process(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[str]] = []
    start = run._start

    def interrupted(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
        started.append(start(arguments, folder))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr(run, "_start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        player.runs("exec sleep 600").run(JOB)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_progress_is_told_while_the_run_goes_on(player: Player) -> None:
    told: list[Progress] = []
    player.plays("success").run(JOB, told.append)
    assert told[-1].distinct == 9


def test_a_java_that_dies_is_an_error_of_the_tool(player: Player) -> None:
    outcome = player.runs("kill -9 $$").run(JOB)
    assert outcome.verdict is Verdict.TOOL_ERROR
    assert "exit code -9" in outcome.messages[-1]


def test_a_java_that_is_not_there_is_said_so(player: Player, tmp_path: Path) -> None:
    toolchain = player.plays("success")
    gone = Toolchain(replace(toolchain.java, path=tmp_path / "gone"), toolchain.jar)
    with pytest.raises(ToolError, match="gone cannot be started"):
        gone.run(JOB)


@pytest.mark.tlc
def test_tlc_runs_in_folders_with_blanks_and_finds_modules_in_others(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    here, there, empty = (tmp_path / name for name in ("a folder", "another one", "empty"))
    for folder in (here, there, empty):
        folder.mkdir()
    (there / "Tank.tla").write_bytes((SPECS / "Tank.tla").read_bytes())
    (here / "TankGraph.tla").write_bytes((SPECS / "TankGraph.tla").read_bytes())
    (there / "Good.cfg").write_bytes((SPECS / "Good.cfg").read_bytes())
    job = Job(here / "TankGraph.tla", there / "Good.cfg", libraries=(empty, there), tiny=True)
    outcome = toolchain.run(job)
    assert (outcome.verdict, outcome.distinct) == (Verdict.SUCCESS, 9), outcome.messages
