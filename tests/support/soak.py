"""Lives: a run is killed at random, resumed, and killed again, until it comes to its end.

Everything is drawn from the seed: the configuration, what goes wrong in it, each point of
death, and what the disk loses by it. To see one life again: `python -m tests.support.soak SEED`.
"""

from __future__ import annotations

import copy
import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutlock.errors import BundleNotFoundError
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from tests.support.crash_points import Disk
from tests.support.crash_runs import RUN, Crash, Recording, Situation, crashes, record
from tests.support.local_runs import Run, Trouble, prompt_ids, tiny_config
from tests.support.power_loss import KILL, LOSSES, Loss, image, materialise

DEATHS = 12
"""Deaths of one life at the most; then it is let go on to its end."""


@dataclass
class Life:
    """What happened in one life."""

    seed: int
    deaths: list[str] = field(default_factory=list)
    """Each point of death, with what the disk lost."""
    begun_again: int = 0
    """Starts over, because nothing was published yet."""
    prompts: int = 0


def live(seed: int, work: Path) -> Life:
    """Bring one run to its end, whatever happens to it, and look at all it leaves behind.

    Args:
        work: an empty directory.

    Raises:
        AssertionError: a prompt was lost or trained twice, a resume was refused, or the account
            is wrong; with the seed and the deaths so far.
    """
    life = Life(seed)
    try:
        _live(random.Random(seed), life, work)
    except Exception as error:
        deaths = "; ".join(life.deaths) or "none"
        raise AssertionError(f"seed {seed}, deaths: {deaths}: {error!r}") from error
    return life


def _live(chance: random.Random, life: Life, work: Path) -> None:
    config = _draw_config(chance)
    trouble = _draw_trouble(chance, config)
    base = _next(work, life)
    recording = record(Situation("a new run", config, new=True, trouble=trouble), base)
    undisturbed = recording.steps
    deaths = chance.randint(1, DEATHS)
    while len(life.deaths) < deaths:
        crash, loss = _draw_death(chance, recording)
        life.deaths.append(f"{crash} ({loss})")
        base = _next(work, life)
        again = _start_again(crash, loss, base, config, trouble)
        if again is None:
            break
        life.begun_again += again.situation.new
        recording = again
    _look_at_the_end(Run(RunDirectory(base / RUN)), recording, undisturbed, trouble, life)


def _next(work: Path, life: Life) -> Path:
    base = work / f"start-{len(life.deaths)}"
    base.mkdir()
    before = work / f"start-{len(life.deaths) - 2}"
    if before.is_dir():
        shutil.rmtree(before)
    return base


def _start_again(
    crash: Crash, loss: Loss, base: Path, config: RunConfig, trouble: Trouble
) -> Recording | None:
    """The next start after a death; None if the run had come to its end."""
    disk: Disk | None = copy.deepcopy(crash.disk) if loss == KILL else None
    base.rmdir()
    materialise(image(crash.disk.root, loss), base)
    run = Run(RunDirectory(base / RUN))
    try:
        plan = run.plan()
    except BundleNotFoundError:
        # As a user would, who finds nothing to resume.
        assert not crash.promised, "a published bundle is gone"
        shutil.rmtree(base)
        base.mkdir()
        return record(Situation("a new run", config, new=True, trouble=trouble), base)
    left = run.audit()
    assert left.problems == (), left.problems
    assert (left.lost, left.trained_twice) == (0, 0), left
    if plan.finished:
        return None
    later = Trouble(failing=trouble.failing, slow=trouble.slow, broken_puts=trouble.broken_puts)
    return record(Situation("a resume", config, trouble=later), base, disk, crash.promised)


def _look_at_the_end(
    run: Run,
    last: Recording,
    undisturbed: list[tuple[int, list[str]]],
    trouble: Trouble,
    life: Life,
) -> None:
    audit = run.audit()
    assert audit.problems == (), audit.problems
    assert audit.ok, audit
    assert (audit.lost, audit.trained_twice) == (0, 0), audit
    assert audit.trained_once + audit.dropped == audit.prompts, audit
    trained = _trained(last.steps)
    assert max(trained.values(), default=0) <= 1, trained
    if not trouble.failing and not audit.dropped:
        assert trained == _trained(undisturbed), (trained, undisturbed)
    life.prompts = audit.prompts


def _trained(steps: list[tuple[int, list[str]]]) -> Counter[str]:
    return Counter(group for _, groups in steps for group in groups)


def _draw_death(chance: random.Random, recording: Recording) -> tuple[Crash, Loss]:
    """An early point more often than a late one, so that a life has many."""
    last = len(recording.moments)
    wanted = min(chance.randint(1, last), chance.randint(1, last))
    loss = KILL if chance.random() < 0.5 else chance.choice(LOSSES)
    return next(crash for crash in crashes(recording) if crash.number == wanted), loss


def _draw_config(chance: random.Random) -> RunConfig:
    sampler: dict[str, Any] = {
        "name": chance.choice(["in_order", "ready_first", "weight_fifo", "windowed"])
    }
    sampler["window"] = chance.choice([0, 1, 2])
    return tiny_config(
        epochs=chance.choice([1, 2]),
        sampler=sampler,
        seed=chance.randint(0, 9),
        buffer={"spare_prompts": chance.choice([0, 0, 2])},
        checkpoint={
            "every": chance.choice([1, 1, 2, 3]),
            "keep": chance.choice([1, 2, 3]),
            "rows": chance.random() < 0.8,
            "cut": chance.choice(["narrow", "narrow", "full"]),
        },
        failures={"attempts": 2, "drop_budget": 100},
        task={"prompts": chance.choice([3, 4, 6])},
    )


def _draw_trouble(chance: random.Random, config: RunConfig) -> Trouble:
    prompts = prompt_ids(config)
    return Trouble(
        failing=frozenset(chance.sample(prompts, chance.choice([0, 0, 1]))),
        slow=frozenset(chance.sample(prompts, chance.choice([0, 1]))),
        broken_puts=frozenset(chance.sample(range(1, 9), chance.choice([0, 1]))),
        broken_saves=frozenset(chance.sample(range(1, 4), chance.choice([0, 0, 1]))),
    )


def main() -> None:
    """Live the lives of the seeds on the command line."""
    for seed in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as work:
            life = live(seed, Path(work))
        print(f"seed {seed}: {life.prompts} prompts, {len(life.deaths)} deaths")
        print(*(f"  {death}" for death in life.deaths), sep="\n")


if __name__ == "__main__":
    main()
