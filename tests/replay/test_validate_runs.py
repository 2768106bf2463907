"""Logs of whole runs, with trouble, kills and restarts, are behaviours of the specification."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cutlock.run.save as save
from cutlock.alphabet import Action
from cutlock.conformance.validation.logs import RunLog, read_run, validate
from cutlock.errors import ConformanceError, CutlockError, DropBudgetError, SaveError
from cutlock.run.config import RunConfig
from cutlock.tlc.run import Toolchain
from tests.support.local_runs import Camera, Run, Trouble, prompt_ids, tiny_config

SPEC = Path(__file__).parents[2] / "spec"

SAMPLERS: dict[str, dict[str, Any]] = {
    "in_order": {"sampler": {"name": "in_order"}},
    "ready_first": {"sampler": {"name": "ready_first"}},
    "weight_fifo": {"sampler": {"name": "weight_fifo", "window": 0}},
    "windowed": {"sampler": {"name": "windowed", "window": 0}, "buffer": {"capacity": 6}},
    "freshest": {
        "sampler": {"name": "windowed", "window": 1, "order": "freshest"},
        "buffer": {"capacity": 5},
    },
}
"""Configurations by sampler; spares, short batches and lost prompts come with all of them."""


def assert_accepted(toolchain: Toolchain, runs: list[RunLog]) -> None:
    assert len({run.bounds for run in runs}) == 1, "several starts of TLC"
    refused = [run.refusal for run in validate(toolchain, SPEC, runs) if not run.ok]
    assert refused == []


def of(sampler: str, cut: str = "full", **changes: Any) -> RunConfig:
    own = SAMPLERS[sampler]
    return tiny_config(
        sampler=own["sampler"],
        checkpoint={"every": 2, "keep": 2, "cut": cut},
        failures={"attempts": 2, "drop_budget": 6},
        buffer={"spare_prompts": 2, **own.get("buffer", {})},
        **changes,
    )


def trouble_of(config: RunConfig, **more: Any) -> Trouble:
    prompts = prompt_ids(config)
    return Trouble(
        failing=frozenset(prompts[1:2]),
        slow=frozenset(prompts[:1]),
        broken_puts=frozenset({2}),
        **more,
    )


@pytest.mark.tlc
@pytest.mark.parametrize("cut", ["full", "narrow"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_a_kill_leaves_and_its_resume_are_accepted(
    toolchain: Toolchain, ram_path: Path, sampler: str, cut: str
) -> None:
    config = of(sampler, cut)
    run = Run.create(ram_path / "run", config, trouble_of(config))
    camera = Camera(run, ram_path / "killed")
    run.first(config, camera)
    # Every kill leaves a log that is the beginning of a behaviour.
    logs = [read_run(kill.run.directory) for kill in camera.kills if kill.number > 1]
    logs.append(read_run(run.directory))
    total, seen = Counter(camera.announced), Counter[Action]()
    for kill in camera.kills:
        seen[kill.action] += 1
        # Of each action the announcement in the middle, if there is a bundle by then.
        if seen[kill.action] == total[kill.action] // 2 + 1 and [*kill.run.root.glob("step_*")]:
            kill.run.resume()
            assert kill.run.audit().problems == ()
            logs.append(read_run(kill.run.directory))
    # A narrow save publishes when much of a short run is over.
    assert sum(log.starts == 2 for log in logs) > (20 if cut == "full" else 10)
    assert_accepted(toolchain, logs)


NO_TROUBLE = Trouble()


class Story:
    """One run after the other, all of the same bounds."""

    def __init__(self, root: Path) -> None:
        self.config = of("in_order", max_steps=4)
        self.lost, *_ = prompt_ids(self.config)
        self._root = root
        self.logs: list[RunLog] = []

    def run(self, name: str, trouble: Trouble = NO_TROUBLE) -> Run:
        return Run.create(self._root / name, self.config, trouble)

    def killed(self, run: Run, action: Action, number: int = 1) -> Run:
        """What is left of the next start, killed at the n-th announcement."""
        camera = Camera(
            run,
            Path(f"{run.root}-killed"),
            lambda _, announced, before: (announced, before + 1) == (action, number),
        )
        if run.directory.logs():
            run.resume(stops=camera)
        else:
            run.first(self.config, camera)
        return camera.kills[0].run

    def keep(self, run: Run) -> None:
        self.logs.append(read_run(run.directory))


@pytest.mark.tlc
def test_runs_that_end_or_go_on_in_unusual_ways_are_accepted(
    toolchain: Toolchain, ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(ram_path)

    # The drop budget is used up: an error ends the run.
    run = story.run("budget", Trouble(failing=frozenset({story.lost})))
    poor = msgspec.structs.replace(
        story.config, failures=msgspec.structs.replace(story.config.failures, drop_budget=0)
    )
    with pytest.raises(DropBudgetError):
        run.first(poor)
    story.keep(run)
    (failed,) = story.logs[-1].failed
    assert " EndRun: DropBudgetError: " in failed

    # A resume from an older bundle, and one from what that has saved.
    run = story.killed(story.run("older"), Action.CLEAR_ROWS, 4)
    run = Run(run.directory)
    run.resume(run.plan("step_0"), Camera(run, ram_path / "none", lambda *_: False))
    story.keep(run)

    # Without rows; then, before anything was saved, from the same bundle with them.
    run = story.killed(story.run("rows"), Action.CLEAR_ROWS, 3)
    camera = Camera(run, ram_path / "rows-again", lambda number, *_: number == 9)
    run.resume(run.plan(with_rows=False), camera)
    story.keep(run)
    (kill,) = camera.kills
    kill.run.resume()
    story.keep(kill.run)

    # Killed again and again before anything new is saved.
    run = story.killed(story.run("again"), Action.SELECT_GROUPS, 3)
    for action in (Action.RESTORE_INDEX, Action.RESTORE_CURSOR, Action.TRAIN_STEP):
        run = story.killed(run, action)
    run.resume()
    assert len(run.directory.logs()) == 5
    story.keep(run)

    # Killed before the first record, and before a record of a publication that was made.
    run = story.killed(story.run("silent"), Action.PRUNE_BUNDLES, 2)
    log = run.directory.log_path(1)
    *records, last = log.read_text().splitlines(keepends=True)
    assert "PublishBundle" in last
    log.write_text("".join(records))
    run.directory.log_path(2).touch()
    run.resume()
    story.keep(run)

    # Neither a bundle's directory can be made at first, nor an old bundle be removed later.
    begin, tries = save.BundleWriter.begin, iter([True, False, True, False, False])

    def begin_sometimes(*arguments: Any, **more: Any) -> save.BundleWriter:
        if next(tries, False):
            raise SaveError("no directory")
        return begin(*arguments, **more)

    def remove_nothing(*_: Any, **more: Any) -> tuple[Path, ...]:
        raise OSError("cannot be removed")

    monkeypatch.setattr(save.BundleWriter, "begin", begin_sometimes)
    monkeypatch.setattr(save, "prune", remove_nothing)
    run = story.run("disk")
    run.first(story.config)
    story.keep(run)

    starts = [log.starts for log in story.logs]
    assert starts == [1, 2, 2, 3, 5, 3, 1]
    assert_accepted(toolchain, story.logs)


@pytest.mark.tlc
def test_a_group_that_the_data_set_does_not_serve_is_refused(
    toolchain: Toolchain, ram_path: Path
) -> None:
    config = tiny_config()
    run = Run.create(ram_path / "run", config)
    run.first(config)
    log = run.directory.log_path(1)
    lines = log.read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if "LaunchGroup" in line)
    stranger = f"{prompt_ids(config)[0]}@7"
    group = msgspec.json.decode(lines[place])["args"]["group"]
    lines[place] = lines[place].replace(group, stranger)
    log.write_text("".join(lines))
    (found,) = validate(toolchain, SPEC, [read_run(run.directory)])
    assert found.refusal is not None
    assert found.refusal.where == f"incarnation-1.ndjson:{place + 1} LaunchGroup"
    assert found.refusal.groups == {"<<0, 0>>": "not of this run"}


@pytest.mark.tlc
def test_a_save_that_fails_in_its_window_says_so_as_the_window_ends(
    toolchain: Toolchain, ram_path: Path
) -> None:
    config = of("in_order")
    run = Run.create(ram_path / "run", config, trouble_of(config, broken_saves=frozenset({2})))
    run.first(config)
    log = read_run(run.directory)
    names = [place.split()[-1] for place in log.places]
    failed = names.index("FailSave")
    assert names[failed - 1] == "ReadLedger"
    lines = [int(place.split()[0].split(":")[1]) for place in log.places]
    assert lines == sorted(lines)
    assert_accepted(toolchain, [log])


def test_what_is_not_modelled_is_said(ram_path: Path) -> None:
    refused = {
        "a custom sampler": {
            "sampler": {"name": "custom", "path": "tests.support.custom_samplers:Split"}
        },
        r"checkpoint.rows = false": {"checkpoint": {"rows": False}},
    }
    for number, (what, changes) in enumerate(refused.items()):
        run = Run.create(ram_path / str(number), tiny_config(), Trouble())
        raw = msgspec.json.decode((run.root / "run.json").read_bytes())
        for name, value in changes.items():
            raw["config"][name] = {**raw["config"][name], **value} if number else value
        (run.root / "run.json").write_bytes(msgspec.json.encode(raw))
        run.directory.log_path(1).touch()
        with pytest.raises(ConformanceError, match=f"{what}; the specification does not"):
            read_run(run.directory)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"sampler": {"name": "in_order", "window": 2}}, r"sampler = .*window=2.*window=1"),
        ({"buffer": {"capacity": 9}}, r"BeginRun: .* capacity = 9, which was 4 when it began"),
        ({"buffer": {"spare_prompts": 2}}, r"BeginRun: .* spare_prompts = 2, which was 0"),
        ({"epochs": 3}, r"BeginRun: .* epochs = 3, which was 2 when it began"),
    ],
)
def test_bounds_that_a_resume_has_changed_are_not_modelled(
    ram_path: Path, change: dict[str, Any], what: str
) -> None:
    config = tiny_config(max_steps=2)
    run = Run.create(ram_path / "run", config)
    run.first(config)
    changed = tiny_config(**change)
    plan = run.plan(config=changed)
    run.resume(plan)
    with pytest.raises(ConformanceError, match=what):
        read_run(run.directory)


@pytest.mark.tlc
def test_a_step_budget_may_change_between_two_starts(toolchain: Toolchain, ram_path: Path) -> None:
    config = tiny_config(max_steps=2)
    run = Run.create(ram_path / "run", config)
    run.first(config)
    run.resume(run.plan(config=tiny_config(max_steps=3)))
    assert_accepted(toolchain, [read_run(run.directory)])


@pytest.mark.tlc
@pytest.mark.parametrize("first", ["narrow", "full"])
def test_each_start_may_make_its_cuts_in_its_own_way(
    toolchain: Toolchain, ram_path: Path, first: str
) -> None:
    ways = [first, "full" if first == "narrow" else "narrow", first]
    configs = [
        of("in_order", cut, max_steps=steps) for cut, steps in zip(ways, (1, 2, None), strict=True)
    ]
    run = Run.create(ram_path / "run", configs[0], trouble_of(configs[0]))
    run.first(configs[0])
    for config in configs[1:]:
        run.resume(run.plan(config=config))
    assert_accepted(toolchain, [read_run(run.directory)])


def test_a_run_that_never_started_has_nothing_to_validate(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", tiny_config())
    with pytest.raises(CutlockError, match="no event log"):
        read_run(run.directory)
