"""TransferQueue as the data plane; the only module that imports `transfer_queue`.

TransferQueue 0.1.10 and 0.1.11 answer several questions with less than was asked for, and
some calls with nothing at all. What this adapter adds to them:

- connecting never starts a store (`tq.init` would), and closing never stops one: every
  `TransferQueuePlane` is a client object of its own beside the process-wide one;
- rows go out as jagged tensors: a dense put is stored once per row of the batch;
- a get counts what came back: unknown keys and unread fields are left out in silence;
- a put looks afterwards whether its rows can be read: a lost notice is only logged;
- a clear fails, and frees nothing, if a unit does not answer: it would report success;
- a unit writes its part of a snapshot beside its requests, which would wait for it;
- every call has a limit, and ends as soon as a part is dead: a dead controller is waited for
  without end, a dead unit for minutes, by every call anew (see `cutlock.plane.liveness`).

A put or clear that has begun is never cancelled, because what it does next would hit
whichever row has its index by then: it goes on when its caller is cancelled or timed out, and
a clear waits for this client's unfinished puts of the same keys.

Ray has to be initialised by the process itself; see also `cutlock.plane.loopback`.

Source: design, section 8.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

# TransferQueue reads both when it is imported. Its limit for a unit's answer would come in the
# way of those here, and name no way out; and it would warn in every call that 8 threads are more
# than a small machine has cores.
os.environ["TQ_SIMPLE_STORAGE_SEND_RECV_TIMEOUT"] = "86400"
os.environ.setdefault("TQ_NUM_THREADS", str(min(8, max(1, (os.cpu_count() or 1) // 2))))

import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from ray.exceptions import RayActorError
from tensordict import TensorDict
from transfer_queue.client import AsyncTransferQueueClient
from transfer_queue.storage.managers import (
    AsyncSimpleStorageManager,
    StorageManagerFactory,
)

from cutlock.errors import (
    ConnectError,
    PlaneError,
    PlaneTimeoutError,
    PlaneTouchedError,
    RowsMissingError,
)
from cutlock.plane.base import (
    READABLE_VERSIONS,
    Fields,
    PlaneInfo,
    PlaneStamp,
    SnapshotMode,
    read_stamp,
    require_loadable,
    write_stamp,
)
from cutlock.plane.checks import (
    check_directory,
    check_get,
    check_put,
    check_stamp,
    closed,
    missing_fields,
    missing_keys,
    name,
    what_of,
)
from cutlock.plane.concurrent_snapshot import write_concurrently
from cutlock.plane.liveness import LivenessProbe, Part

__all__ = [
    "INDEX_FILE",
    "LIMIT_S",
    "LOADABLE_VERSIONS",
    "UNIT_LIMIT_S",
    "TransferQueueBootstrap",
    "TransferQueuePlane",
]

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

LIMIT_S = 120.0
"""Default limit of one call in seconds; a snapshot is one call too."""

UNIT_LIMIT_S = 60.0
"""Default of the seconds for which a storage unit may owe answers to puts, gets and clears and
give none. The time that it needs for its part of a snapshot does not count."""

INDEX_FILE = "controller_state.pkl"
"""The index part of a snapshot; the name is the one that `tq.load_checkpoint` looks for."""

LOADABLE_VERSIONS = READABLE_VERSIONS["transfer_queue"]
"""Versions whose snapshots load into each other; the format itself carries none."""

_NOTICES_S = 5.0
"""Seconds that cancelled notices get to end; they wait for nothing any more."""

_CONTROLLER = "TransferQueueController"
_UNIT = "TransferQueueStorageUnit"
_NAMESPACE = "transfer_queue"
_BACKEND = "SimpleStorage"
_STRICT_BACKEND = "CutlockSimpleStorage"

# A client that becomes garbage instead waits, inside the collector and for ever, for its own
# sockets, which are garbage together with it.
_open_clients: set[Any] = set()


@StorageManagerFactory.register(_STRICT_BACKEND)
class _StrictManager(AsyncSimpleStorageManager):  # type: ignore[misc]
    """TransferQueue's way to its units, which knows what each of them owes.

    Its clear says when a unit did not delete, its snapshot when one has written elsewhere.
    """

    units: Mapping[str, Part]
    """The units by their ids; set, like the rest, by the plane that the client is of."""
    actors: Mapping[str, str]
    """The names of their Ray actors."""
    concurrent: bool
    """Whether they write snapshots beside their requests; see `concurrent_snapshot`."""
    probe: LivenessProbe

    async def _put_to_single_storage_unit(
        self, *arguments: Any, target_storage_unit: str, **named: Any
    ) -> None:
        with self.probe.asking(self.units[target_storage_unit]):
            await super()._put_to_single_storage_unit(
                *arguments, target_storage_unit=target_storage_unit, **named
            )

    async def _get_from_single_storage_unit(
        self, *arguments: Any, target_storage_unit: str, **named: Any
    ) -> Any:
        with self.probe.asking(self.units[target_storage_unit]):
            return await super()._get_from_single_storage_unit(
                *arguments, target_storage_unit=target_storage_unit, **named
            )

    async def _clear_single_storage_unit(
        self, *arguments: Any, target_storage_unit: str, **named: Any
    ) -> None:
        with self.probe.asking(self.units[target_storage_unit]):
            await super()._clear_single_storage_unit(
                *arguments, target_storage_unit=target_storage_unit, **named
            )

    async def _save_single_storage_unit(self, path: str, *, target_storage_unit: str) -> None:
        if not (self.concurrent and await self._save_concurrently(path, target_storage_unit)):
            await super()._save_single_storage_unit(path, target_storage_unit=target_storage_unit)
        if not Path(path).is_file():
            raise PlaneError(
                f"{self.units[target_storage_unit]} says that it has written {path}, and it is "
                "not there; give all nodes one directory for the run"
            )

    async def _save_concurrently(self, path: str, unit: str) -> bool:
        """Whether the unit has written; if Ray does not reach it, a request shows why."""
        try:
            for actor in await _in_thread(lambda: _actors(self.actors[unit])):
                if await write_concurrently(actor, unit, path):
                    return True
            why = "Ray has no actor of that name that is this unit and keeps its rows in memory"
        except (ValueError, RayActorError) as error:
            why = str(error)
        _LOG.warning(
            "storage unit %s writes its rows as a request, and puts, gets and clears wait for it, "
            "in spite of plane.snapshot = 'aside': %s",
            self.actors[unit],
            why,
        )
        return False

    async def clear_data(self, metadata: Any) -> None:
        groups = self._group_by_hash(metadata.global_indexes)
        answers = await asyncio.gather(
            *(
                self._clear_single_storage_unit(group.global_indexes, target_storage_unit=unit)
                for unit, group in groups.items()
            ),
            return_exceptions=True,
        )
        failed = [
            f"{self.units[unit]}: {answer!r}"
            for unit, answer in zip(groups, answers, strict=True)
            if isinstance(answer, BaseException)
        ]
        if failed:
            raise PlaneError("; ".join(failed))


class TransferQueuePlane:
    """A client of a TransferQueue that runs in this process's Ray cluster; see `DataPlane`.

    Made by `connect`. It belongs to the event loop in which it is used first.
    """

    def __init__(
        self,
        client: Any,
        config: Any,
        partition: str,
        limit_s: float,
        unit_limit_s: float,
        snapshot: SnapshotMode,
    ) -> None:
        units = config.backend[_BACKEND].zmq_info
        named = {unit.id: _part(f"storage unit {name}", unit) for name, unit in units.items()}
        controller = _part(
            f"the TransferQueue controller {_CONTROLLER}", config.controller.zmq_info
        )
        self._probe = LivenessProbe([controller, *named.values()], unit_limit_s)
        client.storage_manager.units = named
        client.storage_manager.actors = {unit.id: name for name, unit in units.items()}
        client.storage_manager.concurrent = snapshot == "aside"
        client.storage_manager.probe = self._probe
        self._client = client
        self._info = _info(len(units))
        self._partition = partition
        self._limit_s = limit_s
        self._closed = False
        self._running: set[asyncio.Task[None]] = set()
        self._puts: dict[asyncio.Task[None], frozenset[str]] = {}

    @classmethod
    async def connect(
        cls,
        partition: str,
        *,
        limit_s: float = LIMIT_S,
        unit_limit_s: float = UNIT_LIMIT_S,
        snapshot: SnapshotMode = "aside",
    ) -> TransferQueuePlane:
        """Connect to the running store; never starts one.

        Args:
            partition: where all keys of the run live.
            limit_s: limit of this and of every later call, in seconds.
            unit_limit_s: see `UNIT_LIMIT_S`.
            snapshot: see `SnapshotMode`.

        Raises:
            ConnectError: Ray is not initialised, no store runs or it does not answer, or it
                keeps its rows in another back-end than SimpleStorage.
        """
        try:
            async with asyncio.timeout(limit_s) as limit:
                config = await _config_of(await _controller())
                client = await _in_thread(lambda: _client_for(config), _close_client)
        except ConnectError:
            raise
        except Exception as error:
            late = f"did not answer within {limit_s:g} s (plane.limit_s)"
            why = late if limit.expired() else f"failed ({error})"
            raise ConnectError(
                f"the TransferQueue in this Ray cluster {why}; "
                "see whether its controller is alive, or restart it in the driver"
            ) from error
        return cls(client, config, partition, limit_s, unit_limit_s, snapshot)

    @property
    def info(self) -> PlaneInfo:
        """Kind, version and number of units of the connected store."""
        return self._info

    @property
    def splits_snapshot(self) -> bool:
        """See `DataPlane.splits_snapshot`."""
        return True

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        """See `DataPlane.put`."""
        check_put(keys, fields)
        self._require_open("put")
        rows = {field: _jagged(field, column) for field, column in fields.items()}
        batch = TensorDict(rows, batch_size=[len(keys)])
        task = self._begin("put", self._put(list(keys), batch))
        self._puts[task] = frozenset(keys)
        task.add_done_callback(self._puts.pop)
        await self._bounded("put", len(keys), asyncio.shield(task))

    async def _put(self, keys: list[str], batch: Any) -> None:
        metadata = await self._find(keys, create=True)
        if metadata.size != len(keys):
            raise PlaneError(
                f"put: the store reserved {metadata.size} rows for {len(keys)} keys; "
                f"clear {name(keys)} and put them again"
            )
        await self._client.async_put(batch, metadata)
        stored = await self._find(keys)
        unread = sorted(set(batch.keys()) - set(stored.field_names))
        if stored.size != len(keys) or unread:
            raise PlaneError(
                f"put: the store took {name(unread)} of {name(keys)} and does not list it as "
                "produced; clear the keys and put them again"
            )

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> dict[str, list[torch.Tensor]]:
        """See `DataPlane.get`."""
        check_get(keys, fields)
        self._require_open("get")
        if not keys:
            return {field: [] for field in fields}
        return await self._bounded("get", len(keys), self._get(list(keys), list(fields)))

    async def _get(self, keys: list[str], fields: list[str]) -> dict[str, list[torch.Tensor]]:
        metadata = await self._find(keys)
        if metadata.size != len(keys):
            known = await self._known()
            raise missing_keys([key for key in dict.fromkeys(keys) if key not in known])
        unread = [field for field in fields if field not in metadata.field_names]
        if unread:
            raise missing_fields(unread, await self._lacking(keys, metadata, unread))
        try:
            batch = await self._client.async_get_data(metadata.select_fields(fields))
        except tq.StorageKeyNotFoundError as error:
            raise RowsMissingError(
                f"no data for one of {name(keys)}, which are listed as produced ({error}); "
                "restore the store from the last bundle"
            ) from error
        rows = {field: _rows(batch.get(field)) for field in fields}
        short = [field for field, column in rows.items() if len(column) != len(keys)]
        if short:
            raise RowsMissingError(
                f"the store returned {len(rows[short[0]])} rows of {short[0]!r} for "
                f"{len(keys)} keys; restore the store from the last bundle"
            )
        return rows

    async def _lacking(self, keys: list[str], metadata: Any, fields: list[str]) -> list[str]:
        """The keys without all of `fields`."""
        readable: set[int] = set(metadata.global_indexes)
        for field in fields:
            indexes, produced = await self._client.async_get_production_status(
                [field], self._partition
            )
            if indexes is None:
                return keys
            readable &= set(indexes[produced.flatten() == 1].tolist())
        return [k for k, i in zip(keys, metadata.global_indexes, strict=True) if i not in readable]

    async def clear(self, keys: Sequence[str]) -> None:
        """See `DataPlane.clear`."""
        self._require_open("clear")
        if keys:
            task = self._begin("clear", self._clear(list(dict.fromkeys(keys))))
            await self._bounded("clear", len(keys), asyncio.shield(task))

    async def _clear(self, keys: list[str]) -> None:
        unfinished = [task for task, held in self._puts.items() if not held.isdisjoint(keys)]
        if unfinished:
            await asyncio.wait(unfinished)
        metadata = await self._find(keys)
        if metadata.size:
            await self._client.async_clear_samples(metadata)

    async def list_keys(self) -> list[str]:
        """See `DataPlane.list_keys`; of the connected partition."""
        self._require_open("list_keys")
        return sorted(await self._bounded("list_keys", None, self._known()))

    async def snapshot_index(self, directory: Path) -> None:
        """See `DataPlane.snapshot_index`."""
        self._require_open("snapshot_index")
        check_directory(directory)
        # Absolute, because the controller and the units open it in their own working folders.
        path = directory.absolute() / INDEX_FILE
        await self._bounded(
            "snapshot_index",
            None,
            self._client.async_save_controller_checkpoint(str(path)),
            slow=True,
        )

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """See `DataPlane.snapshot_rows`."""
        self._require_open("snapshot_rows")
        directory = directory.absolute()
        check_directory(directory)
        check_stamp(stamp, self._info, directory / INDEX_FILE)
        await self._bounded(
            "snapshot_rows",
            None,
            self._client.async_save_storage_checkpoint(str(directory)),
            slow=True,
        )
        write_stamp(directory, stamp)

    async def close(self) -> None:
        """See `DataPlane.close`; waits, within the limit, for puts and clears that go on.

        Of a store that is lost there is nothing to wait for.

        Raises:
            PlaneTimeoutError: some did not end; the client is closed all the same.
        """
        if self._closed:
            return
        self._closed = True
        lost = self._probe.lost
        unfinished: Collection[asyncio.Task[None]] = self._running
        if unfinished:
            _, unfinished = await asyncio.wait(unfinished, timeout=0 if lost else self._limit_s)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        self._probe.close()
        _close_client(self._client)
        if unfinished and not lost:
            raise PlaneTimeoutError(
                f"close: {len(unfinished)} puts or clears did not end within {self._limit_s:g} s; "
                "what they did is not known: restart the store and restore it"
            )

    def _require_open(self, call: str) -> None:
        if self._closed:
            raise closed(call)
        self._probe.require(call)

    def _begin(self, call: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that goes on to its end whatever happens to its caller."""
        task = asyncio.create_task(work, name=f"transfer_queue {call}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _bounded(
        self, call: str, keys: int | None, work: Awaitable[T], *, slow: bool = False
    ) -> T:
        return await self._probe.bounded(
            call, keys, self._limit_s, work, foreign=_refusal(call, keys), slow=slow
        )

    async def _find(self, keys: list[str], *, create: bool = False) -> Any:
        return await self._client.async_kv_retrieve_meta(
            keys=keys, partition_id=self._partition, create=create
        )

    async def _known(self) -> Mapping[str, object]:
        """The keys of the partition; an unknown partition has none."""
        partitions = await self._client.async_kv_list(self._partition)
        keys: Mapping[str, object] = partitions.get(self._partition, {})
        return keys


class TransferQueueBootstrap:
    """The driver's client: owner of the TransferQueue of a Ray cluster; see `BootstrapPlane`.

    Made by `start`.
    """

    def __init__(self, controller: Any, units: int, limit_s: float) -> None:
        self._controller = controller
        self._info = _info(units)
        self._limit_s = limit_s
        self._unusable: str | None = None

    @classmethod
    async def start(
        cls, units: int = 2, *, limit_s: float = LIMIT_S, metrics: bool = False
    ) -> TransferQueueBootstrap:
        """Start a TransferQueue in the Ray cluster that this process is connected to.

        The controller and each unit take one of Ray's CPUs. There is one TransferQueue in a
        Ray cluster, because its name is fixed.

        Args:
            units: number of storage units; rows have no capacity limit.
            limit_s: limit of this and of every later call, in seconds.
            metrics: whether it serves its own Prometheus metrics, on a free port.

        Raises:
            PlaneError: one runs already, Ray has too few CPUs, or it did not come up.
            ConnectError: Ray is not initialised in this process.
        """
        if await _in_thread(_find_controller) is not None:
            raise PlaneError(
                "a TransferQueue runs in this Ray cluster already; "
                "connect to it with TransferQueuePlane, or stop it first"
            )
        cpus = ray.cluster_resources().get("CPU", 0)
        if cpus < units + 1:
            raise PlaneError(
                f"a controller and {units} storage units need {units + 1} CPUs of Ray, "
                f"which has {cpus:g}; give ray.init a higher num_cpus, or start fewer units"
            )
        config = OmegaConf.create(
            {
                # Polling: an unanswerable question gives an empty answer, not an error that
                # the controller logs.
                "controller": {"polling_mode": True},
                "metrics": {"enabled": metrics, "port": 0},
                "backend": {
                    "storage_backend": _BACKEND,
                    _BACKEND: {"num_data_storage_units": units, "total_storage_size": None},
                },
            }
        )
        await LivenessProbe().bounded(
            "start", None, limit_s, _in_thread(lambda: tq.init(config)), foreign=_refusal("start")
        )
        return cls(await _controller(), units, limit_s)

    @property
    def info(self) -> PlaneInfo:
        """Kind, version and number of units of the store."""
        return self._info

    async def metrics_url(self) -> str | None:
        """Where the store serves its metrics; None if it does not."""
        endpoint = await self._bounded("metrics_url", _in_thread(tq.get_metrics_endpoint))
        return None if endpoint is None else f"http://{endpoint}/metrics"

    async def connect(self, partition: str = "rollouts") -> TransferQueuePlane:
        """See `BootstrapPlane.connect`; with other limits, call `TransferQueuePlane.connect`."""
        return await TransferQueuePlane.connect(partition, limit_s=self._limit_s)

    async def require_untouched(self) -> None:
        """See `BootstrapPlane.require_untouched`."""
        self._require_usable("require_untouched")

        def read(store: Any) -> tuple[int, list[str], list[str]]:
            return (
                store.index_manager.global_index_counter,
                sorted(store.partitions),
                sorted(store._connected_storage_managers),
            )

        counter, partitions, clients = await self._ask("require_untouched", read)
        found = []
        if counter:
            found.append(f"index counter at {counter}")
        if partitions:
            found.append(f"partitions {name(partitions)}")
        others = self._others(clients)
        if others:
            found.append(f"{len(others)} other clients")
        if found:
            raise PlaneTouchedError(
                f"the TransferQueue is not untouched: {', '.join(found)}; "
                "start a new one and let nobody connect before it is restored"
            )

    async def load(self, directory: Path, keep: Collection[str] | None = None) -> None:
        """See `BootstrapPlane.load`."""
        self._require_usable("load")
        directory = directory.absolute()
        require_loadable(read_stamp(directory).plane, self._info, LOADABLE_VERSIONS)
        index_file = directory / INDEX_FILE
        if not index_file.is_file():
            raise PlaneError(f"{index_file} does not exist; restore an older bundle")
        await self.require_untouched()
        self._unusable = "was left half loaded"
        await self._bounded("load", _in_thread(lambda: tq.load_checkpoint(directory)))

        def read(store: Any, path: str) -> tuple[bool, int, int, list[str], dict[str, Any]]:
            import pickle

            # The controller has just loaded this very file.
            with open(path, "rb") as file:
                saved = pickle.load(file)["index_manager"]
            now = store.index_manager
            return (
                now.reusable_indexes == saved["reusable_indexes"],
                now.global_index_counter,
                saved["global_index_counter"],
                sorted(store._connected_storage_managers),
                {name: part.keys_mapping for name, part in store.partitions.items()},
            )

        answer = await self._ask("load", read, str(index_file))
        same_free, counter, expected, clients, listed = answer
        others = self._others(clients)
        if others or counter != expected or not same_free:
            self._unusable = "was used while it was loaded"
            raise PlaneTouchedError(
                f"the TransferQueue was used while {directory} was loaded: {len(others)} other "
                f"clients, index counter at {counter} instead of {expected}; "
                "start a new one and let nobody connect before it is restored"
            )
        await self._drop_all_but(keep, listed)
        self._unusable = None

    async def _drop_all_but(
        self, keep: Collection[str] | None, listed: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Drop other rows; and data without a key, which would stay until its index is reused.

        Args:
            listed: partition to key to index.
        """
        kept = None if keep is None else set(keep)
        owned = []
        for partition, keys in listed.items():
            unowned = [] if kept is None else [key for key in keys if key not in kept]
            owned += [index for key, index in keys.items() if kept is None or key in kept]
            if unowned:
                clear = functools.partial(tq.kv_clear, unowned, partition)
                await self._bounded("load", _in_thread(clear))
        units = range(self._info.units)
        await asyncio.gather(*(self._drop_orphans(unit, owned) for unit in units))

    async def _drop_orphans(self, unit: int, owned: list[int]) -> None:

        def drop(unit: Any, owned: list[int]) -> None:
            data = unit.storage_data
            data.clear(list(data._active_keys.difference(owned)))

        actor = await _in_thread(lambda: ray.get_actor(f"{_UNIT}#{unit}"))
        await self._ask("load", drop, owned, of=actor)

    async def stop(self) -> None:
        """See `BootstrapPlane.stop`."""
        self._unusable = "was stopped"
        await self._bounded("stop", _in_thread(lambda: _stop(self._limit_s)))

    def _require_usable(self, call: str) -> None:
        if self._unusable is not None:
            raise PlaneError(
                f"{call}: the TransferQueue {self._unusable}; start a new one and restore it"
            )

    def _others(self, clients: Sequence[str]) -> list[str]:
        """Clients but this one; TransferQueue never forgets one that has connected."""
        own = tq.get_client().storage_manager.storage_manager_id
        return [client for client in clients if client != own]

    async def _ask(
        self, call: str, question: Callable[..., T], *arguments: object, of: Any = None
    ) -> T:
        """Run `question` in the controller or in `of`; a local function travels as code."""
        actor = self._controller if of is None else of
        answer = actor.__ray_call__.remote(question, *arguments)
        return await self._bounded(call, asyncio.wrap_future(answer.future()))

    async def _bounded(self, call: str, work: Awaitable[T]) -> T:
        return await LivenessProbe().bounded(
            call, None, self._limit_s, work, foreign=_refusal(call), slow=True
        )


def _refusal(call: str, keys: int | None = None) -> Callable[[Exception], PlaneError]:
    """Makes a `PlaneError` of what the library raises."""
    return lambda error: PlaneError(
        f"{what_of(call, keys)} failed: {error}; if a unit or the controller is dead, "
        "start a new TransferQueue and restore it from the last bundle"
    )


async def _in_thread(
    work: Callable[[], T], discard: Callable[[T], object] = lambda result: None
) -> T:
    """Run blocking work in a daemon thread; a result that nobody waits for is discarded.

    Not in the default executor: a thread of it that hangs would keep the process from ending.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="transfer_queue", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(
            lambda late: discard(late.result()) if late.exception() is None else None
        )
        raise


def _info(units: int) -> PlaneInfo:
    return PlaneInfo(kind="transfer_queue", version=tq.__version__, units=units)


def _part(name: str, server: Any) -> Part:
    ports = server.ports
    return Part(name, server.ip, ports.get("put_get_socket") or ports["request_handle_socket"])


def _actors(name: str) -> list[Any]:
    """The actors of that name in all namespaces: units are in that of whoever started them.

    Raises:
        ValueError: one of them has just gone.
    """
    return [
        ray.get_actor(name, namespace=actor["namespace"])
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["name"] == name
    ]


def _find_controller() -> Any | None:
    """The store's controller, None if there is none."""
    if not ray.is_initialized():
        raise ConnectError("Ray is not initialised in this process; call ray.init first")
    try:
        return ray.get_actor(_CONTROLLER, namespace=_NAMESPACE)
    except ValueError:
        return None


async def _controller() -> Any:
    controller = await _in_thread(_find_controller)
    if controller is None:
        raise ConnectError(
            "no TransferQueue runs in this Ray cluster; "
            "start one in the driver with TransferQueueBootstrap.start"
        )
    return controller


async def _config_of(controller: Any) -> Any:
    """The store's configuration; waits for a store that is still starting."""
    while True:
        config = await asyncio.wrap_future(controller.get_config.remote().future())
        if config is None:
            await asyncio.sleep(0.1)
        elif config.backend.storage_backend == _BACKEND:
            return config
        else:
            raise ConnectError(
                f"the store keeps its rows in {config.backend.storage_backend}, of which "
                f"cutlock cannot take a snapshot; start it with {_BACKEND}"
            )


def _client_for(config: Any) -> Any:
    """A new client object; raises within seconds if the controller does not shake hands."""
    client = AsyncTransferQueueClient(
        client_id=f"cutlock_{os.getpid()}_{uuid.uuid4().hex[:8]}",
        controller_info=config.controller.zmq_info,
    )
    try:
        client.initialize_storage_manager(_STRICT_BACKEND, config.backend[_BACKEND])
    except BaseException:
        client.close()
        raise
    _open_clients.add(client)
    return client


def _close_client(client: Any) -> None:
    _end_notices(client.storage_manager)
    client.close()
    _open_clients.discard(client)


def _end_notices(manager: Any) -> None:
    """End the notices of puts that were given up, before the loop that they run in stops."""

    async def end() -> None:
        notices = asyncio.all_tasks() - {asyncio.current_task()}
        for notice in notices:
            notice.cancel()
        await asyncio.gather(*notices, return_exceptions=True)

    if manager._notify_loop.is_running():
        ended = asyncio.run_coroutine_threadsafe(end(), manager._notify_loop)
        concurrent.futures.wait([ended], timeout=_NOTICES_S)


def _stop(limit_s: float) -> None:
    """Stop the TransferQueue that this process has started, and wait until its name is free.

    For no longer than whoever has asked waits for it: the thread would go on for ever.
    """
    tq.close()
    given_up = time.monotonic() + limit_s
    while _find_controller() is not None and time.monotonic() < given_up:
        time.sleep(0.05)


def _jagged(field: str, rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """One copy of all rows. A dense batch would be stored whole for every row in it."""
    return torch.nested.as_nested_tensor([row.detach().cpu() for row in rows], layout=torch.jagged)


def _rows(packed: Any) -> list[torch.Tensor]:
    """The rows of a field as TransferQueue packed them; lists where shapes do not fit."""
    rows = packed.unbind() if isinstance(packed, torch.Tensor) else packed.tolist()
    return [row.contiguous() for row in rows]
