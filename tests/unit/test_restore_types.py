"""The order of the restore is a matter of types: another order does not type-check."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

PREAMBLE = """
from collections.abc import Awaitable, Callable
from pathlib import Path
from cutlock.controller.restore import (
    PlaneReady, ResumePlan, connect_plane, load_plane, restore_state,
)
from cutlock.controller.core import Controller
from cutlock.controller.save import RunIdentity
from cutlock.controller.state import RunState
from cutlock.plane.base import BootstrapPlane, DataPlane
from cutlock.workers.base import Generator, Trainer

async def order(
    plan: ResumePlan, bootstrap: BootstrapPlane, connect: Callable[[], Awaitable[DataPlane]],
    state: RunState, trainer: Trainer, generator: Generator, identity: RunIdentity, root: Path,
) -> None:
"""

RIGHT = """
    ready = await load_plane(plan, bootstrap)
    connected = await connect_plane(ready, connect)
    restored = await restore_state(connected, state)
    Controller(restored, trainer, generator, identity, root)
"""

WRONG = {
    "connect before the plane is loaded": "    await connect_plane(plan, connect)\n",
    "restore the state before the client is connected": """
    ready = await load_plane(plan, bootstrap)
    await restore_state(ready, state)
""",
    "start pumps on a state that was not restored": (
        "    Controller(state, trainer, generator, identity, root)\n"
    ),
    "load the plane from a path that nobody verified": ("    await load_plane(root, bootstrap)\n"),
}


def mistakes(tmp_path: Path, body: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PREAMBLE + body)
    report, _, _ = api.run(
        ["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(program)]
    )
    return [line for line in report.splitlines() if "program.py" in line]


@pytest.mark.timeout(240)
def test_only_the_order_of_the_stages_type_checks(tmp_path: Path) -> None:
    assert mistakes(tmp_path, RIGHT) == []
    for name, body in WRONG.items():
        found = mistakes(tmp_path, body)
        assert len(found) == 1, (name, found)
        assert "incompatible type" in found[0], (name, found)
