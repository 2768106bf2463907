"""The runs that are kept in `traces/`, and how they are made: `python -m tests.support.kept_runs`.

`traces/runs/NAME` has the identity and the logs of a small run that was killed and resumed.
`traces/rejected/NAME` has such a run with one thing told otherwise, and in `expected.json`
the line at which a validation has to refuse it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlock.alphabet import Action
from cutlock.run.directory import RunDirectory
from tests.support.local_runs import Camera, Run, Trouble, prompt_ids, tiny_config

TRACES = Path(__file__).parents[2] / "traces"

Record = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """A small run with trouble, killed at the n-th announcement of an action and resumed."""

    changes: dict[str, Any]
    kill: tuple[Action, int]
    failing: int = 0
    """Prompts whose rollouts always fail, in the order of the data set, from the second on."""
    slow: int = 0
    """Prompts whose rollouts take long, from the first on."""
    broken_puts: frozenset[int] = frozenset()
    broken_saves: frozenset[int] = frozenset()
    resumed: str | None = None
    """How cuts are made after the kill, if in another way than before."""

    def make(self, root: Path) -> Run:
        """The run, in a new directory below `root`."""
        config = tiny_config(**self.changes)
        prompts = prompt_ids(config)
        trouble = Trouble(
            failing=frozenset(prompts[1 : 1 + self.failing]),
            slow=frozenset(prompts[: self.slow]),
            broken_puts=self.broken_puts,
            broken_saves=self.broken_saves,
        )
        run = Run.create(root / "run", config, trouble)
        kill, number = self.kill
        camera = Camera(
            run, root / "killed", lambda _, action, before: (action, before + 1) == (kill, number)
        )
        run.first(config, camera)
        (killed,) = camera.kills
        plan = None
        if self.resumed is not None:
            checkpoint = {**self.changes["checkpoint"], "cut": self.resumed}
            plan = killed.run.plan(config=tiny_config(**{**self.changes, "checkpoint": checkpoint}))
        killed.run.resume(plan)
        assert killed.run.audit().ok
        return killed.run


KEPT = {
    "in_order": Kept(
        {
            "epochs": 2,
            "task": {"prompts": 3},
            "checkpoint": {"every": 2, "keep": 2},
            "buffer": {"spare_prompts": 1},
            "failures": {"attempts": 2, "drop_budget": 6},
        },
        (Action.CLEAR_ROWS, 2),
        failing=1,
        broken_puts=frozenset({2}),
    ),
    "ready_first": Kept(
        {
            "sampler": {"name": "ready_first"},
            "checkpoint": {"every": 2},
            "buffer": {"spare_prompts": 2},
            "failures": {"attempts": 2, "drop_budget": 6},
        },
        (Action.PUT_ROWS, 7),
        failing=1,
        broken_saves=frozenset({2}),
    ),
    "narrow": Kept(
        {
            "epochs": 2,
            "checkpoint": {"every": 1, "keep": 9, "cut": "narrow"},
            "task": {"prompts": 4},
        },
        (Action.WRITE_MANIFEST, 3),
        failing=0,
        broken_puts=frozenset({3}),
        broken_saves=frozenset({2}),
    ),
    "cut_changed": Kept(
        {
            "epochs": 2,
            "checkpoint": {"every": 1, "cut": "narrow"},
            "task": {"prompts": 4},
        },
        (Action.TRAIN_STEP, 2),
        broken_saves=frozenset({2}),
        resumed="full",
    ),
    "weight_fifo": Kept(
        {"sampler": {"name": "weight_fifo"}, "task": {"prompts": 4}},
        (Action.SAVE_PLANE, 3),
        broken_puts=frozenset({3}),
    ),
    "windowed": Kept(
        {
            "epochs": 2,
            "sampler": {"name": "windowed", "window": 0},
            "checkpoint": {"every": 2, "keep": 9},
            "buffer": {"capacity": 6},
            "task": {"prompts": 4},
        },
        (Action.RAISE_VERSION, 1),
        slow=1,
    ),
}
"""By sampler, or by what else is special."""


class Logs:
    """The logs of a run as records that can be changed."""

    def __init__(self, directory: RunDirectory) -> None:
        self.records: dict[int, list[Record]] = {
            incarnation: [json.loads(line) for line in path.read_text().splitlines()]
            for incarnation, path in directory.logs().items()
        }

    def find(self, action: Action, number: int, incarnation: int = 1) -> int:
        """Place of the n-th record of the action, from 1; from the end if below 0."""
        places = [i for i, r in enumerate(self.records[incarnation]) if r["action"] == action]
        return places[number - 1 if number > 0 else number]

    def args(self, action: Action, number: int, incarnation: int = 1) -> Record:
        """Arguments of that record."""
        found: Record = self.records[incarnation][self.find(action, number, incarnation)]["args"]
        return found

    def write(self, directory: RunDirectory) -> None:
        """Write them, numbered anew, into a run."""
        for incarnation, records in self.records.items():
            lines = [json.dumps({**r, "seq": i}) + "\n" for i, r in enumerate(records)]
            directory.log_path(incarnation).write_text("".join(lines))


@dataclass(frozen=True)
class Forgery:
    """A kept run, one thing of which is told otherwise."""

    run: str
    what: str
    forge: Callable[[Logs], tuple[int, int]]
    """Changes the logs; returns the incarnation and the place that must be refused."""


def _admitted_twice(logs: Logs) -> tuple[int, int]:
    place = logs.find(Action.COMMIT_ADMISSION, 1)
    logs.records[1].insert(place + 1, logs.records[1][place])
    return 1, place + 1


def _cursor_read_early(logs: Logs) -> tuple[int, int]:
    logs.args(Action.READ_CURSOR, 2)["cursor"] -= 1
    return 1, logs.find(Action.READ_CURSOR, 2)


def _committed_in_the_window(logs: Logs) -> tuple[int, int]:
    records, place = logs.records[1], logs.find(Action.READ_INDEX, 2)
    commit = max(i for i in range(place) if records[i]["action"] == Action.COMMIT_GROUP)
    records.insert(place - 1, records.pop(commit))
    return 1, logs.find(Action.OPEN_CUT, 2)


def _index_reads_less(logs: Logs) -> tuple[int, int]:
    number = next(n for n in (1, 2, 3, 4) if logs.args(Action.READ_INDEX, n)["groups"])
    del logs.args(Action.READ_INDEX, number)["groups"][0]
    return 1, logs.find(Action.READ_INDEX, number)


def _rows_cleared_by_nobody(logs: Logs) -> tuple[int, int]:
    place = logs.find(Action.CLEAR_ROWS, 1)
    del logs.records[1][place]
    following = {Action.RAISE_VERSION}
    return 1, next(
        i for i in range(place, len(logs.records[1])) if logs.records[1][i]["action"] in following
    )


def _trained_short(logs: Logs) -> tuple[int, int]:
    groups = logs.args(Action.SELECT_GROUPS, 1)["groups"]
    logs.args(Action.SELECT_GROUPS, 1)["groups"] = groups[:1]
    return 1, logs.find(Action.SELECT_GROUPS, 1)


def _restored_ledger_forgets(logs: Logs) -> tuple[int, int]:
    del logs.args(Action.RESTORE_LEDGER, 1, 2)["groups"][0]
    return 2, logs.find(Action.RESTORE_LEDGER, 1, 2)


def _fresh_rollout_aborted(logs: Logs) -> tuple[int, int]:
    """The watchdog aborts a rollout before its version is past."""
    records, abort = logs.records[2], logs.find(Action.ABORT_STALE, 1, 2)
    raised = max(i for i in range(abort) if records[i]["action"] == Action.RAISE_VERSION)
    records.insert(raised, records.pop(abort))
    return 2, raised


def _cut_in_the_other_way(logs: Logs) -> tuple[int, int]:
    logs.args(Action.BEGIN_RUN, 1, 2)["cut"] = "narrow"
    return 2, logs.find(Action.OPEN_CUT, 1, 2)


FORGERIES = {
    "admitted_twice": Forgery("in_order", "a batch is admitted again", _admitted_twice),
    "committed_in_the_window": Forgery(
        "weight_fifo", "a commit ends while the cut reads", _committed_in_the_window
    ),
    "cut_in_the_other_way": Forgery(
        "cut_changed", "a start that opens windows says that it cuts narrow", _cut_in_the_other_way
    ),
    "cursor_read_early": Forgery(
        "ready_first", "the saved cursor is one behind", _cursor_read_early
    ),
    "fresh_rollout_aborted": Forgery(
        "windowed", "a rollout is aborted before it is stale", _fresh_rollout_aborted
    ),
    "index_reads_less": Forgery(
        "weight_fifo", "a finished group is missing in the saved index", _index_reads_less
    ),
    "restored_ledger_forgets": Forgery(
        "in_order", "the restored ledger lacks a group of the bundle", _restored_ledger_forgets
    ),
    "rows_cleared_by_nobody": Forgery(
        "weight_fifo", "the version rises before the rows of the step go", _rows_cleared_by_nobody
    ),
    "trained_short": Forgery(
        "ready_first", "a step takes fewer groups than it needs", _trained_short
    ),
}


def keep(run: RunDirectory, root: Path, name: str) -> RunDirectory:
    """Write what is kept of a run: its identity, under a name of ours, and its logs."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "events").mkdir(parents=True)
    facts = json.loads((run.root / "run.json").read_text())
    (root / "run.json").write_text(json.dumps({**facts, "run_id": name}, indent=1) + "\n")
    for incarnation, log in run.logs().items():
        shutil.copyfile(log, root / "events" / f"incarnation-{incarnation}.ndjson")
    return RunDirectory(root)


def write(traces: Path = TRACES) -> None:
    """Make all of them anew."""
    for name, kept in KEPT.items():
        with tempfile.TemporaryDirectory() as work:
            keep(kept.make(Path(work)).directory, traces / "runs" / name, name)
    for name, forgery in FORGERIES.items():
        logs = Logs(RunDirectory(traces / "runs" / forgery.run))
        incarnation, place = forgery.forge(logs)
        action = logs.records[incarnation][place]["action"]
        root = traces / "rejected" / name
        directory = keep(RunDirectory(traces / "runs" / forgery.run), root, forgery.run)
        logs.write(directory)
        expected = {
            "run": forgery.run,
            "what": forgery.what,
            "where": f"incarnation-{incarnation}.ndjson:{place + 1} {action}",
        }
        (root / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    write()
