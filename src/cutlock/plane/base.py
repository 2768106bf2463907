"""The data plane: where rollout tensors live, and nowhere else.

`DataPlane` is what the controller needs of a store of rows; `BootstrapPlane` is what the
driver needs to restore one. Both implementations (`MemoryPlane`, `TransferQueuePlane`) pass
one contract suite, `tests/contract/`.

A *row* is one sibling of a prompt group: one tensor per field under a key that is never
used twice. A tensor has at least one dimension (a number is a row of one element), and a
field has one dtype and one number of dimensions. All keys of a run live in one partition.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from cutlock.errors import PlaneError

if TYPE_CHECKING:
    import torch  # what only names its types does not wait seconds for it

__all__ = [
    "READABLE_VERSIONS",
    "STAMP_FILE",
    "BootstrapPlane",
    "DataPlane",
    "DelegatingPlane",
    "Fields",
    "Inventory",
    "PlaneInfo",
    "PlaneStamp",
    "RestorablePlane",
    "SnapshotMode",
    "StampFile",
    "read_stamp",
    "require_loadable",
    "take_inventory",
    "write_stamp",
]

T = TypeVar("T")

Fields: TypeAlias = "Mapping[str, Sequence[torch.Tensor]]"
"""Field name to one tensor per key, in the order of the keys.

Within one put the shapes of a field may differ in one dimension.
"""

READABLE_VERSIONS: Mapping[str, tuple[str, ...]] = {
    "memory": ("1",),
    "transfer_queue": ("0.1.10", "0.1.11"),
}
"""By kind of store, the versions whose snapshots load into each other."""

SnapshotMode = Literal["aside", "request"]
"""How a storage unit writes its rows: `aside` is concurrently with its requests, `request` is as
one of them, for which all others wait. What is loaded is the same."""

STAMP_FILE = "metadata.json"
"""File in a snapshot directory, written last, that holds the caller's stamp."""


class PlaneInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a snapshot needs from the plane that loads it."""

    kind: str
    """`memory` or `transfer_queue`."""
    version: str
    """Version of the store's software; recorded, compared on load."""
    units: int
    """Number of storage units; a snapshot loads only into the same number."""


class PlaneStamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's values that a snapshot carries inside, to bind it to one cut.

    Source: design, section 9: what binds the rows to index and ledger.
    """

    cut_id: str
    """sha256 over everything that the cut read; equal in every artifact of one bundle."""
    step: int
    version: int
    index_digest: str
    index_groups: int
    ledger_sha256: str
    ledger_groups: int
    plane: PlaneInfo


class StampFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `STAMP_FILE`; the layout is TransferQueue's, which reads it on load."""

    storage_saved: bool
    user_metadata: PlaneStamp


def write_stamp(directory: Path, stamp: PlaneStamp) -> None:
    """Mark the snapshot in `directory` as whole. Nothing is synced: the bundle does that."""
    content = msgspec.json.encode(StampFile(storage_saved=True, user_metadata=stamp))
    (directory / STAMP_FILE).write_bytes(msgspec.json.format(content))


def read_stamp(directory: Path) -> PlaneStamp:
    """Read the stamp of a snapshot; JSON only, so it may be read before any digest is checked.

    Raises:
        PlaneError: there is no stamp, so the snapshot never ended, or it cannot be read.
    """
    path = directory / STAMP_FILE
    try:
        metadata = msgspec.json.decode(path.read_bytes(), type=StampFile)
    except FileNotFoundError:
        raise PlaneError(
            f"{path} does not exist: the snapshot never ended; restore an older bundle"
        ) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlaneError(f"{path} holds no stamp ({error}); restore an older bundle") from error
    if not metadata.storage_saved:
        raise PlaneError(f"{path} says that no rows were saved; restore an older bundle")
    return metadata.user_metadata


def require_loadable(snapshot: PlaneInfo, store: PlaneInfo, versions: Collection[str]) -> None:
    """Raise unless a snapshot of `snapshot` loads into a `store` that reads `versions`.

    Raises:
        PlaneError: the kind or the number of units differs, or the version is not readable.
    """
    if snapshot.kind != store.kind:
        raise PlaneError(
            f"the snapshot is of a {snapshot.kind!r} store and this is {store.kind!r}; "
            f"resume with the plane {snapshot.kind!r}"
        )
    if snapshot.units != store.units:
        raise PlaneError(
            f"the snapshot has {snapshot.units} storage units and the store has {store.units}; "
            f"start the store with {snapshot.units} units"
        )
    if snapshot.version not in versions:
        raise PlaneError(
            f"the snapshot was written by {snapshot.kind} {snapshot.version} and this store "
            f"reads {', '.join(sorted(versions))}; install a version that reads it"
        )


class DataPlane(Protocol):
    """A connect-only client: reads and writes rows, writes snapshots, never restores.

    Every call ends within the client's limit or raises `PlaneTimeoutError` naming the call,
    the limit and the number of keys. A call that was cancelled by its caller, or has timed
    out, may still take effect in the store: callers shield `put` and `clear` (see
    `barrier.Slot.run`). A failure of the store is a `PlaneError`, which names the unit if
    one unit is at fault.

    A store of which a part is dead or hangs is lost to the client: the calls under way and
    every later one raise `PlaneLostError` at once, naming the part. A call that passed its
    limit says so too, unless it was a snapshot, which may just be large, or the disk slow.
    """

    @property
    def info(self) -> PlaneInfo:
        """Kind, version and number of units of the connected store."""
        ...

    @property
    def splits_snapshot(self) -> bool:
        """Whether other rows may come and go between `snapshot_index` and the end of
        `snapshot_rows`, as under the narrow cut; else nothing is put or cleared meanwhile.
        """
        ...

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        """Store copies of rows, or add or overwrite fields of existing rows.

        When it returns, the rows can be read. When it raises after its checks, the new keys
        may be listed, with none, some or all of the data: clear them.

        Raises:
            PlaneError: `keys` is empty or repeats one, `fields` is empty, or a field has
                another number of rows, or rows that do not belong into one field (see the
                module's docstring); nothing was changed. Or the store failed.
        """
        ...

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> dict[str, list[torch.Tensor]]:
        """Read copies of the named fields of the rows, in the order of `keys`, on the CPU.

        `keys` may repeat one and may be empty.

        Raises:
            RowsMissingError: a key is unknown or lacks a field; the message names them.
            PlaneError: `fields` is empty, or the store failed.
        """
        ...

    async def clear(self, keys: Sequence[str]) -> None:
        """Delete rows; unknown keys and an empty sequence are no error.

        Raises:
            PlaneError: a unit did not delete its rows; the keys stay listed.
        """
        ...

    async def list_keys(self) -> list[str]:
        """All keys of the plane, whether their fields are produced yet or not, sorted."""
        ...

    async def snapshot_index(self, directory: Path) -> None:
        """Write the store's key map into an existing `directory` (the controller part).

        Taken before `snapshot_rows`; the keys in it are those that a load brings back.

        Raises:
            PlaneError: there is no such directory, or the store could not write.
        """
        ...

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """Write the rows of every unit, then `metadata.json` with `stamp`, last.

        If it `splits_snapshot`, other rows come and go meanwhile, while those that the snapshot is
        for stay as they are.

        After an error, a time-out or a cancellation there is no stamp, and the store may go
        on writing for a while: a new snapshot needs a new directory.

        Raises:
            PlaneError: `directory` has no index part, `stamp.plane` is not `info`, or the
                store could not write.
        """
        ...

    async def close(self) -> None:
        """Close this client only; the store and other clients go on."""
        ...


class DelegatingPlane:
    """A `DataPlane` in front of another one, for clients that add something to a few calls.

    Args:
        plane: the client that every call is passed on to.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    def _pass_on(self, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """What is awaited for a call of the other client: the call, unless a subclass has it
        made elsewhere, as in another thread.
        """
        return call

    @property
    def info(self) -> PlaneInfo:
        """See `DataPlane.info`."""
        return self._plane.info

    @property
    def splits_snapshot(self) -> bool:
        """See `DataPlane.splits_snapshot`."""
        return self._plane.splits_snapshot

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        """See `DataPlane.put`."""
        await self._pass_on(self._plane.put(keys, fields))

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> dict[str, list[torch.Tensor]]:
        """See `DataPlane.get`."""
        return await self._pass_on(self._plane.get(keys, fields))

    def clear(self, keys: Sequence[str]) -> Coroutine[Any, Any, None]:
        """See `DataPlane.clear`."""
        return self._pass_on(self._plane.clear(keys))

    async def list_keys(self) -> list[str]:
        """See `DataPlane.list_keys`."""
        return await self._pass_on(self._plane.list_keys())

    async def snapshot_index(self, directory: Path) -> None:
        """See `DataPlane.snapshot_index`."""
        await self._pass_on(self._plane.snapshot_index(directory))

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """See `DataPlane.snapshot_rows`."""
        await self._pass_on(self._plane.snapshot_rows(directory, stamp))

    async def close(self) -> None:
        """See `DataPlane.close`."""
        await self._pass_on(self._plane.close())


class Inventory(NamedTuple):
    """The rows that a store lists, beside those that the index owns."""

    listed: Collection[str]
    """Keys of the rows that the store has."""
    missing: list[str]
    """Keys of rows of the index that the store has not, sorted."""
    unowned: list[str]
    """Keys of rows of the store that the index does not own, sorted."""


async def take_inventory(plane: DataPlane, owned: Collection[str]) -> Inventory:
    """Compare the rows of a store with those that the index owns."""
    listed, indexed = set(await plane.list_keys()), set(owned)
    return Inventory(listed, sorted(indexed - listed), sorted(listed - indexed))


class RestorablePlane(Protocol):
    """A store that can be restored, once and while nobody uses it."""

    async def require_untouched(self) -> None:
        """Show that no client has used the store, and that no other client is connected.

        Raises:
            PlaneTouchedError: naming what was found (index counter, partitions, clients).
        """
        ...

    async def load(self, directory: Path, keep: Collection[str] | None = None) -> None:
        """Replace the store's state by a snapshot whose file digests the caller has verified.

        Data without a key, of rows that were put between the two parts, is not brought back.

        Args:
            keep: keys of the rows to bring back; None for all that the snapshot has.
        Calls `require_untouched` before and checks the counter after.

        Raises:
            PlaneTouchedError: somebody has used the store, or used it during the load.
            PlaneError: the snapshot is of another kind, number of units or version, and
                nothing was changed; or the store refused.

        After an error that came once loading had begun, the store is unusable and says so.
        """
        ...


class BootstrapPlane(RestorablePlane, Protocol):
    """The driver's client: starts the store, restores it once, stops it."""

    @property
    def info(self) -> PlaneInfo:
        """Kind, version and number of units of the store that it started."""
        ...

    async def connect(self) -> DataPlane:
        """A new client of the store; a run makes its own when the store has been restored."""
        ...

    async def stop(self) -> None:
        """Stop the store; every client of it is dead afterwards."""
        ...
