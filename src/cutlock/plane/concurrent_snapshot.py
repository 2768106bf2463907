"""A concurrent snapshot: a storage unit writes its rows while it goes on answering.

A unit answers in one thread. TransferQueue saves in that thread too, as one request among
others, and every put, get and clear that comes meanwhile waits for the whole of it. Here the
save is a call of the unit's Ray actor, whose own thread has nothing else to do. The writer is
TransferQueue's but for one thing: a row is written as its bytes. Torch would write each of them
as a file of its own inside the file, for up to ten times the time, and read it back so. What
`tq.load_checkpoint` reads is the same.

The rows are those of the moment at which the call begins, because a unit replaces a value and
never changes one. Only a row that is put or cleared in this very moment may be written with some
of its fields, so the rows that a snapshot is for must be left as they are (design, section 8,
rules 2 and 3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cutlock.errors import PlaneError

__all__ = ["write_concurrently"]

_SWITCH_S = 0.0001
"""For how many seconds the writer may keep a request from going on, as far as Python can help it.
Python's own 5 ms are waited for several times in one request."""


async def write_concurrently(unit: Any, unit_id: str, path: str) -> bool:
    """Have the Ray actor `unit` write its rows to `path`, an absolute one.

    False, and nothing is written, if it is another unit than `unit_id`, or keeps rows on disk,
    where a clear deletes them under the writer.

    Raises:
        PlaneError: it could not write.
        RayActorError: it is dead, or was not reached.
    """
    answer = unit.__ray_call__.remote(_writer(), unit_id, path, _SWITCH_S)
    outcome: dict[str, Any] | None = await asyncio.wrap_future(answer.future())
    if outcome is None:
        return False
    if not outcome["success"]:
        raise PlaneError(
            f"storage unit {unit_id} could not write {path}: {outcome.get('message')}; "
            "see to the disk of its node"
        )
    return True


def _writer() -> Callable[..., dict[str, Any] | None]:
    """What runs in the unit; a local function, so that it travels as code."""

    def write(unit: Any, unit_id: str, path: str, switch_s: float) -> dict[str, Any] | None:
        import copy
        import sys
        from types import FunctionType, MethodType, SimpleNamespace

        rows = copy.copy(unit.storage_data)
        if unit.storage_unit_id != unit_id or getattr(rows, "ssd_offload_enabled", False):
            return None
        rows.field_data = {field: dict(column) for field, column in [*rows.field_data.items()]}
        rows._active_keys = set().union(*rows.field_data.values())
        save = type(rows).save_checkpoint
        of_bytes = FunctionType(
            save.__code__,
            {**save.__globals__, "pickle": pickle_of_bytes()},
            closure=save.__closure__,
        )
        rows.save_checkpoint = MethodType(of_bytes, rows)
        still = copy.copy(unit)
        still.storage_data = rows
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(switch_s)
        try:
            answer = still._handle_save_checkpoint(SimpleNamespace(body={"path": path}))
        finally:
            sys.setswitchinterval(usual_s)
        body: dict[str, Any] = answer.body
        return body

    def pickle_of_bytes() -> Any:
        """The module `pickle`, whose `dump` writes a dense tensor as its bytes.

        Anything else is written as it always is. What is named in the file is torch's.
        """
        import functools
        import pickle
        from types import SimpleNamespace

        import torch

        class Flat:
            """The elements of a tensor."""

            def __init__(self, tensor: torch.Tensor) -> None:
                self.tensor = tensor

        # One object for each type, which a file names once.
        of_type = functools.cache(lambda dtype: functools.partial(torch.frombuffer, dtype=dtype))

        class Pickler(pickle.Pickler):
            def reducer_override(self, value: Any) -> Any:
                if value.__class__ is Flat:
                    tensor = value.tensor
                    elements: Any = tensor.view(-1).view(torch.uint8).numpy()
                    return of_type(tensor.dtype), (pickle.PickleBuffer(elements),)
                if value.__class__ is torch.Tensor and plain(value):
                    return torch.reshape, (Flat(value), tuple(value.shape))
                return NotImplemented

        def plain(tensor: torch.Tensor) -> bool:
            return (
                tensor.layout is torch.strided
                and tensor.is_cpu
                and tensor.is_contiguous()
                and tensor.numel() > 0
                and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())
                and not tensor.is_quantized
            )

        def dump(value: Any, file: Any, protocol: int) -> None:
            Pickler(file, protocol).dump(value)

        return SimpleNamespace(**{**vars(pickle), "dump": dump})

    return write
