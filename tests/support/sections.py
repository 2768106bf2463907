"""Proofs that prove nothing, for tests of what a mutator or a reader refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cutlock.barrier import Barrier
from cutlock.errors import DeadSectionError, ForeignSectionError
from tests.support.loop import entered


@contextmanager
def _new(barrier: Barrier, side: str) -> Iterator[Any]:
    yield _section(barrier, side)


@contextmanager
def _dead(barrier: Barrier, side: str) -> Iterator[Any]:
    with entered(_section(barrier, side)) as section:
        pass
    yield section


@contextmanager
def _foreign(barrier: Barrier, side: str) -> Iterator[Any]:
    with entered(_section(Barrier(), side)) as section:
        yield section


@contextmanager
def _other_side(barrier: Barrier, side: str) -> Iterator[Any]:
    with entered(_section(barrier, "cut" if side == "slot" else "slot")) as section:
        yield section


def _section(barrier: Barrier, side: str) -> Any:
    return barrier.mutation("test") if side == "slot" else barrier.checkpoint()


_NO_PROOFS = {
    "new": (_new, DeadSectionError),
    "dead": (_dead, DeadSectionError),
    "foreign": (_foreign, ForeignSectionError),
    "other side": (_other_side, ForeignSectionError),
}

no_proof = pytest.mark.parametrize("no_proof", list(_NO_PROOFS))
"""Run a test with each of them; the argument goes to `refuses`."""


def refuses(no_proof: str, barrier: Barrier, side: str, call: Callable[[Any], object]) -> None:
    """Show that `call` refuses such a section of that side."""
    make, error = _NO_PROOFS[no_proof]
    with make(barrier, side) as section, pytest.raises(error):
        call(section)
