"""Reads a TLC configuration as far as the rules of checking need it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cutlock.errors import ConfigError
from cutlock.tlc.values import Value, parse_value

__all__ = ["Config", "read_config"]

_COMMENT = re.compile(r"\(\*.*?\*\)|\\\*[^\n]*", re.DOTALL)
_TOKEN = re.compile(r'"[^"]*"|<-|[=,{}\[\]()]|[^\s=,{}\[\]()"<]+|<')
_SECTIONS = {
    "CONSTANT": "constants",
    "CONSTANTS": "constants",
    "INIT": "behaviour",
    "NEXT": "behaviour",
    "SPECIFICATION": "behaviour",
    "INVARIANT": "invariants",
    "INVARIANTS": "invariants",
    "PROPERTY": "properties",
    "PROPERTIES": "properties",
    "SYMMETRY": "symmetry",
    "VIEW": "view",
    "CONSTRAINT": "constraints",
    "CONSTRAINTS": "constraints",
    "ACTION_CONSTRAINT": "action_constraints",
    "ACTION_CONSTRAINTS": "action_constraints",
}
# TLC 2.15 takes these for one more name in the list above them, or fails without a word.
_TOO_NEW = ("ALIAS", "CHECK_DEADLOCK", "POSTCONDITION", "_PERIODIC", "_RL_REWARD")


@dataclass(frozen=True)
class Config:
    """The names that a configuration lists, by what they are listed as."""

    path: Path
    sections: Mapping[str, tuple[str, ...]]

    def __getitem__(self, section: str) -> tuple[str, ...]:
        return self.sections.get(section, ())

    @property
    def promises(self) -> tuple[str, ...]:
        """Invariants and properties: what can be reported as violated."""
        return self["invariants"] + self["properties"]

    @property
    def constants(self) -> dict[str, Value]:
        """The values that constants are given; operators that are overridden have none.

        Raises:
            ToolError: a value is none of TLA+.
        """
        tokens = self["constants"]
        given: dict[str, list[str]] = {}
        value: list[str] = []
        for place, token in enumerate(tokens):
            if tokens[place + 1 : place + 2] in (("=",), ("<-",)):
                value = []
                if tokens[place + 1] == "=":
                    given[token] = value
            elif token not in {"=", "<-"}:
                value.append(token)
        return {name: parse_value(" ".join(value)) for name, value in given.items()}


def read_config(path: Path) -> Config:
    """Read a configuration.

    Raises:
        ConfigError: there is none, it has a keyword that the pinned TLC lacks, or something
            stands before the first keyword.
    """
    try:
        text = _COMMENT.sub(" ", path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"configuration {path} cannot be read: {error}; mend its name in the manifest"
        ) from error
    sections: dict[str, tuple[str, ...]] = {}
    section = None
    for token in _TOKEN.findall(text):
        if token in _TOO_NEW:
            raise ConfigError(
                f"{path}: the pinned TLC has no {token}; "
                "switch deadlock checking off with `deadlock = false` in the manifest, "
                "and do without the others"
            )
        if token in _SECTIONS:
            section = _SECTIONS[token]
            sections.setdefault(section, ())
        elif section is None:
            raise ConfigError(f"{path}: {token!r} stands before the first keyword; begin with one")
        else:
            sections[section] += (token,)
    return Config(path, sections)
