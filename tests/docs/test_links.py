"""What the documentation points at is there: files, headings, tests, actions and classes."""

from __future__ import annotations

import ast
import asyncio
import builtins
import re
from functools import cache

import pytest

from cutlock.alphabet import Action
from tests.support.docs import ALL, ROOT, Page, slug

FOLDERS = ("src", "tests", "docs", "spec", "model_check", "traces", "examples", "bench")
# Written by a run or a build, or an example of a path of the reader's own.
NOT_KEPT = ("traces/regressions/", "docs/performance/")
# Actions that a page makes up to show how one is added.
MADE_UP = {
    "docs/add-an-action.md": {"ReportStep"},
    "docs/own-protocol.md": {"BeginRelease"},
}


@pytest.mark.parametrize("page", ALL, ids=str)
def test_every_link_leads_to_a_file_and_a_heading(page: Page) -> None:
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.path.parent / path if path else page.path
        assert target.exists(), link
        assert not anchor or anchor in Page(target).anchors, link


@pytest.mark.parametrize("page", ALL, ids=str)
def test_every_path_that_is_named_exists(page: Page) -> None:
    for code in page.code:
        path = code.split("::")[0].split(" ")[0]
        if path.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and path not in NOT_KEPT:
            assert list(ROOT.glob(path.rstrip("/"))), code


@pytest.mark.parametrize("page", ALL, ids=str)
def test_every_test_that_is_named_exists(page: Page) -> None:
    for code in page.code:
        if found := re.fullmatch(r"(?:[\w/.*]+::)*(test_\w+?)(?:\[.*\])?", code):
            assert found[1] in names_of("tests") or list(ROOT.glob(f"tests/*/{found[1]}.py")), code


@pytest.mark.parametrize("page", ALL, ids=str)
def test_every_name_in_capitals_is_an_action_a_class_or_an_operator(page: Page) -> None:
    known = {action.value for action in Action} | operators()
    known |= names_of("src") | names_of("docs") | names_of("examples")
    known |= {*dir(builtins), *dir(asyncio)} | MADE_UP.get(str(page), set())
    for code in page.code:
        if re.fullmatch(r"([A-Z][a-z]+){2,}", code):
            assert code in known, code


def test_a_heading_has_the_name_that_repositories_give_it() -> None:
    assert slug("Counterexamples: `NAME.itf.json`") == "counterexamples-nameitfjson"
    assert slug("6. What to regenerate") == "6-what-to-regenerate"


@cache
def names_of(folder: str) -> set[str]:
    """Classes, functions and names of the Python files of a folder."""
    return {
        name
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in named(node)
    }


def named(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.alias):
        return [node.name.rsplit(".", 1)[-1]]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return [node.id] if isinstance(node, ast.Name) else []


@cache
def operators() -> set[str]:
    """What the modules of the specification define and declare."""
    modules = [*ROOT.glob("spec/*.tla"), *ROOT.glob("examples/*/spec/*.tla")]
    texts = [path.read_text() for path in modules]
    return {name for text in texts for name in re.findall(r"\b[A-Z]\w+\b", text)}
