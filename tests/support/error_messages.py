"""Every error message of cutlock, read from the code, for the page and its test.

`python -m tests.support.error_messages` writes docs/errors.md again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import cutlock
from cutlock import errors

SOURCE = Path(cutlock.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "errors.md"

RAISING = {*errors.__all__, "UsageError", "BadParameter", "ClickException"}
"""Classes whose first argument is a message."""

CORRUPT = "{bundle}: {file}: %s; do not mend it by hand, resume from an older bundle"
"""What `cutlock.bundle.strict.corrupt` makes of a message."""

WRAPPERS = {"corrupt": 2, "_failure": 1}
"""Functions that make an error: which of their arguments is the message."""

ANSWERS = {"DivergenceError", "NotEnabledError", "NoticedError"}
INSIDE = ("conformance/faults", "conformance/free", "conformance/stepping", "conformance/reference")
"""Such errors, and all that is raised there, are answers of the bond: `replay` and `paths` show
them as such."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Starting or resuming a run": (
        "run/config",
        "run/resume_rules",
        "run/endpoint",
        "loader",
        "run/restore",
        "run/directory",
        "cli/run",
        "cli/demo",
        "samplers/config",
        "samplers/custom",
        "workers/prompts",
        "plane/loopback",
    ),
    "During a run": ("controller", "run", "watchdog", "workers"),
    "Saves and bundles": ("bundle", "cli/inspect"),
    "The row store": ("plane",),
    "Auditing a run": ("audit", "events"),
    "Checking the model": ("tlc", "cli/models"),
    "Paths, replay and validation": ("conformance", "cli/paths", "cli/replay"),
    "Checking another protocol": ("bond", "pytest_plugin"),
    "Other commands": ("cli", "show", "report"),
    "Calling the classes directly": (
        "barrier",
        "buffer",
        "ledger",
        "spare_pool",
        "samplers",
    ),
}
"""What the user was doing, and where its errors are raised; the first match counts."""


class Message(NamedTuple):
    """One message as it stands in the code, `{...}` for what is filled in."""

    module: str
    line: int
    error: str
    text: str


def messages() -> list[Message]:
    """All of them that a person may see."""
    found = (m for path in sorted(SOURCE.rglob("*.py")) for m in _messages_of(path))
    return [m for m in found if not m.module.startswith(INSIDE) and m.error not in ANSWERS]


def _messages_of(path: Path) -> Iterator[Message]:
    module = path.relative_to(SOURCE).with_suffix("").as_posix()
    tree = ast.parse(path.read_text())
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        place = 0 if name in RAISING else WRAPPERS.get(name)
        if place is not None and len(node.args) > place:
            error = name if name in RAISING else "BundleCorruptError"
            for text in _texts(node.args[place], constants):
                if name == "corrupt":
                    text = CORRUPT % text
                yield Message(module, node.lineno, error, text)


def _texts(node: ast.expr, constants: Mapping[str, str]) -> Iterator[str]:
    """The message; of a choice between two, both."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body, constants)
        yield from _texts(node.orelse, constants)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(_part(part, constants) for part in node.values)
    elif isinstance(node, ast.BinOp):
        yield "".join(next(_texts(side, constants)) for side in (node.left, node.right))
    else:
        yield _hole(node)


def _part(node: ast.expr, constants: Mapping[str, str]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    if isinstance(node.value, ast.Name) and node.value.id in constants:
        return constants[node.value.id]
    return _hole(node.value)


def _hole(node: ast.expr) -> str:
    """A short name of what is filled in."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name.strip('_').lower()}}}"
        case ast.Call(func=ast.Name(id="len"), args=[_]):
            return "{number}"
        case ast.Call(func=ast.Name(id="str" | "sorted" | "list" | "name"), args=[inner, *_]):
            return _hole(inner)
    return "{...}"


def group_of(module: str) -> str:
    """What somebody was doing who meets an error of this module."""
    for title, places in GROUPS.items():
        if any(module == place or module.startswith(f"{place}/") for place in places):
            return title
    raise AssertionError(f"{module} raises errors and is in no group of GROUPS")


HEAD = """\
# Errors

Every error message that cutlock raises on purpose, grouped by what you were doing. A command prints
it as one line, `error: ...`, on stderr, and exits with a code from
[this table](command-line.md#exit-codes). In Python it is an exception of the family
`cutlock.errors.CutlockError`.

Each message says what was found and then what to do about it. `{...}` stands for a value. A
`MisuseError` or an `InvariantError` is not about your data. Either the calling code has to change,
or a bug in cutlock was stopped before it could do harm. In both cases the run ends and can be
resumed from its last bundle.

This page is generated from the code (`python -m tests.support.error_messages`), and a test compares
the two.
"""


def page() -> str:
    """docs/errors.md."""
    by_group: dict[str, dict[tuple[str, str], None]] = {title: {} for title in GROUPS}
    for message in messages():
        by_group[group_of(message.module)][message.error, message.text] = None
    parts = [HEAD]
    for title, found in by_group.items():
        parts.append(f"## {title}\n\n| error | message |\n| --- | --- |")
        rows = sorted(found, key=lambda row: (row[0], row[1].lstrip("{`")))
        parts[-1] += "".join(f"\n| `{error}` | {_cell(text)} |" for error, text in rows) + "\n"
    return "\n".join(parts)


def _cell(text: str) -> str:
    """As Markdown: what is filled in is code, unless it stands in code already."""
    parts = " ".join(text.split()).split("`")
    for number, part in enumerate(parts):
        if number % 2:
            parts[number] = f"`{part}`"
        else:
            part = part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
            parts[number] = re.sub(
                r"\{[^}]*\}", lambda hole: f"`{hole[0]}`".replace("\\_", "_"), part
            )
    return "".join(parts).replace("|", "\\|").replace("``", "` `")


if __name__ == "__main__":
    PAGE.write_text(page())
