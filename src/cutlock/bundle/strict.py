"""Strict reading of the bundle's own files: what does not fit is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cutlock.errors import BundleCorruptError

__all__ = ["corrupt", "decode_json", "decode_msgpack"]

T = TypeVar("T")

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([0-9]+)\]")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""What decoding raises, over nesting and numbers without end too."""


class _Schema(msgspec.Struct):
    schema: int


def corrupt(bundle: Path, file: str, what: str) -> BundleCorruptError:
    """The error for a file that cannot be trusted, with the way out."""
    # A name from the disk may hold anything, also what would move the cursor of a terminal.
    name = file if file.isprintable() else ascii(file)
    return BundleCorruptError(
        f"{bundle}: {name}: {what}; do not mend it by hand, resume from an older bundle",
        bundle,
    )


def decode_json(data: bytes, kind: type[T], schema: int | None, bundle: Path, file: str) -> T:
    """Decode JSON into a struct, which has a `schema` field unless `schema` is None.

    Raises:
        BundleCorruptError: another schema, an unknown field or phase, a wrong type; the
            message names file, field and value.
    """
    return _decode(msgspec.json.decode, data, kind, schema, bundle, file)


def decode_msgpack(data: bytes, kind: type[T], schema: int | None, bundle: Path, file: str) -> T:
    """Decode msgpack into a struct with a `schema` field; raises as `decode_json`."""
    return _decode(msgspec.msgpack.decode, data, kind, schema, bundle, file)


def _decode(
    decoder: Callable[..., Any],
    data: bytes,
    kind: type[T],
    schema: int | None,
    bundle: Path,
    file: str,
) -> T:
    try:
        if schema is not None and (found := decoder(data, type=_Schema).schema) != schema:
            raise corrupt(
                bundle, file, f"schema {found} was found and schema {schema} is what is read here"
            )
        decoded: T = decoder(data, type=kind)
    except msgspec.ValidationError as error:
        raise corrupt(bundle, file, _explain(error, decoder, data)) from error
    except _UNDECODABLE as error:
        raise corrupt(bundle, file, f"cannot be decoded: {error}") from error
    return decoded


def _explain(error: msgspec.ValidationError, decoder: Callable[..., Any], data: bytes) -> str:
    message, _, path = str(error).partition(" - at `")
    path = path.removesuffix("`").removeprefix("$")
    try:
        value = decoder(data)
    except _UNDECODABLE as malformed:
        return f"{message}, and cannot be decoded: {malformed}"
    for name, index in _STEP.findall(path):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            break
    if (unknown := _UNKNOWN_FIELD.search(message)) and isinstance(value, dict):
        value = value.get(unknown[1])
    return f"{message} at {path.removeprefix('.') or 'the top'}, found {_shorten(value)}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
