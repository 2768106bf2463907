"""Every field of the configuration, changed between a save and the resume of a real run."""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cutlock.bundle.contents import decode_cut
from cutlock.bundle.verification import verify
from cutlock.controller.assembly import build_prompts
from cutlock.errors import CapacityError, ConfigError, ConfigMismatchError, DropBudgetError
from cutlock.plane.base import READABLE_VERSIONS
from cutlock.records import Phase
from cutlock.run.config import RunConfig, parse_config
from cutlock.run.restore import ResumePlan, verify_for_resume
from cutlock.run.resume_rules import RULES, Rule
from cutlock.samplers.config import CONFIGS, SamplerConfig
from cutlock.stops import NO_STOPS
from cutlock.workers.prompts import ReverseTask
from tests.support.bundles import reseal
from tests.support.custom_samplers import AdmitOnly, Dawdling
from tests.support.local_runs import Run, Trouble, tiny_config
from tests.support.loop import StepLoop

PAGE = Path(__file__).parents[2] / "docs" / "resume.md"


def path_of(sampler: type) -> str:
    return f"{sampler.__module__}:{sampler.__qualname__}"


SAMPLERS: dict[str, dict[str, Any]] = {
    "windowed": {"name": "windowed", "window": 2},
    "ready_first": {"name": "ready_first", "window": 2},
    "weight_fifo": {"name": "weight_fifo", "window": 2},
    "in_order": {"name": "in_order", "window": 2},
    "custom": {"name": "custom", "path": path_of(AdmitOnly), "options": {"window": 2}},
}
TROUBLE = Trouble(failing=frozenset({"reverse-011"}))
BASE: dict[str, Any] = {
    "seed": 1,
    "epochs": 3,
    "max_steps": 3,
    "buffer": {"capacity": 6, "max_in_flight": 3, "spare_prompts": 1},
    "checkpoint": {"every": 1, "keep": 2, "rows": True, "cut": "full"},
    "failures": {"attempts": 2, "drop_budget": 4},
    "task": {"prompts": 9, "length": 3, "vocabulary": 3},
}
"""It stops after three steps, in its second epoch, with work of all kinds on its way."""

CHANGES: dict[str, tuple[Any, ...]] = {
    "seed": (0, 2),
    "epochs": (1, 2, 4),
    "max_steps": (None, 2, 4, 9),
    "prompts_per_step": (1, 4),
    "group_size": (1, 3),
    "sampler.name": ("ready_first", "weight_fifo"),
    "sampler.window": (0, 1, 3, 5),
    "sampler.order": ("freshest",),
    "sampler.path": (path_of(Dawdling),),
    "sampler.options": ({"window": 1}, {"window": 4}, {}),
    "buffer.capacity": (None, 8, 60),
    "buffer.max_in_flight": (None, 1, 9),
    "buffer.spare_prompts": (0, 4),
    "checkpoint.every": (2, 50),
    "checkpoint.cut": ("narrow",),
    "checkpoint.keep": (1, 9),
    "checkpoint.rows": (False,),
    "checkpoint.limit_s": (5.0, 900.0),
    "checkpoint.failures_in_a_row": (1, 9),
    "failures.attempts": (1, 5),
    "failures.pause_s": (0.01,),
    "failures.longest_pause_s": (0.0, 1.0),
    "failures.drop_budget": (9,),
    "plane.kind": ("transfer_queue",),
    "plane.units": (1, 3),
    "plane.partition": ("elsewhere",),
    "plane.limit_s": (5.0, 900.0),
    "plane.unit_limit_s": (5.0, 900.0),
    "plane.snapshot": ("request",),
    "workers.generators": (1, 9),
    "workers.token_delay_s": (0.25,),
    "workers.learning_rate": (0.0001, 0.5),
    "workers.limit_s": (5.0, 900.0),
    "workers.group_limit_s": (5.0, 900.0),
    "workers.step_limit_s": (200.0, 900.0),
    "task.prompts": (8, 10),
    "task.length": (2, 4),
    "task.vocabulary": (2, 4),
    "watchdog.stall_s": (60.0, 9000.0),
    "watchdog.action": ("fail",),
    "watchdog.controller_s": (60.0, 900.0),
    "metrics.port": (0,),
    "metrics.host": ("127.0.0.2",),
    "metrics.transfer_queue": (False,),
}
"""Smaller and larger values; a field that is not here fails a test."""

SAMPLER_OF = {"sampler.order": "windowed", "sampler.path": "custom", "sampler.options": "custom"}


def changed(raw: dict[str, Any], changes: dict[str, Any]) -> RunConfig:
    raw = msgspec.json.decode(msgspec.json.encode(raw))
    for field, value in changes.items():
        *names, last = field.split(".")
        table = raw
        for name in names:
            table = table.setdefault(name, {})
        table[last] = value
    return parse_config(raw)


class Saved:
    """A run that was saved in the middle, of which each test takes a copy."""

    def __init__(self, root: Path, sampler: str) -> None:
        self.sampler = sampler
        self.config = tiny_config(**BASE, sampler=SAMPLERS[sampler])
        self.run = Run.create(root / sampler, self.config, TROUBLE)
        self._root = root
        self._copies = itertools.count()
        with StepLoop() as loop:
            loop.do(self.run._run(self.config, None, NO_STOPS))

    def plan(self, run: Run, changes: dict[str, Any], *, with_rows: bool = True) -> ResumePlan:
        """Raises what the resume raises, having shown that nothing was changed."""
        before = content(run.root)
        try:
            config = changed(self.config.plain(), {"max_steps": None, **changes})
            bundle = run.root / "step_3"
            return verify_for_resume(bundle, build_prompts, config, with_rows=with_rows)
        finally:
            assert content(run.root) == before

    def copy(self) -> Run:
        return self.run.copy(self._root / f"{self.sampler}-{next(self._copies)}")

    def refusal(self, changes: dict[str, Any], *, with_rows: bool = True) -> ConfigError | None:
        """Why the resume is refused, before anything is launched; None if it went well."""
        try:
            self.resume(changes, with_rows=with_rows)
        except ConfigError as error:
            return error
        return None

    def resume(self, changes: dict[str, Any], *, with_rows: bool = True) -> None:
        """To the end, within a bounded number of turns; nothing is lost or trained twice."""
        run = self.copy()
        try:
            plan = self.plan(run, changes, with_rows=with_rows)
            if not plan.finished:
                with StepLoop() as loop:
                    loop.do(run._run(plan.config, plan, NO_STOPS))
            audit = run.audit()
            assert audit.ok, audit.problems
            assert (audit.lost, audit.trained_twice) == (0, 0)
            if plan.config.max_steps is None:
                assert audit.ended == "exhausted"
        finally:
            shutil.rmtree(run.root)


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def saved() -> Iterator[dict[str, Saved]]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield {sampler: Saved(Path(made), sampler) for sampler in SAMPLERS}


def fields(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        path = f"{prefix}{field.encode_name}"
        if field.type == SamplerConfig:
            yield f"{path}.name"
            for one in CONFIGS.values():
                yield from fields(one, f"{path}.")
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from fields(field.type, f"{path}.")
        else:
            yield path


def test_every_field_has_a_rule_and_is_changed_here() -> None:
    assert set(get_args(SamplerConfig)) == set(CONFIGS.values())
    found = list(dict.fromkeys(fields(RunConfig)))
    assert sorted(RULES) == sorted(found)
    assert sorted(CHANGES) == sorted(found)


def test_the_page_is_the_table() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| ([a-z ]+) \| (.*) \|$", PAGE.read_text(), re.M)
    assert rows == [(field, str(rule.rule), rule.why) for field, rule in RULES.items()]


def test_the_saved_runs_hold_work_of_all_kinds(saved: dict[str, Saved]) -> None:
    kinds: dict[str, int] = {}
    for one in saved.values():
        cut = decode_cut(verify(one.run.root / "step_3"))
        for kind, count in (
            ("finished", len(cut.index)),
            ("admitted", sum(r.phase is Phase.ADMITTED for r in cut.ledger)),
            ("reserved", sum(r.phase is Phase.RESERVED for r in cut.ledger)),
            ("spare", len(cut.spare_pool)),
            ("dropped", cut.dropped),
            ("position", cut.loader.position),
        ):
            kinds[kind] = kinds.get(kind, 0) + count
        assert cut.loader.epoch in (1, 2)
    assert all(kinds.values()), kinds


CASES = [
    pytest.param(field, value, id=f"{field}={value}")
    for field, values in CHANGES.items()
    for value in values
]


@pytest.mark.parametrize(("field", "value"), CASES)
def test_a_changed_field_is_refused_with_both_values_or_adapts(
    saved: dict[str, Saved], field: str, value: Any
) -> None:
    one = saved[SAMPLER_OF.get(field, "in_order")]
    was: Any = one.config.plain()
    for name in field.split("."):
        was = was[name]
    assert was != value
    rule = RULES[field]
    if rule.rule in (Rule.REFUSED, Rule.REFUSED_WITH_ROWS):
        says = f"{field} was {was!r} when the bundle was saved and is {value!r} now; {rule.why}; "
        says += f"set {field} = {was!r}"
        if rule.rule is Rule.REFUSED_WITH_ROWS:
            says += " or resume with --without-rows"
        changes = {field: value} | ({"buffer.capacity": 60} if field == "prompts_per_step" else {})
        with pytest.raises(ConfigMismatchError, match=f"^{re.escape(says)}$"):
            one.plan(one.run, changes)
        if rule.rule is Rule.REFUSED_WITH_ROWS:
            one.resume({field: value}, with_rows=False)
    else:
        # A wider window needs more places than the saved run had.
        wider = {"buffer.capacity": 60} if field.startswith("sampler.") else {}
        one.resume({field: value, **wider})


def test_epochs_that_the_bundle_has_finished_are_not_given_up(saved: dict[str, Saved]) -> None:
    """They may be as few as it has begun: the rest of the one that is begun is not served."""
    one = saved["in_order"]
    run = one.copy()
    with StepLoop() as loop:
        plan = one.plan(run, {"max_steps": 9})
        loop.do(run._run(plan.config, plan, NO_STOPS))
    config = changed(one.config.plain(), {"epochs": 1, "max_steps": None})
    with pytest.raises(ConfigMismatchError, match=r"epochs is 1 and .* of the 3 .* at least [23]"):
        run.plan("step_9", config)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_smaller_buffer_is_refused_with_the_place_that_is_needed_or_is_enough(
    saved: dict[str, Saved], sampler: str
) -> None:
    one = saved[sampler]
    # A sampler with admit() alone may not be kept waiting for more than a step.
    narrow: dict[str, Any] = {"sampler.window": 0}
    least = 2
    if sampler == "custom":
        narrow, least = {"sampler.options": {"window": 1}}, 4
    with pytest.raises(ConfigError, match=f"raise it to {least} or leave it out"):
        one.plan(one.run, {**narrow, "buffer.capacity": least - 1})
    for capacity in range(least, 7):
        changes = {**narrow, "buffer.capacity": capacity}
        refusal = one.refusal(changes)
        if refusal is None:
            continue
        assert isinstance(refusal, CapacityError)
        needed = re.search(r"of at least (\d+), or with --without-rows", str(refusal))
        assert needed, refusal
        assert f"the buffer capacity is {capacity}" in str(refusal)
        assert capacity < int(needed[1]) <= 6
        one.resume({**narrow, "buffer.capacity": int(needed[1])})
        one.resume(changes, with_rows=False)


def test_a_drop_budget_that_is_used_up_ends_the_run_at_the_next_loss(
    saved: dict[str, Saved],
) -> None:
    one = saved["in_order"]
    assert decode_cut(verify(one.run.root / "step_3")).dropped
    with pytest.raises(DropBudgetError, match=r"failures.drop_budget = 0 is used up"):
        one.resume({"failures.drop_budget": 0})


def test_another_data_set_under_the_same_configuration_is_refused(saved: dict[str, Saved]) -> None:
    one = saved["in_order"]
    for other in (
        ReverseTask(9, length=3, vocabulary=3, seed=9),
        ReverseTask(10, length=3, vocabulary=3, seed=1),
    ):
        with pytest.raises(
            ConfigMismatchError,
            match=r"was reverse\(.*\), 9 prompts \(digest \w+\) when .* is reverse.*, so use the",
        ):
            verify_for_resume(one.run.root / "step_3", lambda _, o=other: o)  # type: ignore[misc]


def test_packages_may_differ_and_rows_of_an_unknown_store_are_refused_before_any_launch(
    saved: dict[str, Saved],
) -> None:
    one = saved["in_order"]
    run = one.copy()
    info = run.root / "step_3" / "training_info.json"
    plain = msgspec.json.decode(info.read_bytes())
    plain["packages"] = dict.fromkeys(plain["packages"], "0.0.1")
    info.write_bytes(msgspec.json.encode(plain))
    reseal(info.parent)
    run.plan("step_3")
    plain["plane"]["version"] = "0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(READABLE_VERSIONS, "memory", ("2", "3"))  # type: ignore[arg-type]
        with pytest.raises(
            ConfigMismatchError,
            match=r"written by memory 1 and this version reads 2, 3; .* --without-rows",
        ):
            run.plan("step_3")
        assert run.plan("step_3", with_rows=False).snapshot.index == ()


FREELY = {
    field: values
    for field, values in CHANGES.items()
    if RULES[field].rule in (Rule.ADAPTS, Rule.FREE)
    and field not in ("sampler.order", "sampler.options")
}


@st.composite
def combinations(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    sampler = draw(st.sampled_from(sorted(SAMPLERS)))
    names = draw(st.sets(st.sampled_from(sorted(FREELY)), min_size=2, max_size=6))
    changes = {name: draw(st.sampled_from(FREELY[name])) for name in sorted(names)}
    if "buffer.capacity" in changes:
        changes["buffer.capacity"] = draw(st.sampled_from((None, 2, 3, 4, 5, 6, 7, 8, 12)))
    if sampler == "custom" and (window := changes.pop("sampler.window", None)) is not None:
        changes["sampler.options"] = {"window": max(window, 1)}
    if sampler == "windowed":
        changes["sampler.order"] = draw(st.sampled_from(("insertion", "freshest")))
    return sampler, changes


def try_together(saved: dict[str, Saved], drawn: tuple[str, dict[str, Any]], rows: bool) -> None:
    sampler, changes = drawn
    refusal = saved[sampler].refusal(changes, with_rows=rows)
    assert refusal is None or re.search(r"(raise it to|resume with|set) ", str(refusal)), refusal


together = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.slow
@settings(together, max_examples=60)
@given(drawn=combinations(), rows=st.booleans())
@example(("in_order", {"buffer.capacity": 2, "sampler.window": 0}), True)
@example(("windowed", {"buffer.max_in_flight": None, "buffer.spare_prompts": 4}), False)
def test_fields_that_change_together_are_refused_or_adapt(
    saved: dict[str, Saved], drawn: tuple[str, dict[str, Any]], rows: bool
) -> None:
    try_together(saved, drawn, rows)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(together, max_examples=1500)
@given(drawn=combinations(), rows=st.booleans())
def test_many_fields_that_change_together_are_refused_or_adapt(
    saved: dict[str, Saved], drawn: tuple[str, dict[str, Any]], rows: bool
) -> None:
    try_together(saved, drawn, rows)
