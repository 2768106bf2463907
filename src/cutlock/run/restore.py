"""The ordered restore: each stage takes what only the stage before it can make.

`verify_for_resume` proves the bundle whole, decodes it, and checks the configuration, all
without changing anything. `load_plane` fills an untouched store through the bootstrap
client. `connect_plane` makes the connect-only client, `restore_state` the controller's
state, and only `Restored` starts the loops. Another order does not type-check and does not run.

Source: spec actions `VerifyBundle` to `RestoreCursor`; design, section 10.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

import msgspec

from cutlock.alphabet import Action
from cutlock.bundle.contents import TrainingInfo, decode_cut, read_training_info
from cutlock.bundle.layout import DATA_PLANE, POLICY
from cutlock.bundle.publication import scan
from cutlock.bundle.verification import VerifiedBundle, verify
from cutlock.errors import (
    AuditError,
    BundleCorruptError,
    BundleNotFoundError,
    CapacityError,
    ConfigError,
    ConfigMismatchError,
    InventoryError,
    MisuseError,
    RestoreError,
    RowsMissingError,
)
from cutlock.plane.base import (
    READABLE_VERSIONS,
    DataPlane,
    PlaneInfo,
    RestorablePlane,
    take_inventory,
)
from cutlock.plane.pinning import PinningPlane
from cutlock.records import Phase, Snapshot
from cutlock.run.capture import given_back
from cutlock.run.config import RunConfig, parse_config
from cutlock.run.directory import RunDirectory
from cutlock.run.resume_rules import require_resumable
from cutlock.run.state import Facts, RunState, StartPhase
from cutlock.samplers import is_restorable
from cutlock.workers.base import DERIVED_FIELDS, GENERATED_FIELDS, PromptSet

__all__ = [
    "PlaneConnected",
    "PlaneReady",
    "Restored",
    "ResumePlan",
    "connect_plane",
    "load_plane",
    "read_bundle",
    "require_stage",
    "restore_state",
    "verify_for_resume",
    "with_way_out",
]

_TOKEN = object()


@dataclasses.dataclass(frozen=True)
class _Stage:
    """Made by the function of its stage only; copies by pickling are copies of such."""

    _token: object = dataclasses.field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._token is not _TOKEN:
            raise MisuseError(
                f"{type(self).__name__} is not made by hand; call the function of its stage"
            )

    def __reduce__(self) -> tuple[object, ...]:
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "_token"
        }
        return _rebuild, (type(self), values)


def require_stage(what: object, kind: type[_Stage], caller: str) -> None:
    """Raise MisuseError unless the stage before has been gone through."""
    if not isinstance(what, kind):
        raise MisuseError(
            f"{caller} takes a {kind.__name__}, not a {type(what).__name__}; the stages are "
            "verify_for_resume, load_plane, connect_plane, restore_state, in this order"
        )


def _rebuild(kind: type[_Stage], values: dict[str, object]) -> _Stage:
    return kind(_TOKEN, **values)


@dataclasses.dataclass(frozen=True)
class ResumePlan(_Stage):
    """A verified bundle that fits the configuration; nothing has been changed yet."""

    bundle: Path
    config: RunConfig
    snapshot: Snapshot
    """What will be restored; without rows its index is empty and its ledger longer."""
    info: TrainingInfo
    sequence: int

    @property
    def plane_directory(self) -> Path | None:
        """Verified files of the plane; None if no rows are restored."""
        return self.bundle / DATA_PLANE if self.snapshot.index else None

    @property
    def row_keys(self) -> set[str]:
        """Keys of the rows of the index."""
        return {key for entry in self.snapshot.index for key in entry.row_keys}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train: no launch is needed to find that out."""
        cut, budget = self.snapshot, self.config.max_steps
        served = cut.loader.epoch >= self.config.epochs
        idle = not (cut.ledger or cut.index or cut.spare_pool)
        return (served and idle) or (budget is not None and cut.step >= budget)

    @property
    def policy_directory(self) -> Path:
        """Verified files of the trainer."""
        return self.bundle / POLICY


@dataclasses.dataclass(frozen=True)
class PlaneReady(_Stage):
    """A store that holds what the plan says, or nothing for a run that starts afresh."""

    plan: ResumePlan | None


@dataclasses.dataclass(frozen=True)
class PlaneConnected(_Stage):
    """The connect-only client of a store that was restored before it connected."""

    ready: PlaneReady
    plane: PinningPlane


@dataclasses.dataclass(frozen=True)
class Restored(_Stage):
    """A controller's state that is complete: loops may start."""

    state: RunState
    saved_step: int | None


def verify_for_resume(
    bundle: Path,
    prompts: Callable[[RunConfig], PromptSet],
    config: RunConfig | None = None,
    *,
    with_rows: bool = True,
    readable: Mapping[str, Collection[str]] = READABLE_VERSIONS,
) -> ResumePlan:
    """Check everything about a resume that can be checked before anything is launched.

    Args:
        prompts: builds the data set of a configuration.
        config: the configuration to go on with; None for the saved one.
        with_rows: False generates the finished groups of the bundle again.
        readable: by kind of store, the versions whose rows can be read.

    Raises:
        BundleCorruptError: naming the file, and the last bundle that does verify.
        ConfigMismatchError: a field changed that must not.
        CapacityError: the finished groups do not fit.
        RestoreError: the sampler does not take restored groups.
    """
    verified, info, snapshot = read_bundle(bundle)
    try:
        saved = parse_config(info.config)
    except ConfigError as error:
        raise RestoreError(
            f"{bundle}: the saved configuration is not one of this version: {error}; resume "
            f"with the versions that wrote it: {info.packages}"
        ) from error
    now = config or saved
    rows = with_rows and info.rows
    require_resumable(saved, now, with_rows=rows)
    _require_same_prompts(info, prompts(now))
    if rows and info.plane is not None:
        _require_readable(bundle, info.plane, readable)
    if not rows:
        snapshot = msgspec.structs.replace(
            snapshot, ledger=(*given_back(snapshot.index), *snapshot.ledger), index=()
        )
    if snapshot.index and not is_restorable(now.sampler):
        raise RestoreError(
            f"{bundle} holds {len(snapshot.index)} finished groups and the sampler "
            f"{now.plain()['sampler']} declares restorable = False; resume with --without-rows "
            "to generate them again"
        )
    _require_places(bundle, snapshot, saved, now)
    if snapshot.loader.epoch > now.epochs:
        raise ConfigMismatchError(
            f"epochs is {now.epochs} and the bundle is in epoch {snapshot.loader.epoch} of "
            f"the {saved.epochs} that it was saved with; "
            f"resume with epochs of at least {snapshot.loader.epoch}"
        )
    return ResumePlan(_TOKEN, bundle, now, snapshot, info, verified.manifest.sequence)


def read_bundle(bundle: Path) -> tuple[VerifiedBundle, TrainingInfo, Snapshot]:
    """Verify a bundle, and decode what it says of itself and of its cut.

    Raises:
        BundleCorruptError: naming the file, and the last bundle that does verify.
    """
    try:
        verified = verify(bundle)
        return verified, read_training_info(verified), decode_cut(verified)
    except BundleCorruptError as error:
        raise with_way_out(error, bundle) from error


def with_way_out(error: BundleCorruptError, bundle: Path) -> BundleCorruptError:
    """The same error, with the newest other bundle of the run that verifies."""
    try:
        run_id = RunDirectory(bundle.parent).facts().run_id
    except (AuditError, BundleNotFoundError):
        run_id = None
    for other in reversed(scan(bundle.parent, run_id).bundles):
        if other.path == bundle:
            continue
        try:
            decode_cut(verify(other.path))
        except (BundleCorruptError, BundleNotFoundError):
            continue
        return BundleCorruptError(
            f"{error}; the last bundle that verifies is {other.path.name}: resume with "
            f"--bundle {other.path.name}",
            bundle,
        )
    return BundleCorruptError(f"{error}; no other bundle in {bundle.parent} verifies", bundle)


def _require_same_prompts(info: TrainingInfo, now: PromptSet) -> None:
    if info.data_set_digest != now.digest:
        raise ConfigMismatchError(
            f"the data set was {info.data_set} (digest {info.data_set_digest[:16]}) when the "
            f"bundle was saved and is {now.name}, {len(now)} prompts (digest "
            f"{now.digest[:16]}) now; its position means nothing in another data set, so use "
            "the saved one"
        )


def _require_readable(
    bundle: Path, plane: PlaneInfo, readable: Mapping[str, Collection[str]] = READABLE_VERSIONS
) -> None:
    versions = readable.get(plane.kind, ())
    if plane.version not in versions:
        raise ConfigMismatchError(
            f"the rows of {bundle} were written by {plane.kind} {plane.version} and this version "
            f"reads {', '.join(versions) or 'none of that kind'}; install a version that reads "
            "them, or resume with --without-rows"
        )


def _require_places(bundle: Path, snapshot: Snapshot, saved: RunConfig, now: RunConfig) -> None:
    """Refuse finished groups that leave no places in which the next step can be finished.

    They keep their places until their own steps train. Under the saved capacity the
    unfinished groups of an older step had places beside them, under a smaller one they may
    find none, and the run would wait for ever.
    """
    finished, capacity = len(snapshot.index), now.capacity()
    unfinished = any(record.phase is Phase.ADMITTED for record in snapshot.ledger)
    needed = finished
    if finished and unfinished and capacity < saved.capacity():
        needed += now.prompts_per_step
    if needed > capacity:
        raise CapacityError(
            f"{bundle} holds {finished} finished groups and the buffer capacity is {capacity}; "
            f"resume with buffer.capacity of at least {min(needed, saved.capacity())}, or with "
            "--without-rows"
        )


async def load_plane(plan: ResumePlan | None, bootstrap: RestorablePlane) -> PlaneReady:
    """Bring the rows of the plan into a store that nobody has used.

    Raises:
        PlaneTouchedError: somebody has; start a new store.
    """
    if plan is not None:
        require_stage(plan, ResumePlan, "load_plane")
    if plan is None or plan.plane_directory is None:
        await bootstrap.require_untouched()
    else:
        # Others were put while the rows of a narrow cut were written.
        await bootstrap.load(plan.plane_directory, keep=plan.row_keys)
    return PlaneReady(_TOKEN, plan)


async def connect_plane(
    ready: PlaneReady, connect: Callable[[], Awaitable[DataPlane]]
) -> PlaneConnected:
    """Make the controller's own client, and show that the store holds exactly the index.

    Raises:
        InventoryError: a row of the index is not in the store or has no data, or another row is
            there.
    """
    require_stage(ready, PlaneReady, "connect_plane")
    plane = PinningPlane(await connect(), DERIVED_FIELDS)
    indexed = set() if ready.plan is None else ready.plan.row_keys
    found = await take_inventory(plane, indexed)
    if found.missing:
        raise InventoryError(
            f"{len(found.missing)} of {len(indexed)} rows of the index are not in the restored "
            f"plane, e.g. {found.missing[:4]}; resume with --without-rows"
        )
    if found.unowned:
        raise InventoryError(
            f"the plane holds {len(found.unowned)} rows that the index does not own, e.g. "
            f"{found.unowned[:4]}; somebody uses it: give the run a store of its own, and resume"
        )
    if indexed:
        # All fields of a row come in one put, so that the smallest one tells of all.
        try:
            await plane.get(sorted(indexed), GENERATED_FIELDS[-1:])
        except RowsMissingError as error:
            raise InventoryError(
                f"rows of the index have no data in the restored plane ({error}); resume with "
                "--without-rows"
            ) from error
    return PlaneConnected(_TOKEN, ready, plane)


async def restore_state(connected: PlaneConnected, state: RunState) -> Restored:
    """Fill the controller's state from the plan: index, permits, spares, ledger, cursor.

    Args:
        state: built for the connected plane, and empty.

    Raises:
        InvariantError: what is restored contradicts itself; no loop was started.
    """
    require_stage(connected, PlaneConnected, "restore_state")
    if state.plane is not connected.plane:
        raise MisuseError(
            "the state is built on another plane than the one that was restored; build it on that"
        )
    plan = connected.ready.plan
    if plan is None:
        return Restored(_TOKEN, state, None)
    snapshot, events = plan.snapshot, state.events
    rows = sum(len(entry.row_keys) for entry in snapshot.index)
    events.record(
        Action.VERIFY_BUNDLE,
        bundle=plan.bundle.name,
        step=snapshot.step,
        incarnation=plan.info.incarnation,
        log_records=plan.info.log_records,
    )
    events.record(Action.LOAD_PLANE, rows=rows)
    events.record(Action.CONNECT_PLANE)
    phases = state.phases
    owned = {entry.group_id for entry in snapshot.index}
    async with state.barrier.mutation("restore") as slot:

        async def index() -> Facts:
            state.buffer.restore(slot, snapshot.index, state.permits.capacity)
            state.permits.take(len(snapshot.index))
            phases.start = StartPhase.INDEXED
            return {"groups": [entry.group_id for entry in snapshot.index]}

        async def spare_pool() -> Facts:
            state.pool.restore(slot, snapshot.spare_pool)
            phases.start = StartPhase.POOLED
            return {"groups": [spare.key for spare in snapshot.spare_pool]}

        async def ledger() -> Facts:
            state.ledger.restore(slot, snapshot.ledger, snapshot.next_admission, owned)
            state.shortfall.restore(slot, snapshot.shortfall)
            state.dropped = snapshot.dropped
            state.trained = plan.info.trained_groups
            phases.start = StartPhase.OWNED
            return {"groups": [record.group_id for record in snapshot.ledger]}

        async def cursor() -> Facts:
            state.loader.restore(slot, snapshot.loader)
            state.sampler.restore_cursor(slot, snapshot.cursor)
            state.step = snapshot.step
            state.next_selection = snapshot.step
            if snapshot.version:
                state.version.raise_to(snapshot.version)
            phases.start = StartPhase.RESTORED
            return {"cursor": snapshot.cursor}

        phases.start = StartPhase.CONNECTED
        await state.act(Action.RESTORE_INDEX, index)
        await state.act(Action.RESTORE_SPARE_POOL, spare_pool)
        await state.act(Action.RESTORE_LEDGER, ledger)
        await state.act(Action.RESTORE_CURSOR, cursor)
    return Restored(_TOKEN, state, snapshot.step)
