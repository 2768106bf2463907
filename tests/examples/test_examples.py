"""The examples as a person runs them: printed by the installed wheel, in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.installed import Installed


def example(installed: Installed, name: str, into: Path) -> Path:
    path = into / name
    path.write_text(installed.cutlock("example", name, cwd=into))
    return path


def test_a_plain_loop_with_its_own_store_is_killed_twice_and_loses_nothing(
    installed: Installed, tmp_path: Path
) -> None:
    example(installed, "own_store.py", tmp_path)
    example(installed, "plain_loop.py", tmp_path)
    said = installed.script("plain_loop.py", "runs", cwd=tmp_path)
    assert said.splitlines() == [
        "start: killed after step 5",
        "start: killed in the save of step 8",
        "start: finished",
        "48 prompts: 48 trained once, 0 twice",
        "lost: 0, restarts: 2, audit clean: True",
        "trained the same as a run that was never killed: True",
        "go on with: cutlock audit runs/killed; cutlock validate runs/killed",
    ]
    assert "nothing lost, nothing repeated" in installed.cutlock(
        "audit", "runs/killed", cwd=tmp_path
    )


@pytest.mark.tlc
def test_the_log_of_a_loop_of_ones_own_is_a_behaviour_of_the_model(
    installed: Installed, tmp_path: Path
) -> None:
    example(installed, "migrate_after.py", tmp_path)
    installed.script("migrate_after.py", "run", cwd=tmp_path)
    assert "accepted" in installed.cutlock("validate", "run", cwd=tmp_path)


def test_a_loop_that_saves_its_parts_apart_loses_four_prompts_and_with_one_cut_none(
    installed: Installed, tmp_path: Path
) -> None:
    for name, found in (
        ("before", "trained: 36, lost: 4: prompt-32, prompt-33, prompt-34, prompt-35"),
        ("after", "trained: 40, lost: 0: none"),
    ):
        path = example(installed, f"migrate_{name}.py", tmp_path)
        said = installed.script(path.name, cwd=tmp_path).splitlines()
        assert said[:2] == ["40 prompts, killed after the save of step 7, resumed", found]


@pytest.mark.real
def test_own_workers_and_an_own_sampler_run_on_ray_and_are_resumed(
    installed: Installed, tmp_path: Path
) -> None:
    example(installed, "ray_controller.py", tmp_path)
    said = installed.script("ray_controller.py", "run", cwd=tmp_path).splitlines()
    assert said[0] == "start: killed, in step 10 or a little later"
    assert said[1].startswith("start: exhausted")
    assert said[2:4] == [
        "160 prompts: 160 trained once, 0 twice",
        "lost: 0, restarts: 1, audit clean: True",
    ]
    assert len(said) == 6
    assert "nothing lost, nothing repeated" in installed.cutlock("audit", "run", cwd=tmp_path)
