"""The check of a model by paths on real runs, and the report of all models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from cutlock.bond.coverage import ModelPaths, account
from cutlock.bond.walks import Planned
from cutlock.conformance.paths.replay import Replayers
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.tlc.graph import Graph

__all__ = ["PathsReport", "check_paths", "total"]


class PathsReport(msgspec.Struct, frozen=True, kw_only=True):
    """All models together."""

    ok: bool
    plane: str
    sample: int | None
    """Walks of each model that were replayed; None for all."""
    edges: int
    covered: int
    walks: int
    steps: int
    seconds: float
    models: tuple[ModelPaths, ...]
    exit_code: int


def check_paths(
    name: str,
    graph: Graph,
    bounds: Bounds,
    plan: Sequence[Planned],
    replayers: Replayers,
    *,
    host: PlaneHost | None = None,
    save: Path | None = None,
    watch: Callable[[int, int], None] = lambda covered, walks: None,
) -> ModelPaths:
    """Replay the walks of a plan and count; see `account`.

    Args:
        host: see `Replayers.replay`.

    Raises:
        ToolError: a process has died.
    """
    replay = partial(replayers.replay, graph, bounds, plan, host=host)
    return account(name, graph, plan, replay, save=save, watch=watch)


def total(
    models: Sequence[ModelPaths], plane: str, sample: int | None, exit_code: int
) -> PathsReport:
    """All of them together."""
    return PathsReport(
        ok=exit_code == 0,
        plane=plane,
        sample=sample,
        edges=sum(model.edges for model in models),
        covered=sum(model.covered for model in models),
        walks=sum(model.walks for model in models),
        steps=sum(model.steps for model in models),
        seconds=round(sum(model.seconds for model in models), 2),
        models=tuple(models),
        exit_code=exit_code,
    )
