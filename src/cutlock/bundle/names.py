"""Names of the directories in a run directory; a name says how far its save has come."""

from __future__ import annotations

import enum
import re

__all__ = ["Place", "directory_name", "parse_name"]


class Place(enum.StrEnum):
    """Where a save stands; the value is the prefix of its directory's name."""

    PUBLISHED = ""
    """`step_N`: the only resolvable name."""
    TEMPORARY = "tmp_"
    """`tmp_step_N`: being written, or left by a save that died; `tmp_step_N.2` the second try."""
    TRASH = "trash_"
    """`trash_step_N`: being removed."""
    ABANDONED = "abandoned_"
    """`abandoned_step_N`: of a timeline that somebody went back from."""


_NAME = re.compile(r"(tmp_|trash_|abandoned_|)step_(0|[1-9][0-9]*)(?:\.[0-9]+)?")


def directory_name(place: Place, step: int, copy: int = 1) -> str:
    """Name of a step's directory; `copy` tells later ones with the same step apart."""
    name = f"{place}step_{step}"
    return name if copy == 1 else f"{name}.{copy}"


def parse_name(name: str) -> tuple[Place, int] | None:
    """Place and step of a directory's name; None if it is none of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    place, step = Place(match[1]), int(match[2])
    if "." in name and place not in {Place.ABANDONED, Place.TEMPORARY}:
        return None
    return place, step
