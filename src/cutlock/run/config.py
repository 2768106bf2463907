"""The configuration of a run, read from TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from cutlock.errors import CapacityError, ConfigError
from cutlock.records import digest_of
from cutlock.samplers import SamplerConfig, build_sampler, parse_sampler
from cutlock.samplers.config import InOrderConfig, refusal

if TYPE_CHECKING:
    from cutlock.plane.base import DataPlane

__all__ = [
    "BufferConfig",
    "CheckpointConfig",
    "CutMode",
    "FailureConfig",
    "MetricsConfig",
    "PlaneConfig",
    "RunConfig",
    "TaskConfig",
    "WatchdogConfig",
    "WorkerConfig",
    "load_config",
    "parse_config",
]

CutMode: TypeAlias = Literal["narrow", "full"]

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class BufferConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Places for groups that are generated or finished and not yet selected."""

    capacity: Positive | None = None
    """Groups; None takes what the sampler needs."""
    max_in_flight: Positive | None = None
    """Groups generated at the same time; None for all that have a place."""
    spare_prompts: NotNegative = 0
    """Low-water mark of the spare pool; below it a whole batch is held back. 0: no pool."""


class CheckpointConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When and how bundles are written."""

    every: Positive = 5
    """Training steps between saves; the last step is always saved."""
    cut: CutMode | None = None
    """`narrow`: nothing waits but for one step in memory and the copy of the trainer; all files
    are written while the run goes on. `full`: rows are written in a window in which nothing
    moves, the other files while the trainer waits. The same promises either way. None: narrow,
    or full on a plane that has to be left alone while it writes its rows."""
    keep: Positive = 3
    """Bundles to keep."""
    rows: bool = True
    """Save finished groups with their tensors. False gives their prompts back to the ledger,
    so that they are generated again after a restart: a small bundle, nothing lost."""
    limit_s: Seconds = 300.0
    """Longest time of one save, from its directory to its publication. What the plane does in
    it has limits of its own, and can pass this one by as much."""
    failures_in_a_row: Positive = 3
    """So many failed saves, one after the other, end the run."""

    def cut_of(self, plane: DataPlane) -> CutMode:
        """How the rows of this plane are saved.

        Raises:
            ConfigError: a narrow cut is asked for, which the plane cannot bear.
        """
        if self.cut == "narrow" and not plane.splits_snapshot:
            raise ConfigError(
                "checkpoint.cut = 'narrow', and the plane, a store of the kind "
                f"{plane.info.kind!r}, has to be left alone while it writes its rows "
                "(splits_snapshot is False); leave checkpoint.cut out, or set it to 'full'"
            )
        return self.cut or ("narrow" if plane.splits_snapshot else "full")


class FailureConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do about prompts whose generation or commit keeps failing."""

    attempts: Positive = 3
    """Tries of one group before it is given up."""
    pause_s: Annotated[float, msgspec.Meta(ge=0)] = 0.5
    """Before the second try; twice as long before each one that follows."""
    longest_pause_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    drop_budget: NotNegative = 0
    """Prompts that may be given up over the whole run; one more ends it."""


class PlaneConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the tensors live."""

    kind: Literal["transfer_queue", "memory", "own"] = "transfer_queue"
    """`own`: a store that the caller of `cutlock.open_run` brings."""
    units: Positive = 2
    partition: str = "rollouts"
    limit_s: Seconds = 120.0
    """Longest time of one call, a snapshot included, of connecting, and of starting."""
    unit_limit_s: Seconds = 60.0
    """For so long a storage unit may owe answers and give none; snapshots do not count."""
    snapshot: Literal["aside", "request"] = "aside"
    """Whether storage units write their rows beside their requests, or as one of them."""


class WorkerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shipped torch workers."""

    generators: Positive = 2
    token_delay_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Simulated decoding time per token, slept in the generation workers."""
    learning_rate: Annotated[float, msgspec.Meta(gt=0)] = 0.005
    limit_s: Seconds = 120.0
    """Longest time of one call to a worker: loading weights, saving, restoring, starting."""
    group_limit_s: Seconds = 120.0
    """Longest time in which one group is generated."""
    step_limit_s: Seconds = 300.0
    """Longest time of one training step; it reads rows, so above `plane.limit_s`."""


class TaskConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shipped toy task."""

    prompts: Positive = 64
    length: Positive = 3
    vocabulary: Annotated[int, msgspec.Meta(ge=2)] = 6


class WatchdogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stall watchdog."""

    stall_s: Seconds = 600.0
    action: Literal["warn", "fail"] = "warn"
    controller_s: Seconds = 300.0
    """For so long the controller may not answer the driver, which then ends the run."""


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Prometheus endpoint of the controller; see docs/metrics.md."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    """Of `http://HOST:PORT/metrics`; 0 takes a free one, None serves nothing."""
    host: str = "127.0.0.1"
    """The address that it listens on; others can scrape it only if that is not loopback."""
    transfer_queue: bool = True
    """With a port: switch TransferQueue's own endpoint on as well, on a free port."""


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a run is configured by."""

    seed: int = 0
    epochs: Positive = 1
    max_steps: NotNegative | None = None
    """Stop after so many training steps, counted over restarts; None: when the data ends."""
    prompts_per_step: Positive = 8
    group_size: Positive = 4
    sampler: SamplerConfig = InOrderConfig()
    buffer: BufferConfig = BufferConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    failures: FailureConfig = FailureConfig()
    plane: PlaneConfig = PlaneConfig()
    workers: WorkerConfig = WorkerConfig()
    task: TaskConfig = TaskConfig()
    watchdog: WatchdogConfig = WatchdogConfig()
    metrics: MetricsConfig = MetricsConfig()

    @property
    def digest(self) -> str:
        """sha256 over all of it."""
        return digest_of(self)

    def capacity(self) -> int:
        """Places in the buffer, checked against what the sampler needs.

        Raises:
            CapacityError: with fewer places the run would deadlock.
        """
        from cutlock.barrier import Barrier

        sampler = build_sampler(self.sampler, Barrier())
        needed = sampler.capacity_needed(self.prompts_per_step)
        capacity = self.buffer.capacity
        if capacity is None:
            return needed
        if capacity < needed:
            raise CapacityError(
                f"buffer.capacity = {capacity} is below the {needed} groups that sampler "
                f"{sampler.name!r} needs with {self.prompts_per_step} prompts per step; "
                f"raise it to {needed} or leave it out"
            )
        return capacity

    def plain(self) -> dict[str, Any]:
        """As JSON-like data, e.g. for a bundle."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def parse_config(raw: dict[str, Any]) -> RunConfig:
    """Check plain data and make a configuration of it.

    Raises:
        ConfigError: unknown field or sampler, bad value; the message has the path to it.
        CapacityError: the buffer is too small for the sampler.
    """
    raw = dict(raw)
    sampler = raw.pop("sampler", None)
    try:
        config = msgspec.convert(raw, RunConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"configuration: {refusal(error, raw, RunConfig)}") from error
    if sampler is not None:
        if not isinstance(sampler, dict):
            raise ConfigError(
                f"configuration: sampler = {sampler!r} is no table; write one, e.g. [sampler] with "
                "name = 'in_order'"
            )
        config = msgspec.structs.replace(config, sampler=parse_sampler(sampler))
    config.capacity()
    return config


def load_config(path: Path) -> RunConfig:
    """Read a TOML file; errors name it."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"no configuration file {str(path)!r}; give the path of a TOML file"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}; give a readable TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}; mend that line") from error
    try:
        return parse_config(raw)
    except ConfigError as error:
        raise type(error)(f"{path}: {error}") from error
