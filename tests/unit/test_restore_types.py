"""The order of the restore is a matter of types: another order does not type-check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

PREAMBLE = """
from collections.abc import Awaitable, Callable
from pathlib import Path
from cutlock.run.restore import (
    PlaneReady, ResumePlan, connect_plane, load_plane, restore_state,
)
from cutlock.run.engine import Run
from cutlock.run.save import RunIdentity
from cutlock.run.state import RunState
from cutlock.plane.base import BootstrapPlane, DataPlane
from cutlock.workers.base import Generator, Trainer
"""

ORDER = """
async def order_{number}(
    plan: ResumePlan, bootstrap: BootstrapPlane, connect: Callable[[], Awaitable[DataPlane]],
    state: RunState, trainer: Trainer, generator: Generator, identity: RunIdentity, root: Path,
) -> None:
"""

RIGHT = "the right order"

ORDERS = {
    RIGHT: """
    ready = await load_plane(plan, bootstrap)
    connected = await connect_plane(ready, connect)
    restored = await restore_state(connected, state)
    Run(restored, trainer, identity, root)
""",
    "connect before the plane is loaded": "    await connect_plane(plan, connect)\n",
    "restore the state before the client is connected": """
    ready = await load_plane(plan, bootstrap)
    await restore_state(ready, state)
""",
    "start pumps on a state that was not restored": ("    Run(state, trainer, identity, root)\n"),
    "load the plane from a path that nobody verified": ("    await load_plane(root, bootstrap)\n"),
}


def mistakes(folder: Path) -> dict[str, list[str]]:
    """What mypy says of each order, all in one program and with the cache of `make lint`."""
    program, text, at = folder / "program.py", PREAMBLE, list[tuple[int, str]]()
    for number, (name, body) in enumerate(ORDERS.items()):
        at.append((text.count("\n") + 1, name))
        text += ORDER.format(number=number) + body
    program.write_text(text)
    report, _, _ = api.run(["--strict", "--no-error-summary", str(program)])
    found: dict[str, list[str]] = {name: [] for name in ORDERS}
    for line in report.splitlines():
        if said := re.search(r"program\.py:(\d+): ", line):
            found[max(one for one in at if one[0] <= int(said[1]))[1]].append(line)
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_only_the_order_of_the_stages_type_checks(tmp_path: Path) -> None:
    found = mistakes(tmp_path)
    assert found.pop(RIGHT) == []
    assert len(found) == 4
    for name, said in found.items():
        assert len(said) == 1, (name, said)
        assert "incompatible type" in said[0], (name, said)
