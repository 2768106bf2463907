"""The names that `from cutlock import ...` gives."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutlock

ROOT = Path(cutlock.__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide.md").read_text()


def names_for_type_checkers() -> dict[str, str]:
    """Name to module, as `cutlock/__init__.py` imports them for mypy and editors."""
    tree = ast.parse(Path(cutlock.__file__).read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "a public name is exported with `as`"
            found[alias.name] = str(node.module)
    return found


def test_type_checkers_and_python_see_the_same_names_in_the_same_modules() -> None:
    homes = {name: f"cutlock.{home}" for name, home in cutlock._HOMES.items()}
    assert names_for_type_checkers() == homes
    assert cutlock.__all__ == sorted(homes)


@pytest.mark.parametrize("name", cutlock.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(cutlock, name)
    assert name in dir(cutlock)
    if name != "Fields":  # an alias; it is documented where it is defined
        assert value.__doc__
        assert not value.__doc__.startswith(f"{name}(")


def test_a_name_that_is_not_public_is_none() -> None:
    with pytest.raises(AttributeError, match="no attribute 'undo'"):
        cutlock.undo  # noqa: B018


def test_importing_the_package_loads_nothing_that_is_heavy() -> None:
    check = "import sys, cutlock; sys.exit(len({'ray', 'torch', 'msgspec'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_no_public_name_loads_ray() -> None:
    check = "import sys; from cutlock import *; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_type_checkers_know_the_signatures_and_refuse_other_names(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import cutlock\n"
        "reveal_type(cutlock.audit_run)\n"
        "cutlock.undo\n"
        "async def save(run: cutlock.Run) -> None:\n"
        "    await run.save(7)\n"
    )
    said = subprocess.run(
        [Path(sys.executable).parent / "mypy", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert 'Revealed type is "def (directory: ' in said
    assert 'program.py:3: error: Module has no attribute "undo"' in said
    assert 'program.py:5: error: Too many arguments for "save" of' in said
    assert "Found 2 errors" in said


def test_the_guide_explains_every_public_name_and_no_other() -> None:
    table = GUIDE.partition("## All public names")[2]
    explained = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    assert sorted(name for name, _ in explained) == cutlock.__all__
    assert all(len(what) > 10 for _, what in explained)


def test_the_guide_names_every_example() -> None:
    examples = {path.name for path in (ROOT / "examples").glob("*.*")}
    table = GUIDE.partition("| example | shows |")[2].partition("\n\n")[0]
    assert examples == set(re.findall(r"`(\w+\.\w+)`", table)) - {"own_store"}
