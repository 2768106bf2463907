"""Predicates that are checked and that no mutant breaks: nobody has seen them fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cutlock.tlc.manifest import Manifest, Mode
from cutlock.tlc.outcome import Verdict

__all__ = ["unbroken"]

_EXTENDS = re.compile(r"^\s*EXTENDS\s+(\w+(?:\s*,\s*\w+)*)", re.MULTILINE)


def unbroken(manifest: Manifest) -> tuple[str, ...]:
    """What rows check to hold and no row of mode mutant breaks, as `MODULE!PREDICATE`.

    Two modules may have predicates of one name; a mutant stands for that of its own.

    Raises:
        ConfigError: a configuration or a module cannot be read.
    """
    checked: dict[str, None] = {}
    broken: set[str] = set()
    for model in manifest.models:
        if model.mode is Mode.MUTANT:
            if model.property is not None:
                broken.add(_defined(manifest, model.module, model.property))
        elif model.expected is Verdict.SUCCESS:
            for name in manifest.config(model).promises:
                checked[_defined(manifest, model.module, name)] = None
    return tuple(predicate for predicate in checked if predicate not in broken)


def _defined(manifest: Manifest, module: str, name: str) -> str:
    """The predicate with the module that defines it: this one, or one that it extends."""
    definition = re.compile(rf"^\s*{re.escape(name)}\s*==", re.MULTILINE)
    for home, text in _extended(manifest, module):
        if definition.search(text):
            return f"{home}!{name}"
    return f"{module}!{name}"


def _extended(manifest: Manifest, module: str) -> Iterator[tuple[str, str]]:
    """The module and those that it extends, with their texts; not those of the library."""
    path = manifest.module_path(module)
    if path is None:
        return
    text = path.read_text()
    yield module, text
    found = _EXTENDS.search(text)
    for extended in re.split(r"\s*,\s*", found[1]) if found else ():
        yield from _extended(manifest, extended)
