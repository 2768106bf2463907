"""What the audit says of whole, killed, failed and abandoned histories."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.audit import Audit, audit_run
from cutlock.errors import AuditError, BundleNotFoundError, DropBudgetError
from cutlock.events import EventLog
from cutlock.loader import epoch_order
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from tests.support.local_runs import Camera, Run, Trouble, prompt_ids, tiny_config

CONFIG = tiny_config(checkpoint={"every": 2, "keep": 3})
PROMPTS = prompt_ids(CONFIG)


def kill(run: Run, config: RunConfig, copies: Path, action: Action, count: int) -> Run:
    """The run as a kill at the count-th announcement of an action leaves it."""
    camera = Camera(run, copies, lambda number, one, before: (one, before) == (action, count - 1))
    run.first(config, camera)
    (killed,) = camera.kills
    return killed.run


def kill_again(run: Run, copies: Path, action: Action, count: int) -> Run:
    camera = Camera(run, copies, lambda number, one, before: (one, before) == (action, count - 1))
    run.resume(stops=camera)
    (killed,) = camera.kills
    return killed.run


def cut_log(run: Run, incarnation: int, keep: Callable[[list[str]], int]) -> None:
    """Leave only the first lines of a log, as many as `keep` says of their actions."""
    path = run.directory.log_path(incarnation)
    lines = path.read_bytes().splitlines(keepends=True)
    actions = [line.decode().split('"action":"')[1].split('"')[0] for line in lines]
    path.write_bytes(b"".join(lines[: keep(actions)]))


def fates_of(audit: Audit, fate: str) -> set[str]:
    return {key for key, one in audit.fates.items() if one == fate}


def test_a_run_that_nobody_killed_is_clean(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    run.first(CONFIG)
    audit = run.audit()
    assert audit.ok
    assert (audit.prompts, audit.trained_once, audit.unread, audit.pending) == (10, 10, 0, 0)
    assert (audit.restarts, audit.redone, audit.steps, audit.ended) == (0, 0, 6, "exhausted")
    assert audit.bundles == ("step_2", "step_4", "step_6")
    assert [(w.incarnation, w.step) for w in audit.exclusive_window_ms] == [
        (1, 0),
        (1, 2),
        (1, 4),
        (1, 6),
    ]
    for window in audit.exclusive_window_ms:
        assert min(window.drain, window.exclusive, window.rest) > 0


def test_a_run_can_be_audited_while_it_goes_on(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    seen: list[Audit] = []

    class Auditor:
        async def reach(self, action: Action, /, **where: object) -> None:
            seen.append(run.audit())

    run.first(CONFIG, Auditor())
    assert all(audit.ok and audit.ended is None for audit in seen)
    trained = [audit.trained_once for audit in seen]
    assert trained == sorted(trained)
    assert {*trained} == {0, 4, 7, 10}


def test_of_a_killed_run_counts_what_its_newest_bundle_continues(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    audit = kill(run, CONFIG, ram_path, Action.RESERVE_BATCH, 6).audit()
    assert audit.ok
    assert audit.ended is None
    assert audit.bundles[-1] == "step_2"
    assert (audit.steps, audit.trained_once) == (2, 4)
    assert audit.redone > 0
    assert audit.trained_once + audit.pending + audit.unread == audit.prompts


def test_a_run_killed_before_its_first_bundle_has_trained_nothing(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    audit = kill(run, CONFIG, ram_path, Action.PUBLISH_BUNDLE, 1).audit()
    assert audit.ok
    assert (audit.unread, audit.steps, audit.bundles) == (audit.prompts, 0, ())


def test_a_run_that_has_only_its_first_bundle_has_trained_nothing(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    audit = kill(run, CONFIG, ram_path, Action.REQUEST_CUT, 2).audit()
    assert audit.ok
    assert audit.bundles == ("step_0",)
    assert (audit.trained_once, audit.redone) == (0, 4)


def test_a_run_that_was_never_started_has_no_history(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    with pytest.raises(AuditError, match="no event log; nothing has been started"):
        run.audit()


def test_a_directory_without_a_run_is_refused(ram_path: Path) -> None:
    with pytest.raises(BundleNotFoundError, match=r"holds no run \(no run\.json\)"):
        audit_run(RunDirectory(ram_path))


@pytest.mark.parametrize(
    "last", [None, Action.BEGIN_RUN, Action.VERIFY_BUNDLE, Action.RESTORE_LEDGER]
)
def test_a_start_that_died_while_restoring_counts_and_changes_nothing(
    ram_path: Path, last: Action | None
) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.CLEAR_ROWS, 5)
    before = killed.audit()
    again = kill_again(killed, ram_path / "again", Action.RESTORE_CURSOR, 1)
    cut_log(again, 2, lambda actions: 0 if last is None else actions.index(last) + 1)
    after = again.audit()
    assert after.ok
    assert after.restarts == before.restarts + 1
    assert after.fates == before.fates
    again.resume()
    assert again.audit().ok
    assert again.audit().restarts == 2


def test_a_bundle_counts_that_was_published_and_not_recorded(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.PRUNE_BUNDLES, 3)
    published = Action.PUBLISH_BUNDLE
    cut_log(killed, 1, lambda actions: len(actions) - 1 - actions[::-1].index(published))
    audit = killed.audit()
    assert audit.ok
    assert (audit.bundles[-1], audit.steps) == ("step_4", 4)


def test_half_a_line_at_the_end_is_the_mark_of_a_dead_machine(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.TRAIN_STEP, 4)
    before = killed.audit()
    log = killed.directory.log_path(1)
    log.write_bytes(log.read_bytes()[:-7])
    assert killed.audit() == before


def test_a_resume_from_a_named_older_bundle_gives_the_newer_ones_up(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.TRAIN_STEP, 6)
    killed.resume(killed.plan("step_2"))
    audit = killed.audit()
    assert audit.ok
    assert audit.trained_once == audit.prompts
    # Steps 2 to 4 were trained before the kill, and again.
    assert audit.redone == 5
    assert (killed.root / "abandoned_step_4").is_dir()
    assert killed.trainer.trained.total() == audit.prompts


def test_a_named_older_bundle_counts_only_once_the_newer_ones_are_set_aside(
    ram_path: Path,
) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.TRAIN_STEP, 6)
    camera = Camera(
        killed,
        ram_path / "again",
        lambda number, action, before: (
            (action, before) in {(Action.RESTORE_CURSOR, 0), (Action.SYNC_WEIGHTS, 0)}
        ),
    )
    killed.resume(killed.plan("step_2"), camera)
    early, late = camera.kills
    for one, step in ((early, 4), (late, 2)):
        assert one.run.audit().ok
        assert one.run.audit().steps == step
        assert one.run.plan().snapshot.step == step
        one.run.resume()
        assert one.run.audit().ok
        assert one.run.audit().trained_once == 10


def test_the_bundle_that_a_restart_came_from_may_have_been_pruned_since(ram_path: Path) -> None:
    config = tiny_config(checkpoint={"every": 1, "keep": 1})
    run = Run.create(ram_path / "run", config)
    killed = kill(run, config, ram_path, Action.TRAIN_STEP, 3)
    killed.resume()
    audit = killed.audit()
    assert audit.ok
    assert (audit.bundles, audit.restarts) == (("step_6",), 1)


def test_a_resume_without_rows_loses_nothing(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.TRAIN_STEP, 4)
    plan = killed.plan(with_rows=False)
    assert plan.snapshot.ledger
    killed.resume(plan)
    assert killed.audit().ok
    assert killed.audit().trained_once == 10


def test_a_run_that_failed_counts_up_to_its_newest_bundle_and_says_why(ram_path: Path) -> None:
    config = tiny_config(failures={"attempts": 2})
    late = PROMPTS[epoch_order(len(PROMPTS), 0, config.seed)[-1]]
    run = Run.create(ram_path / "run", config, Trouble(failing=frozenset({late})))
    with pytest.raises(DropBudgetError):
        run.first(config)
    failed = run.audit()
    assert failed.ok
    assert failed.ended is not None
    assert failed.ended.startswith("DropBudgetError: group")
    more = tiny_config(failures={"attempts": 2, "drop_budget": 2})
    run.resume(run.plan(config=more))
    audit = run.audit()
    assert audit.ok
    assert fates_of(audit, "dropped") == {f"{late}@0", f"{late}@1"}
    assert {*audit.drop_reasons.values()} == {f"no rollout of {late}"}
    assert (audit.trained_once, audit.dropped) == (8, 2)


def test_a_run_with_a_step_budget_loses_what_it_has_not_read_no_more_than_what_it_owes(
    ram_path: Path,
) -> None:
    config = tiny_config(max_steps=3)
    run = Run.create(ram_path / "run", config)
    run.first(config)
    audit = run.audit()
    assert audit.ok
    assert (audit.ended, audit.steps, audit.lost) == ("max_steps", 3, 0)
    assert audit.unread + audit.pending == audit.prompts - audit.trained_once > 0
    run.resume(run.plan(config=tiny_config()))
    assert run.audit().trained_once == 10
    assert run.audit().ok


def test_the_last_start_says_how_many_epochs_are_owed(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    run.first(CONFIG)
    for epochs in (3, 4):
        run.resume(run.plan(config=tiny_config(epochs=epochs)))
        assert run.audit().ok
        assert run.audit().trained_once == run.audit().prompts == 5 * epochs


def test_epochs_that_are_not_owed_any_more_are_not_lost(ram_path: Path) -> None:
    config = tiny_config(epochs=3, checkpoint={"every": 1})
    run = Run.create(ram_path / "run", config)
    killed = kill(run, config, ram_path, Action.TRAIN_STEP, 5)
    plan = killed.plan(config=tiny_config(epochs=2))
    loader = plan.snapshot.loader
    assert (loader.epoch, loader.position) == (2, 2)
    killed.resume(plan)
    audit = killed.audit()
    assert audit.ok
    assert (audit.ended, audit.prompts, audit.trained_once, audit.unread) == (
        "exhausted",
        15,
        12,
        3,
    )


# What is missing on disk.


@pytest.fixture
def resumed(ram_path: Path) -> Run:
    """Killed once and run to its end."""
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.TRAIN_STEP, 4)
    killed.resume()
    assert killed.audit().ok
    return killed


def assert_named(audit: Audit, *texts: str) -> None:
    assert not audit.ok
    for text in texts:
        assert any(text in problem for problem in audit.problems), audit.problems


def test_a_missing_newest_bundle_is_named_with_the_record_of_its_publication(
    resumed: Run,
) -> None:
    shutil.rmtree(resumed.root / "step_6")
    assert_named(resumed.audit(), "PublishBundle: bundle step_6 of incarnation 2 is not resolvable")


@pytest.fixture
def torn(ram_path: Path) -> Run:
    """One bundle is kept; of its publication, and of the removal before, no log tells."""
    run = Run.create(ram_path / "run", tiny_config(checkpoint={"keep": 1}))
    run.first(tiny_config(checkpoint={"keep": 1}))
    cut_log(run, 1, lambda actions: len(actions) - actions[::-1].index(Action.PUBLISH_BUNDLE) - 1)
    assert [path.name for path in run.root.glob("step_*")] == ["step_6"]
    return run


def test_a_bundle_whose_publication_was_lost_with_the_end_of_the_log_counts(torn: Run) -> None:
    audit = torn.audit()
    assert audit.problems == ()
    assert audit.ok
    assert (audit.trained_once, audit.pending, audit.unread) == (audit.prompts, 0, 0)


def test_a_loss_is_not_hidden_by_the_loss_of_the_end_of_the_log(torn: Run) -> None:
    shutil.rmtree(torn.root / "step_6")
    assert_named(torn.audit(), "PublishBundle: bundle step_5 of incarnation 1 is not resolvable")


def test_a_broken_newest_bundle_is_named(resumed: Run) -> None:
    with (resumed.root / "step_6" / "policy" / "trainer.json").open("ab") as file:
        file.write(b"x")
    assert_named(resumed.audit(), "step_6: policy/trainer.json", "step_6 of incarnation 2")


def test_a_missing_log_is_named(resumed: Run) -> None:
    resumed.directory.log_path(1).unlink()
    with pytest.raises(
        AuditError, match=r"incarnation-2\.ndjson:2 VerifyBundle: continues from incarnation 1"
    ):
        resumed.audit()


def test_a_missing_newest_log_is_named_by_the_bundles_that_it_published(resumed: Run) -> None:
    resumed.directory.log_path(2).unlink()
    assert_named(resumed.audit(), "step_6: continues from incarnation 2, whose log is missing")


def test_a_missing_log_that_nothing_continues_is_named(ram_path: Path) -> None:
    run = Run.create(ram_path / "run", CONFIG)
    killed = kill(run, CONFIG, ram_path, Action.TRAIN_STEP, 4)
    again = kill_again(killed, ram_path / "again", Action.RESTORE_CURSOR, 1)
    again.resume()
    again.directory.log_path(2).unlink()
    assert_named(again.audit(), "the log of incarnation 2 is missing")


def test_a_log_that_is_shorter_than_a_cut_in_it_is_named(resumed: Run) -> None:
    cut_log(resumed, 1, lambda actions: actions.index(Action.OPEN_CUT) + 1)
    with pytest.raises(AuditError, match=r"VerifyBundle: continues after record \d+ of .* 1,"):
        resumed.audit()


# Histories told by hand: the faults that started this project.


Told = tuple[Action, dict[str, Any]]


def tell(run: Run, incarnation: int, *told: Told) -> None:
    log = EventLog(run.directory.log_path(incarnation), lambda: 0.0)
    begun = {
        "incarnation": incarnation,
        "sampler": "in_order",
        "window": 1,
        "prompts_per_step": 2,
        "group_size": 2,
        "epochs": 1,
        "max_steps": None,
        "capacity": 4,
        "spare_prompts": 0,
        "units": 2,
        "cut": "full",
    }
    log.record(Action.BEGIN_RUN, **begun)
    for action, args in told:
        log.record(action, **args)
    log.close()


def served(admission: int, position: int, groups: list[str]) -> list[Told]:
    return [
        (
            Action.RESERVE_BATCH,
            {"admission": admission, "epoch": 0, "position": position, "groups": groups},
        )
    ]


def admitted(admission: int, version: int, groups: list[str]) -> list[Told]:
    return [
        (Action.OPEN_GATE, {"admission": admission, "version": version}),
        (
            Action.COMMIT_ADMISSION,
            {
                "admission": admission,
                "cursor": admission,
                "stamp": admission,
                "start_weight": version,
                "groups": groups,
            },
        ),
    ]


def generated(version: int, groups: list[str]) -> list[Told]:
    told: list[Told] = []
    for group in groups:
        attempt = {"group": group, "attempt": 0}
        told += [(Action.LAUNCH_GROUP, attempt)]
        told += [(Action.BEGIN_COMMIT, {**attempt, "end_weight": version})]
        told += [(Action.PUT_ROWS, attempt), (Action.COMMIT_GROUP, attempt)]
    return told


def trained(step: int, groups: list[str]) -> list[Told]:
    named = {"step": step, "groups": groups}
    return [
        (Action.SELECT_GROUPS, named),
        (Action.WRITE_ADVANTAGES, {"step": step}),
        (Action.TRAIN_STEP, named),
        (Action.CLEAR_ROWS, named),
        (Action.RAISE_VERSION, {"version": step + 1}),
        (Action.SYNC_WEIGHTS, {"version": step + 1}),
    ]


def started(step: int) -> list[Told]:
    return [
        (Action.START_PUMPS, {"step": step, "version": step}),
        (Action.SYNC_WEIGHTS, {"version": step}),
    ]


def read(step: int, cursor: int, position: int, meanwhile: list[Told], **read: Any) -> list[Told]:
    """A save whose later reads come after something else has happened."""
    return [
        (Action.REQUEST_CUT, {"step": step}),
        (Action.OPEN_CUT, {"step": step}),
        (Action.READ_CURSOR, {"cursor": cursor}),
        (Action.READ_LOADER, {"epoch": 0, "position": position}),
        (Action.READ_SPARE_POOL, {"groups": []}),
        *meanwhile,
        (Action.READ_INDEX, {"groups": read["index"]}),
        (Action.READ_LEDGER, {"groups": read["ledger"]}),
        (Action.CLOSE_CUT, {"step": step}),
    ]


def restored(records: int, step: int, cursor: int, **owners: list[str]) -> list[Told]:
    rows = 2 * len(owners["index"])
    return [
        (
            Action.VERIFY_BUNDLE,
            {"bundle": f"step_{step}", "step": step, "incarnation": 1, "log_records": records},
        ),
        (Action.LOAD_PLANE, {"rows": rows}),
        (Action.CONNECT_PLANE, {}),
        (Action.RESTORE_INDEX, {"groups": owners["index"]}),
        (Action.RESTORE_SPARE_POOL, {"groups": []}),
        (Action.RESTORE_LEDGER, {"groups": owners["ledger"]}),
        (Action.RESTORE_CURSOR, {"cursor": cursor}),
        *started(step),
    ]


ENDED: Told = (Action.END_RUN, {"reason": "exhausted"})


@pytest.fixture
def story(ram_path: Path) -> tuple[Run, list[str]]:
    """A run of three batches of two, and its groups."""
    config = tiny_config(epochs=1, task={"prompts": 6, "length": 2, "vocabulary": 3})
    run = Run.create(ram_path / "run", config)
    return run, [f"{prompt}@0" for prompt in run.directory.facts().prompts]


def test_a_batch_that_a_stale_cursor_makes_a_duplicate_is_lost_and_named(
    story: tuple[Run, list[str]],
) -> None:
    run, groups = story
    first, second, third = groups[:2], groups[2:4], groups[4:]
    meanwhile = [*served(1, 4, second), *admitted(1, 1, second), *generated(1, second)]
    past: list[Told] = [
        *started(0),
        *served(0, 2, first),
        *admitted(0, 0, first),
        *generated(0, first),
        *trained(0, first),
    ]
    saved = read(1, 0, 2, meanwhile, index=second, ledger=[])
    tell(run, 1, *past, *saved)
    # The cursor of the bundle is 0, so the third batch is stamped 1 like the second, which
    # is there: it is dropped without a word, and step 1 trains the second.
    tell(
        run,
        2,
        *restored(len(past) + 3, 1, 0, index=second, ledger=[]),
        *served(1, 6, third),
        *trained(1, second),
        ENDED,
    )
    audit = run.audit()
    assert not audit.ok
    assert fates_of(audit, "lost") == {*third}
    assert (audit.lost, audit.trained_twice) == (2, 0)
    assert_named(
        audit,
        "incarnation-1.ndjson:26 ReserveBatch: moves something while the cut of",
        f"{third[0]} is reserved at the end of a run that served all",
    )


def test_a_group_that_a_late_ledger_drop_leaves_owned_is_trained_twice_and_named(
    story: tuple[Run, list[str]],
) -> None:
    run, groups = story
    first, rest = groups[:2], groups[2:]
    past: list[Told] = [
        *started(0),
        *served(0, 2, first),
        *admitted(0, 0, first),
        *generated(0, first),
        *trained(0, first),
    ]
    # The record of first[0] outlives its commit, its training, and so gets into the bundle.
    saved = read(1, 0, 2, [], index=[], ledger=first[:1])
    tell(run, 1, *past, *saved)
    tell(
        run,
        2,
        *restored(len(past) + 3, 1, 0, index=[], ledger=first[:1]),
        *served(1, 4, rest[:2]),
        *admitted(1, 1, rest[:2]),
        *generated(1, [first[0], *rest[:2]]),
        *trained(1, [first[0], *rest[:2]]),
        *served(2, 6, rest[2:]),
        *admitted(2, 2, rest[2:]),
        *generated(2, rest[2:]),
        *trained(2, rest[2:]),
        ENDED,
    )
    audit = run.audit()
    assert not audit.ok
    assert (audit.trained_twice, audit.lost) == (1, 0)
    assert audit.trained_once == 5
    assert_named(
        audit,
        f"RestoreCursor: {first[0]} was trained at the cut and was restored as admitted",
        "ReadLedger: the cut reads 1 groups as admitted or reserved and there are 0",
    )


def test_a_history_told_by_hand_that_is_right_has_only_its_bundles_missing(
    story: tuple[Run, list[str]],
) -> None:
    run, groups = story
    told = started(0)
    for batch in range(3):
        pair = groups[2 * batch : 2 * batch + 2]
        told += [*served(batch, 2 * batch + 2, pair), *admitted(batch, batch, pair)]
        told += [*generated(batch, pair), *trained(batch, pair)]
    tell(run, 1, *told, ENDED)
    audit = run.audit()
    assert (audit.lost, audit.trained_twice, audit.trained_once) == (0, 0, 6)
    assert len(audit.problems) == 3
    assert all("in no bundle though the run ended" in problem for problem in audit.problems)
