"""Runs models and believes a result only where all of it is as the manifest says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from cutlock.errors import ToolError
from cutlock.tlc.config import Config
from cutlock.tlc.graph import Graph, explore
from cutlock.tlc.manifest import Manifest, Mode, Model
from cutlock.tlc.outcome import Outcome, Progress, Verdict
from cutlock.tlc.run import Toolchain

__all__ = [
    "Checked",
    "Report",
    "Result",
    "check_model",
    "check_models",
    "judge",
    "violated",
    "worst_exit",
]

Watch = Callable[[Model, Progress | None], None]
"""Told of a model when it starts and whenever TLC reports progress."""

_NOT_RUN = frozenset(
    {
        Verdict.TOOL_ERROR,
        Verdict.PARSE_ERROR,
        Verdict.CONFIG_ERROR,
        Verdict.EVALUATION_ERROR,
    }
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one model was to show and what it has shown."""

    name: str
    expected: Verdict
    got: Verdict
    property: str | None
    """The violated one."""
    distinct: int | None
    seconds: float
    ok: bool
    why_not: tuple[str, ...]
    """Each difference from the manifest, and TLC's own words if it failed."""
    command: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all models that were run."""

    ok: bool
    java: str
    jar: str
    jar_sha256: str
    models: tuple[Result, ...]
    exit_code: int
    """See `worst_exit`."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A result and what it was drawn from."""

    model: Model
    result: Result
    outcome: Outcome
    graph: Graph | None = None
    """The reachable graph, of models of that mode."""


def check_model(
    toolchain: Toolchain, manifest: Manifest, model: Model, watch: Watch | None = None
) -> Checked:
    """Run one model and compare.

    Raises:
        ConfigError: its files are not there.
        ToolError: Java cannot be started.
    """
    config, job = manifest.config(model), manifest.job(model)
    if watch is not None:
        watch(model, None)

    def on_progress(progress: Progress) -> None:
        if watch is not None:
            watch(model, progress)

    graph = None
    why_not: list[str] = []
    if model.mode is Mode.GRAPH:
        outcome, graph, unread = _explore(toolchain, manifest, model, on_progress)
        why_not += unread
    else:
        outcome = toolchain.run(job, on_progress)
    why_not += judge(model, config, outcome)
    result = Result(
        name=model.name,
        expected=model.expected,
        got=outcome.verdict,
        property=violated(config, outcome),
        distinct=outcome.distinct,
        seconds=round(outcome.seconds, 2),
        ok=not why_not,
        why_not=tuple(why_not),
        command=toolchain.command(job),
    )
    return Checked(model=model, result=result, outcome=outcome, graph=graph)


def check_models(
    toolchain: Toolchain,
    manifest: Manifest,
    models: Sequence[Model],
    watch: Watch | None = None,
    on_checked: Callable[[Checked], None] | None = None,
) -> Report:
    """Run models one after another.

    Raises:
        ConfigError: files of a model are not there.
        ToolError: Java cannot be started.
    """
    results = []
    for model in models:
        checked = check_model(toolchain, manifest, model, watch)
        results.append(checked.result)
        if on_checked is not None:
            on_checked(checked)
    return Report(
        ok=all(result.ok for result in results),
        java=f"{toolchain.java.version} at {toolchain.java.path}",
        jar=f"{toolchain.jar.build} at {toolchain.jar.path}",
        jar_sha256=toolchain.jar.sha256,
        models=tuple(results),
        exit_code=worst_exit(results),
    )


def judge(model: Model, config: Config, outcome: Outcome) -> list[str]:
    """Each way in which the outcome is not what the model has to show; empty if it is."""
    return list(_differences(model, config, outcome))


def violated(config: Config, outcome: Outcome) -> str | None:
    """The invariant or property that fell, by the name that the configuration has for it.

    TLC does not say which temporal property fell, and gives the position of a part of a
    composed one; with one property in the configuration there is no doubt.
    """
    if outcome.property in config.promises:
        return outcome.property
    about_properties = outcome.verdict in (Verdict.TEMPORAL, Verdict.ACTION_PROPERTY)
    if about_properties and len(config["properties"]) == 1:
        return config["properties"][0]
    return outcome.property


def worst_exit(results: Sequence[Result]) -> int:
    """0 as expected, 1 another result, 4 a check that did not run, 5 only out of time.

    The smallest that applies: a counterexample stands, whatever became of the other models.
    """
    failed = {result.got for result in results if not result.ok}
    if not failed:
        return 0
    if failed - _NOT_RUN - {Verdict.BUDGET}:
        return 1
    return 4 if failed & _NOT_RUN else 5


def _differences(model: Model, config: Config, outcome: Outcome) -> Iterator[str]:
    if outcome.verdict is not model.expected:
        yield f"expected {model.expected.value}, got {outcome.verdict.value}"
        yield from outcome.messages
        return
    name = violated(config, outcome)
    if name != model.property:
        yield f"expected {model.property} to fall, {name} did"
    if model.distinct is not None and outcome.distinct != model.distinct:
        yield f"expected {model.distinct} distinct states, found {outcome.distinct}"
    if outcome.liveness and not model.checks_liveness():
        yield (
            "a temporal property was checked; only mode liveness, or expected temporal, "
            "keeps to the rules for that"
        )
    if model.mode is Mode.LIVENESS and not outcome.liveness:
        yield "no temporal property was checked; the property says nothing about liveness"
    yield from (f"TLC warns: {warning}" for warning in outcome.warnings)
    if model.covers():
        yield from _uncovered(model, outcome)


def _uncovered(model: Model, outcome: Outcome) -> Iterator[str]:
    if not outcome.coverage:
        yield "TLC counted no actions"
    for action, count in outcome.coverage.items():
        if count.total == 0 and action not in model.never:
            yield f"action {action} never happens"
    for action in model.never:
        if action not in outcome.coverage:
            yield f"`never` lists {action}, which is no action of the model"


def _explore(
    toolchain: Toolchain,
    manifest: Manifest,
    model: Model,
    on_progress: Callable[[Progress], None],
) -> tuple[Outcome, Graph | None, list[str]]:
    try:
        outcome, graph = explore(toolchain, manifest.job(model), on_progress)
    except ToolError as error:
        return Outcome(Verdict.TOOL_ERROR), None, [str(error)]
    return outcome, graph, []
