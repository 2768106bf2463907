"""Records outputs of TLC for the tests of the parser: `python -m tests.tlc.record [NAME]...`.

Needs Java and the pinned jar. What differs between machines is replaced, and stack traces are
cut short.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from cutlock.tlc.run import GRAPH_FILE, Job, Simulation, Toolchain, find_toolchain

HERE = Path(__file__).parent
SPECS = HERE / "specs"
RECORDED = HERE / "recorded"


def job(module: str, config: str) -> Job:
    return Job(SPECS / f"{module}.tla", SPECS / f"{config}.cfg", tiny=True)


JOBS = {
    "success": job("Tank", "Good"),
    "coverage": replace(job("Tank", "Good"), coverage=True),
    "invariant": job("Tank", "Invariant"),
    "initial": job("Tank", "Initial"),
    "one_variable": job("Pair", "Pair"),
    "deadlock": job("Tank", "Deadlock"),
    "action_property": job("Tank", "ActionProperty"),
    "lasso": job("Tank", "Lasso"),
    "stuttering": job("Tank", "Stuttering"),
    "live": job("Tank", "Live"),
    "warning": job("PairSymmetry", "PairSymmetry"),
    "evaluation": job("Tank", "Evaluation"),
    "assertion": job("Asserted", "Plain"),
    "assumption": job("Assumed", "Plain"),
    "parse": job("Broken", "Plain"),
    "missing_module": job("Nowhere", "Plain"),
    "unknown_name": job("Tank", "UnknownName"),
    "missing_constant": job("Tank", "MissingConstant"),
    "missing_config": job("Tank", "Nowhere"),
    "walks": replace(job("Tank", "Good"), simulation=Simulation(5, 7)),
    "walk_invariant": replace(job("Tank", "Invariant"), simulation=Simulation(5, 7)),
    "stack_overflow": job("Endless", "Endless"),
    "no_heap": replace(job("Tank", "Good"), heap="1k"),
    "graph": replace(job("TankGraph", "Graph"), dump=True),
}


def record(toolchain: Toolchain, name: str) -> None:
    """Write `name.txt`, whose first line is the exit code, and the graph if there is one."""
    with tempfile.TemporaryDirectory() as work:
        line = toolchain.command(JOBS[name]).replace("$(mktemp -d)", work)
        done = subprocess.run(
            ["bash", "-c", line],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = done.stdout.replace(str(SPECS), "specs").replace(work, "work")
        text = re.sub(r"\[pid: .*?\)\.", "[pid: 1] (machine).", text)
        text = re.sub(r"(\tat .*\n){3,}", "\tat somewhere\n", text)
        text = text.replace(str(toolchain.jar.path), "tla2tools.jar")
        RECORDED.mkdir(exist_ok=True)
        Path(RECORDED, f"{name}.txt").write_text(f"exit {done.returncode}\n{text}")
        graph = Path(work, GRAPH_FILE)
        if graph.is_file():
            Path(RECORDED, f"{name}.dot").write_text(graph.read_text())


if __name__ == "__main__":
    found = find_toolchain()
    for each in sys.argv[1:] or JOBS:
        record(found, each)
