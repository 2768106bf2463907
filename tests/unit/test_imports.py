from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import cutlock

ROOT = Path(cutlock.__file__).parents[2]


def test_the_import_contracts_of_pyproject_hold() -> None:
    outcome = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout


def test_no_modules_import_each_other_not_even_for_their_types() -> None:
    _require_no_circle("cutlock")


def test_a_circle_of_types_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "in_a_circle"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("import in_a_circle.two\n")
    (package / "two.py").write_text(
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import in_a_circle.one\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CycleError, match=r"in_a_circle\.(one|two)"):
        _require_no_circle("in_a_circle")


def _require_no_circle(package: str) -> None:
    graph = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imported).prepare()


def test_the_barrier_imports_the_standard_library_and_the_error_family_only() -> None:
    tree = ast.parse((ROOT / "src/cutlock/barrier.py").read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"cutlock"}


def test_loading_the_command_line_imports_no_ray_before_it_is_kept_on_loopback() -> None:
    check = "import sys, cutlock.cli; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
