from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

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
