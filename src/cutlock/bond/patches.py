"""What is changed in the code while a fault is switched in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Patch", "patched"]


@dataclass(frozen=True)
class Patch:
    """An attribute of a class or module, and what it is while a fault is switched in."""

    owner: object
    name: str
    value: object

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within this block it is that."""
        before = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.value)
        try:
            yield
        finally:
            setattr(self.owner, self.name, before)


@contextlib.contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Within this block all of them are in place."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch.applied())
        yield
