"""The table of the field cases is the tests, and each case has one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "field-cases.md"
CASES = 52

Names = dict[str, set[str]]


def rows() -> Iterator[tuple[str, str, str, str]]:
    for line in PAGE.read_text().splitlines():
        if line.startswith("| FB-"):
            case, _, tests, held, fixed = line.strip("| ").split(" | ")
            yield case, tests, held, fixed


def listed() -> Names:
    return {case: set(re.findall(r"`([^`]+)`", tests)) for case, tests, _, _ in rows()}


def written() -> Names:
    found: Names = {}
    for path in sorted(HERE.glob("test_*_cases.py")):
        for name in functions(ast.parse(path.read_text())):
            case = re.fullmatch(r"(?:.*::)?test_fb_(\d+)_\w+", name)
            assert case, f"{path.name}: {name} names no case"
            found.setdefault(f"FB-{case[1]}", set()).add(f"{path.name}::{name}")
    return found


def functions(tree: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{name}" for name in functions(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield node.name


def test_each_case_has_a_row_and_each_test_is_in_it() -> None:
    assert listed() == written()


def test_no_case_is_missing() -> None:
    assert len(listed()) == CASES
    assert [case for case, *_ in rows()] == sorted(listed(), key=lambda case: int(case[3:]))


def test_what_did_not_hold_says_what_was_fixed() -> None:
    for case, _, held, fixed in rows():
        assert held in {"yes", "no"}, case
        assert (held == "no") is (fixed != "-"), case
