"""Event logs as stories: of whole runs, of one start, of a log alone, torn, and tampered with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from cutlock.audit import audit_run
from cutlock.audit.bundles import read_cut
from cutlock.conformance.validation.logs import Refusal, Validated, Validation
from cutlock.errors import ConfigError
from cutlock.report.pages.data import Chapter, Step, Story
from cutlock.run.directory import RunDirectory
from cutlock.show.recognise import collect
from tests.support.kept_runs import FORGERIES, KEPT
from tests.support.local_runs import Run

TRACES = Path(__file__).parents[2] / "traces"


def story(path: Path, *, steps: bool = True) -> Story:
    found = collect(path, {}, steps=steps).data
    assert isinstance(found, Story)
    return found


def steps_of(told: Story) -> list[Step]:
    return [step for chapter in told.chapters for step in chapter.steps]


def last_states(parts: Sequence[Chapter], strip: str = "live") -> dict[str, str]:
    """State of each prompt at the end of the last part in which it is drawn."""
    found = {}
    for chapter in parts:
        for track in chapter.prompts:
            spans = getattr(track, strip)
            if spans and spans[-1].last == chapter.steps[-1].number:
                found[track.name] = spans[-1].state
    return found


@pytest.mark.parametrize("name", KEPT)
def test_a_run_is_told_record_by_record_with_its_kill(name: str) -> None:
    root = TRACES / "runs" / name
    told = steps_of(story(root))
    records = [
        json.loads(line)["action"]
        for path in RunDirectory(root).logs().values()
        for line in path.read_text().splitlines()
    ]
    assert [step.action for step in told if step.action != "Crash"] == records
    assert [step.action for step in told].count("Crash") == 1
    assert [step.number for step in told] == list(range(1, len(records) + 2))


@pytest.mark.parametrize("name", KEPT)
def test_a_run_in_order_breaks_nothing_and_ends_with_the_fates_of_the_audit(name: str) -> None:
    root = TRACES / "runs" / name
    told = story(root)
    assert not told.breaches
    fates = audit_run(RunDirectory(root)).fates
    for prompt, state in last_states(told.chapters).items():
        assert fates[prompt] == state


@pytest.mark.parametrize("name", FORGERIES)
def test_a_rejected_run_is_marked_at_the_record_that_does_not_fit(name: str) -> None:
    root = TRACES / "rejected" / name
    expected = json.loads((root / "expected.json").read_text())
    told = story(root, steps=False)
    first = told.breaches[0]
    (step,) = [step for step in steps_of(told) if step.number == first.step]
    assert step.where == expected["where"]
    assert step.broken
    assert expected["what"] in told.title
    assert first.check.startswith("cutlock validate")
    assert any("cutlock audit" in breach.check for breach in told.breaches), "as well"


def test_the_strip_of_the_disk_is_what_the_bundle_holds(fresh_run: Run) -> None:
    bundle = sorted(fresh_run.root.glob("step_*"))[-1]
    saved = read_cut(bundle)
    told = story(fresh_run.root)
    held = last_states(told.chapters[-1:], "disk")
    expected = {entry.group_id: "buffer" for entry in saved.cut.index}
    expected |= {record.group_id: str(record.phase).lower() for record in saved.cut.ledger}
    expected |= {spare.key: "spare pool" for spare in saved.cut.spare_pool}
    for prompt, state in held.items():
        assert expected.get(prompt, "trained") == state
    (version,) = [t for t in told.chapters[-1].counters if t.name == "disk: step"]
    assert version.live[-1].state == str(saved.cut.step)


def test_a_resumed_start_begins_with_the_bundle_of_the_start_before() -> None:
    root = TRACES / "runs" / "narrow"
    told = story(root / "events" / "incarnation-2.ndjson")
    first = told.chapters[0]
    verify = next(step.number for step in first.steps if step.action == "VerifyBundle")
    (disk,) = [track for track in first.counters if track.name == "disk: step"]
    assert disk.live[0].first <= verify
    assert disk.live[0].state == "2"


def test_one_log_of_a_run_is_that_start_alone_numbered_by_its_lines() -> None:
    root = TRACES / "runs" / "in_order"
    path = root / "events" / "incarnation-2.ndjson"
    told = steps_of(story(path))
    assert [step.where for step in told] == [
        f"incarnation-2.ndjson:{step.number} {step.action}" for step in told
    ]
    assert len(told) == len(path.read_text().splitlines())


def test_a_log_alone_is_told_and_not_checked(tmp_path: Path) -> None:
    source = TRACES / "rejected" / "cursor_read_early" / "events" / "incarnation-2.ndjson"
    path = tmp_path / "somewhere.log"
    shutil.copy(source, path)
    told = story(path)
    assert not told.breaches
    assert any("nothing was checked" in note for note in told.notes)
    assert len(steps_of(told)) == len(source.read_text().splitlines())


def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(TRACES / "runs" / "in_order", root)
    path = root / "events" / "incarnation-2.ndjson"
    whole = len(path.read_text().splitlines())
    path.write_bytes(path.read_bytes()[:-10])
    told = story(path)
    assert len(steps_of(told)) == whole - 1
    assert any("torn" in note for note in told.notes)


def test_a_long_log_is_told_in_parts_in_which_only_moving_prompts_are_drawn() -> None:
    told = story(TRACES / "runs" / "ready_first")
    assert len(told.chapters) > 1
    assert all(len(chapter.steps) <= 160 for chapter in told.chapters)
    assert any(chapter.resting for chapter in told.chapters)
    for chapter in told.chapters:
        assert chapter.title.startswith("Start ")


def test_while_a_restart_goes_on_what_has_not_come_back_has_no_owner_yet() -> None:
    told = story(TRACES / "runs" / "in_order" / "events" / "incarnation-2.ndjson")
    first = told.chapters[0]
    restored = next(step for step in first.steps if step.action == "RestoreLedger")
    names = {name for fact in restored.arguments for name in fact.value.split(", ")}
    for track in first.prompts:
        if track.name in names:
            assert track.live[0].first == restored.number


def validation(tmp_path: Path, root: Path, refusal: Refusal | None) -> Path:
    """What `cutlock validate --json` writes of a run."""
    run = Validated(
        run=str(root),
        ok=refusal is None,
        events=100,
        accepted=10,
        starts=2,
        seconds=1.0,
        refusal=refusal,
    )
    found = Validation(ok=run.ok, runs=(run,), spec="spec", java="21", jar="0" * 64)
    path = tmp_path / "validation.json"
    path.write_bytes(msgspec.json.encode(found))
    return path


def test_a_refusal_by_the_specification_is_marked_with_its_event_and_state(tmp_path: Path) -> None:
    root = TRACES / "runs" / "in_order"
    refusal = Refusal(
        where="incarnation-2.ndjson:9 StartPumps",
        event="[name |-> 'StartPumps']",
        broken="NewDiskCursor",
        groups={"<<1, 1>>": "reverse-10@0"},
        state={"cursor": "3"},
    )
    told = collect(root, {}, validation=validation(tmp_path, root, refusal)).data
    assert isinstance(told, Story)
    (breach,) = told.breaches
    (step,) = [step for step in steps_of(told) if step.broken]
    assert (step.number, step.where) == (breach.step, refusal.where)
    assert breach.check == "cutlock validate"
    assert "<<1, 1>> is reverse-10@0" in breach.contradictions[0]
    assert breach.contradictions[1] == "the state after it: cursor = 3"
    assert told.title.endswith("does not fit: NewDiskCursor does not hold after it")


def test_a_run_that_the_specification_accepts_says_so(tmp_path: Path) -> None:
    root = TRACES / "runs" / "in_order"
    told = collect(root, {}, validation=validation(tmp_path, root, None)).data
    assert isinstance(told, Story)
    assert not told.breaches
    assert any("TLC has accepted" in note for note in told.notes)


def test_a_validation_of_something_else_is_refused(tmp_path: Path) -> None:
    root = TRACES / "runs" / "in_order"
    other = validation(tmp_path, TRACES / "runs" / "narrow", None)
    with pytest.raises(ConfigError, match=r"says nothing of .*in_order, but of .*narrow"):
        collect(root, {}, validation=other)
    with pytest.raises(ConfigError, match="no result of `cutlock validate --json`"):
        collect(root, {}, validation=root / "run.json")
    trace = TRACES / "counterexamples" / "cursor_early.itf.json"
    with pytest.raises(ConfigError, match="is a trace"):
        collect(trace, {}, validation=other)
