"""Every kept counterexample as a story: the broken promise, the steps, and what they change."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import pytest

from cutlock.report.pages.data import Chapter, Span, Story
from cutlock.show.promises import PROMISES, contradictions
from cutlock.show.spec_state import disk_owners, live_owners, name_of, prompts_of
from cutlock.show.traces import story_of_trace
from cutlock.tlc.itf import Counterexample, from_itf

TRACES = Path(__file__).parents[2] / "traces"
KEPT = sorted((TRACES / "counterexamples").glob("*.itf.json"))
WALKS = sorted((TRACES / "regressions").glob("*.itf.json"))
PROTOCOL = [path for path in (*KEPT, *WALKS) if not path.name.startswith("barrier")]
"""All but those of the barrier alone, which knows no prompts."""
ALWAYS = ("OneOwner", "DiskOneOwner", "DiskCursor", "DiskStamps", "OneAdmission", "NoTwice")
"""Checks whose contradictions can be asked for in good states, too."""
ON_THE_WAY = {
    "digest_binds_too_little": {"OneOwner", "DiskCursor", "DiskOneOwner"},
    "late_forget": {"OneOwner", "DiskOneOwner"},
    "late_forget_not_subtracted_on_save": {"OneOwner"},
    "late_forget_on_disk": {"OneOwner"},
    "ledger_early_at_the_end": {"DiskOneOwner"},
    "story_cursor_early": {"DiskCursor"},
}
"""What a behaviour breaks before its end; its model does not check these."""


@functools.cache
def read(path: Path) -> Counterexample:
    return from_itf(path.read_bytes())


@functools.cache
def story(path: Path) -> Story:
    return story_of_trace(read(path), path.name)


def named(path: Path) -> str:
    return path.name.removesuffix(".itf.json")


def state_at(spans: Sequence[Span], number: int) -> str:
    (found,) = [span.state for span in spans if span.first <= number <= span.last] or [""]
    return found


def rows(chapter: Chapter) -> set[str]:
    return {track.name for track in (*chapter.prompts, *chapter.counters)}


@pytest.mark.parametrize("path", KEPT, ids=named)
def test_a_counterexample_says_which_promise_breaks_where_and_what_contradicts(path: Path) -> None:
    example, told = read(path), story(path)
    (breach,) = told.breaches
    assert breach.step == len(example.steps) - 1
    assert PROMISES[breach.promise] == breach.promise_text
    assert breach.check == example.property
    assert breach.contradictions
    assert breach.meaning.endswith(".")
    assert breach.consequence.endswith(".")
    assert str(breach.step) in told.title
    (chapter,) = told.chapters
    assert [step.number for step in chapter.steps if step.broken] == [breach.step]


@pytest.mark.parametrize("path", KEPT, ids=named)
def test_what_contradicts_is_marked_in_the_picture(path: Path) -> None:
    (chapter,) = story(path).chapters
    marked = [t.name for t in (*chapter.prompts, *chapter.counters) if t.breach]
    speechless = {"Complete", "NoRefusal", "RestoreEnds", "deadlock"}
    assert marked or read(path).property in speechless


@pytest.mark.parametrize("path", PROTOCOL, ids=named)
def test_nothing_contradicts_itself_before_the_promise_breaks(path: Path) -> None:
    found = {
        check
        for check in ALWAYS
        for step in read(path).steps[:-1]
        if contradictions(check, step.state)
    }
    assert found == ON_THE_WAY.get(named(path), set())


@pytest.mark.parametrize("path", [*KEPT, *WALKS], ids=named)
def test_every_step_is_told_once_with_its_action_and_its_arguments(path: Path) -> None:
    example, told = read(path), story(path)
    (chapter,) = told.chapters
    assert [(step.number, step.action) for step in chapter.steps] == [
        (number, step.action.name) for number, step in enumerate(example.steps)
    ]
    for shown, step in zip(chapter.steps, example.steps, strict=True):
        assert [fact.name for fact in shown.arguments] == list(step.action.arguments)
        assert shown.meaning != "An action that the alphabet does not know."


@pytest.mark.parametrize("path", PROTOCOL, ids=named)
def test_the_strips_of_a_prompt_are_its_owners_in_every_state(path: Path) -> None:
    example = read(path)
    (chapter,) = story(path).chapters
    tracks = {track.name: track for track in chapter.prompts}
    for number, step in enumerate(example.steps):
        for prompt in prompts_of(step.state):
            track = tracks.get(name_of(prompt))
            if track is None:
                continue
            for spans, owners in (
                (track.live, live_owners(step.state, prompt)),
                (track.disk, disk_owners(step.state, prompt)),
            ):
                shown = state_at(spans, number)
                if len(owners) > 1:
                    assert shown == "two owners"
                elif owners and shown != "two owners":
                    assert shown in {owners[0], ""}
                else:
                    assert shown in {"", "unread", "lost", "two owners"}


def test_a_change_is_told_with_what_was_before_and_what_is_after() -> None:
    (chapter,) = story(TRACES / "counterexamples" / "cursor_early.itf.json").chapters
    admission = next(step for step in chapter.steps if step.action == "CommitAdmission")
    told = {(change.what, change.before, change.after) for change in admission.changes}
    assert ("1a, 1b", "reserved", "admitted (stamp 0)") in told
    assert ("dispatch cursor", "-1", "0") in told


def test_the_early_read_is_named_with_its_step_and_both_values() -> None:
    (breach,) = story(TRACES / "counterexamples" / "cursor_early.itf.json").breaches
    assert breach.contradictions == (
        "the saved cursor is -1, and 1a, 1b in the same bundle have the stamp 0",
        "the save read the cursor in step 6 (-1) and the last of its values in step 14, when it "
        "was 0: the two are of no one moment",
    )


def test_a_prompt_that_is_trained_twice_is_followed_over_the_restart() -> None:
    (breach,) = story(TRACES / "counterexamples" / "late_forget.itf.json").breaches
    assert breach.contradictions[1] == (
        "1a is trained in step 27, step 61; the bundle that step 46 restores has it as admitted, "
        "trained"
    )


def test_a_behaviour_that_never_ends_says_which_steps_repeat() -> None:
    told = story(TRACES / "counterexamples" / "barrier_cuts_overtake.itf.json")
    assert told.loop == 4
    assert told.title == "Steps 5 to 12 repeat for ever, and s2, w1 wait without an end"


def test_a_behaviour_that_stands_still_repeats_nothing() -> None:
    path = TRACES / "counterexamples" / "narrow_flush_in_a_save.itf.json"
    assert read(path).loop == 24
    told = story(path)
    assert told.loop is None
    assert told.title == (
        "After step 24 nothing can go on: the clears of 1a wait without an end, and no save is open"
    )
    assert told.lead.startswith("A way into a broken promise")


def test_a_restart_that_refuses_says_what_the_bundle_lacks() -> None:
    told = story(TRACES / "counterexamples" / "never_resumed.itf.json")
    assert told.title.endswith("the bundle can be found and lacks: manifest")


def test_a_trace_of_the_barrier_shows_who_waits_and_who_is_inside() -> None:
    told = story(TRACES / "counterexamples" / "barrier_does_not_drain.itf.json")
    (chapter,) = told.chapters
    last = chapter.steps[-1].number
    inside = [t.name for t in chapter.prompts if state_at(t.live, last) == "inside"]
    assert sorted(inside) == ["s1", "w1"]
    assert {step.lane for step in chapter.steps} <= {"slot", "cut"}


def test_a_walk_breaks_nothing() -> None:
    for path in WALKS:
        told = story(path)
        assert not told.breaches
        assert not any(step.broken for chapter in told.chapters for step in chapter.steps)


def test_the_model_says_what_is_broken_in_it() -> None:
    path = TRACES / "counterexamples" / "cursor_early.itf.json"
    assert (
        "the cursor is read too early."
        in story_of_trace(read(path), path.name, "the cursor is read too early").lead
    )
