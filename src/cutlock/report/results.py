"""What `--json` writes, and the JSON Schema of it.

A result is one object: the fields of the command's result type, after two that say what it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["SCHEMA_VERSION", "document", "schema_of", "write_whole"]

SCHEMA_VERSION = 1
"""Raised when a field of a result goes away or changes its meaning; new fields may come."""

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def document(command: str, result: object) -> dict[str, object]:
    """A result with its head."""
    fields = msgspec.to_builtins(result, str_keys=True)
    return {"command": command, "schema_version": SCHEMA_VERSION, **fields}


def schema_of(command: str, result: type) -> dict[str, Any]:
    """The JSON Schema of `document(command, ...)`.

    Args:
        result: a struct, or a dataclass.
    """
    (reference,), definitions = msgspec.json.schema_components([result])
    name = reference["$ref"].rpartition("/")[2]
    root = definitions.pop(name)
    for definition in [root, *definitions.values()]:
        if "properties" in definition:
            definition["required"] = [*definition["properties"]]  # nothing is left out
    head = {"command": {"const": command}, "schema_version": {"const": SCHEMA_VERSION}}
    return {
        "$schema": _DRAFT,
        **root,
        "title": f"cutlock {command} --json",
        "properties": {**head, **root["properties"]},
        "required": [*head, *root["required"]],
        "$defs": definitions,
    }


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody sees a part of it; its directory is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    os.replace(partial, path)
