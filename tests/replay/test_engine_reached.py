"""The alphabet reaches every public method of the engine that moves an owner, and nobody else
moves one."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cutlock
from cutlock.alphabet import Action
from cutlock.bond.patches import Patch, patched
from cutlock.run.engine import Run
from cutlock.run.rollouts import Attempt
from tests.replay.script import everything

SOURCE = Path(cutlock.__file__).parent

MOVERS = {
    "dispatch": {Action.RESERVE_BATCH, Action.OPEN_GATE, Action.COMMIT_ADMISSION},
    "attempt": {Action.LAUNCH_GROUP, Action.FAIL_GROUP},
    "commit": {Action.BEGIN_COMMIT, Action.PUT_ROWS, Action.COMMIT_GROUP, Action.ROLLBACK_GROUP},
    "give_up": {Action.DROP_GROUP},
    "abort_stale": {Action.ABORT_STALE},
    "next_step": {Action.SELECT_GROUPS, Action.WRITE_ADVANTAGES},
    "finish_step": {Action.TRAIN_STEP, Action.CLEAR_ROWS, Action.RAISE_VERSION},
    "save": {Action.REQUEST_CUT},
    "going": {Action.START_PUMPS},
}
"""What of the alphabet a public method does by itself."""

CLIENTS = {"roll_out", "request_save"}
"""Public methods that do nothing but call those."""

LOOKS = {"status", "look", "report", "pool_is_low", "first_stale", "attempt_phases"} | {
    "stale_groups",
    "selectable_groups",
}
"""Public methods that change nothing."""


def public(kind: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers_static(kind)
        if not name.startswith("_") and callable(member)
    }


def test_every_public_method_of_the_engine_is_one_of_these() -> None:
    assert set(public(Run)) | set(public(Attempt)) == {*MOVERS, *CLIENTS, *LOOKS}


def records(args: tuple[Any, ...]) -> list[Any]:
    """The log of the run that a method is called on, or whose attempt it is."""
    engine = args[0] if isinstance(args[0], Run) else args[0]._rollouts
    found: list[Any] = engine.state.events.records
    return found


def noting(note: Callable[[str, list[Any]], None], name: str, method: Any) -> Any:
    """The method, which notes what is recorded between its call and its end."""
    if inspect.isasyncgenfunction(method):

        async def generates(*args: Any, **named: Any) -> Any:
            before = len(records(args))
            async for value in method(*args, **named):
                note(name, records(args)[before:])
                yield value

        return generates
    if inspect.iscoroutinefunction(method):

        async def runs(*args: Any, **named: Any) -> Any:
            before = len(records(args))
            try:
                return await method(*args, **named)
            finally:
                note(name, records(args)[before:])

        return runs

    @contextlib.asynccontextmanager
    async def enters(*args: Any, **named: Any) -> Any:
        before = len(records(args))
        try:
            async with method(*args, **named) as value:
                yield value
        finally:
            note(name, records(args)[before:])

    return enters


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What each public method has recorded in runs that do every action, by its name."""
    found: dict[str, set[str]] = defaultdict(set)

    def note(name: str, recorded: list[Any]) -> None:
        found[name].update(record.action for record in recorded)

    patches = [
        Patch(kind, name, noting(note, name, method))
        for kind in (Run, Attempt)
        for name, method in public(kind).items()
        if name in MOVERS
    ]
    with patched(patches):
        everything(tmp_path_factory.mktemp("everything"))
    return found


@pytest.mark.parametrize("name", MOVERS)
def test_a_method_does_what_the_alphabet_says(done: dict[str, set[str]], name: str) -> None:
    assert done[name] >= MOVERS[name]


OWNERS = {
    "ledger": {"reserve", "admit", "substitute", "discard", "discard_owned", "restore"},
    "buffer": {"reserve", "release", "commit", "select", "evict", "clear_claimed", "restore"},
    "pool": {"fill", "take", "restore"},
    "loader": {"next_batch", "raise_epoch", "restore"},
    "shortfall": {"credit", "forget_before", "restore"},
    "permits": {"acquire", "take", "release"},
    "sampler": {"commit_admission", "restore_cursor"},
    "version": {"raise_to"},
}
"""Methods that change an owner or a counter, by the part that has them."""


def changes(path: Path) -> Iterator[str]:
    """Calls of those methods on a part of the state, in one file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            part = node.func.value
            name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
            if node.func.attr in OWNERS.get(name.lstrip("_"), ()):
                yield f"{path.relative_to(SOURCE)}: {name}.{node.func.attr}"


def test_only_the_engine_and_the_owners_themselves_move_an_owner() -> None:
    elsewhere = [
        change
        for path in SOURCE.rglob("*.py")
        if path.parent != SOURCE / "run" and path.parent != SOURCE / "samplers"
        for change in changes(path)
        if not change.startswith(("buffer.py: _ledger.", "conformance/"))
    ]
    assert not elsewhere
    assert [*changes(SOURCE / "run" / "rollouts.py")]
