"""Model checking, replay and log validation: how fast, and what more workers bring.

Each figure has a simpler alternative: one worker of TLC, one process that replays, the in-process
plane instead of TransferQueue, and `cutlock audit`, which reads the same logs and bundles without
the model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from bench.harness import Measurement, Session, compare, interleave
from cutlock.audit import audit_run
from cutlock.bond import Processes, cover
from cutlock.bond.walks import Planned, first_times, sample
from cutlock.bond.walks import cover as walks_through
from cutlock.conformance.protocol import (
    CUTLOCK,
    CutlockStepper,
    bounds_of,
    one_thread,
    plane_host,
)
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.validation.logs import read_run, validate
from cutlock.errors import ToolError
from cutlock.run.directory import RunDirectory
from cutlock.tlc.check import check_model
from cutlock.tlc.graph import Graph
from cutlock.tlc.manifest import Manifest, Mode, TimeClass, load_manifest
from cutlock.tlc.run import Toolchain, find_toolchain

ROOT = Path(__file__).parents[1]
SAFETY = "in_order_crash_anywhere"
GRAPH = "graph_crash"
RUN = "in_order"
"""Of the runs that are kept in `traces/`."""


def measure(session: Session) -> Iterator[Measurement]:
    toolchain = find_toolchain(None)
    manifest = load_manifest(ROOT / "model_check" / "manifest.toml")
    turns = session.repetitions(5)
    if session.pick(full=True, quick=True, tiny=False):
        yield from states(session, toolchain, manifest, turns)
        yield from edges(session, toolchain, manifest, turns)
    yield from events(session, toolchain, turns)


def states(
    session: Session, toolchain: Toolchain, manifest: Manifest, turns: int
) -> Iterator[Measurement]:
    session.say(f"TLC on {SAFETY}")
    (model,) = manifest.select((SAFETY,), TimeClass.FULL, tuple(Mode))

    def rate(workers: int) -> float:
        result = check_model(
            toolchain, manifest, msgspec.structs.replace(model, workers=workers)
        ).result
        if result.distinct is None or not result.ok:
            raise ToolError(f"{SAFETY} was not checked: {'; '.join(result.why_not)}")
        return result.distinct / result.seconds

    samples = interleave({"2": partial(rate, 2), "1": partial(rate, 1)}, turns, warm_up=0)
    yield compare(
        "states",
        samples,
        "2",
        "1",
        what=f"distinct states per second of {SAFETY} with 2 workers, including the start of Java",
        beside="1 worker",
        unit="1/s",
    )


def edges(
    session: Session, toolchain: Toolchain, manifest: Manifest, turns: int
) -> Iterator[Measurement]:
    session.say(f"the graph of {GRAPH}")
    (model,) = manifest.select((GRAPH,), TimeClass.FULL, (Mode.GRAPH,))
    graph = check_model(toolchain, manifest, model).graph
    assert graph is not None
    walks = walks_through(graph)
    session.say("replay in memory")
    processes = os.cpu_count() or 1
    plan = first_times(sample(walks, session.pick(full=200, quick=40, tiny=4)))
    samples = interleave(
        {
            "all": _replay(graph, plan, processes),
            "one": _replay(graph, plan, 1),
        },
        turns,
    )
    yield compare(
        "edges",
        samples,
        "all",
        "one",
        what=f"edges of {GRAPH} executed and compared per second, {processes} processes",
        beside="1 process",
        unit="1/s",
    )
    session.say("replay on TransferQueue")
    few = first_times(sample(walks, session.pick(full=4, quick=1, tiny=1)))
    with plane_host("transfer_queue", bounds_of(CUTLOCK.constants(model))) as host:
        samples = interleave(
            {
                "real": _replay(graph, few, 1, host),
                "memory": _replay(graph, few, 1),
            },
            session.pick(full=3, quick=1, tiny=1),
            warm_up=0,
        )
    yield compare(
        "edges_real",
        samples,
        "real",
        "memory",
        what="the same on a real TransferQueue, which starts again with every start of a run",
        beside="the same walks on the in-process plane",
        unit="1/s",
    )


def _replay(
    graph: Graph, plan: list[Planned], count: int, host: PlaneHost | None = None
) -> Callable[[], float]:
    bond = replace(CUTLOCK, stepper=partial(CutlockStepper, host=host))

    def rate() -> float:
        with Processes(count, one_thread) as processes:
            found = cover(bond, GRAPH, graph, plan=plan, every_action=False, processes=processes)
        assert found.ok
        return found.rate

    return rate


def events(session: Session, toolchain: Toolchain, turns: int) -> Iterator[Measurement]:
    session.say("validation of a log")
    directory = RunDirectory(ROOT / "traces" / "runs" / RUN)
    count = len(read_run(directory).events)

    def by_model() -> float:
        began = time.perf_counter()
        (verdict,) = validate(toolchain, ROOT / "spec", [read_run(directory)])
        assert verdict.ok
        return count / (time.perf_counter() - began)

    def by_audit() -> float:
        began = time.perf_counter()
        audit_run(directory)
        return count / (time.perf_counter() - began)

    samples = interleave({"model": by_model, "audit": by_audit}, turns)
    yield compare(
        "events",
        samples,
        "model",
        "audit",
        what=f"events per second that TLC accepts as a behaviour of the model, of {count} events",
        beside="`cutlock audit` of the same run: every prompt accounted for, no model",
        unit="1/s",
        note="two seconds of this are the start of Java, independent of the length of the log",
    )
