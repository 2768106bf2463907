"""What both planes refuse, and the words of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from cutlock.errors import PlaneError, PlaneTimeoutError, RowsMissingError
from cutlock.plane.base import Fields, PlaneInfo, PlaneStamp

__all__ = [
    "check_directory",
    "check_get",
    "check_put",
    "check_stamp",
    "closed",
    "missing_fields",
    "missing_keys",
    "name",
    "timed_out",
    "what_of",
]

_NAMED = 5


def name(keys: Sequence[str]) -> str:
    """The first few keys, quoted, and how many more there are."""
    named = ", ".join(repr(key) for key in keys[:_NAMED])
    return named if len(keys) <= _NAMED else f"{named} and {len(keys) - _NAMED} more"


def check_put(keys: Sequence[str], fields: Fields) -> None:
    """Raise `PlaneError` unless the rows can be stored; see `DataPlane.put`."""
    if not keys:
        raise PlaneError("a put of no keys; name at least one row")
    for key in keys:
        if not isinstance(key, str):
            raise PlaneError(f"the row key {key!r} is not a string; use strings only")
    if len(set(keys)) != len(keys):
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        raise PlaneError(f"a put repeats {name(repeated)}; give every row a key of its own")
    if not fields:
        raise PlaneError(f"a put of {len(keys)} keys names no field; give at least one")
    for field, rows in fields.items():
        if len(rows) != len(keys):
            raise PlaneError(
                f"field {field!r} has {len(rows)} rows for {len(keys)} keys; "
                "give one tensor per key"
            )
        _check_rows(field, keys, rows)


def _check_rows(field: str, keys: Sequence[str], rows: Sequence[torch.Tensor]) -> None:
    first = rows[0]
    for key, row in zip(keys, rows, strict=True):
        if not isinstance(row, torch.Tensor) or row.is_nested or row.is_sparse:
            raise PlaneError(
                f"field {field!r} of {key!r} is {type(row).__name__}; give a dense tensor"
            )
        if row.dim() == 0:
            raise PlaneError(
                f"field {field!r} of {key!r} has no dimension; give a row of one element"
            )
        if row.dtype != first.dtype or row.dim() != first.dim():
            raise PlaneError(
                f"field {field!r} is {first.dtype} with {first.dim()} dimensions in {keys[0]!r} "
                f"and {row.dtype} with {row.dim()} in {key!r}; give both the same"
            )
    ragged = [dim for dim in range(first.dim()) if len({row.shape[dim] for row in rows}) > 1]
    if len(ragged) > 1:
        raise PlaneError(
            f"the rows of field {field!r} differ in the dimensions {ragged}; pad all but one"
        )


def check_get(keys: Sequence[str], fields: Sequence[str]) -> None:
    """Raise `PlaneError` unless the question makes sense; see `DataPlane.get`."""
    if not fields:
        raise PlaneError(f"a get of {len(keys)} keys names no field; give at least one")


def check_directory(directory: Path) -> None:
    """Raise `PlaneError` unless a snapshot can be written into `directory`."""
    if not directory.is_dir():
        raise PlaneError(f"{directory} is not a directory; make it before the snapshot")


def check_stamp(stamp: PlaneStamp, info: PlaneInfo, index_file: Path) -> None:
    """Raise `PlaneError` unless the rows of `info` may follow `index_file` under `stamp`."""
    if stamp.plane != info:
        raise PlaneError(f"the stamp is for {stamp.plane} and this store is {info}; stamp that")
    if not index_file.is_file():
        raise PlaneError(f"{index_file} does not exist; call snapshot_index first")


def missing_keys(keys: Sequence[str]) -> RowsMissingError:
    """The error for keys that the store does not have."""
    return RowsMissingError(
        f"the plane has no row {name(keys)}; ask only for rows of the index, "
        "and clear a row only when it has left the index"
    )


def missing_fields(fields: Sequence[str], keys: Sequence[str]) -> RowsMissingError:
    """The error for fields that rows do not have (yet)."""
    return RowsMissingError(
        f"{name(keys)} has no field {name(fields)}; put the field first, or wait for its put"
    )


def what_of(call: str, keys: int | None) -> str:
    """A call and the number of its keys, if it has any, in words."""
    return call if keys is None else f"{call} of {keys} keys"


def timed_out(
    call: str, limit_s: float, keys: int | None, debtor: object = None
) -> PlaneTimeoutError:
    """The error for a call that did not end within its limit.

    Args:
        keys: number of keys of the call, if it has any.
        debtor: the part of the store that was waited for, if that is known.
    """
    waited_for = "" if debtor is None else f", waiting for {debtor},"
    undecided = "give up this snapshot directory, " if call.startswith("snapshot") else ""
    if keys is not None:
        undecided = "give up these rows, "
    return PlaneTimeoutError(
        f"{what_of(call, keys)} did not end within {limit_s:g} s (plane.limit_s){waited_for} and "
        f"may still take effect; {undecided}look at the store, or raise the limit"
    )


def closed(call: str) -> PlaneError:
    """The error for a call on a client that was closed."""
    return PlaneError(f"{call} on a closed client; connect a new one")
