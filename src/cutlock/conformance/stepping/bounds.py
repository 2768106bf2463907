"""The constants of the specification as a run that is just as large, and the names on both sides.

The spec calls a prompt occurrence `<<batch, member>>`, both counted from 1, batches over all
epochs. The code calls it by a group id; which one follows from the order of the loader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import msgspec

from cutlock.controller.assembly import build_prompts
from cutlock.errors import ConfigError, ConformanceError
from cutlock.loader import epoch_order
from cutlock.run.config import RunConfig, parse_config
from cutlock.tlc.config import read_config
from cutlock.tlc.values import ModelValue, Value, to_tla
from cutlock.workers.prompts import ReverseTask

__all__ = ["Bounds"]

_FAR = 10**6
_VOCABULARY = 6
_LENGTH = 3


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Constants of `spec/State.tla` and `spec/MCCutlock.tla`, with their names in snake case.

    A run serves whole epochs. If `batches` ends within one, the code has more to serve where
    the spec is at its end, and what follows from the end cannot be done.

    Raises:
        ConfigError: no run is of that size.
    """

    batches: int
    per_epoch: int
    members: tuple[Value, ...] = (1,)
    """`Member`, in the order in which the loader hands out the prompts of a batch."""
    window: int = 1
    sampler: str = "in_order"
    spare_mark: int = 0
    max_failures: int = 0
    capacity: int = 8
    ordered: bool = True
    units: tuple[Value, ...] = ("u1",)
    """`Units`, in the order of their numbers in the plane."""
    narrow: bool = False
    """Whether saves are made by a narrow cut."""

    def __post_init__(self) -> None:
        _ = self.config

    @classmethod
    def of(cls, constants: Mapping[str, Value]) -> Bounds:
        """From the constants of a model by their names in the spec.

        Raises:
            ConfigError: a constant is missing or of another kind.
        """
        try:
            found = msgspec.convert(dict(constants), _Constants)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the constants of the model: {error}; mend that one") from error
        plain = msgspec.structs.asdict(found)
        return cls(members=_listed("Member", constants), units=_listed("Units", constants), **plain)

    @classmethod
    def read(cls, path: Path) -> Bounds:
        """From the configuration of a model.

        Raises:
            ConfigError: it cannot be read, or see `of`.
        """
        return cls.of(read_config(path).constants)

    @property
    def constants(self) -> dict[str, Value]:
        """The constants of the spec that `of` makes these bounds from."""
        return {
            "Batches": self.batches,
            "PerEpoch": self.per_epoch,
            "Member": frozenset(self.members),
            "Window": self.window,
            "Sampler": self.sampler,
            "SpareMark": self.spare_mark,
            "MaxFailures": self.max_failures,
            "Capacity": self.capacity,
            "Ordered": self.ordered,
            "Units": frozenset(self.units),
            "Narrow": self.narrow,
        }

    @property
    def size(self) -> int:
        """Prompts of a batch and of a training step."""
        return len(self.members)

    @property
    def group_size(self) -> int:
        """Siblings of a group: at least one in every unit."""
        return max(2, len(self.units))

    @cached_property
    def config(self) -> RunConfig:
        """The run; it saves when it is asked to, at its start and at its end."""
        return parse_config(
            {
                "epochs": -(-self.batches // self.per_epoch),
                "prompts_per_step": self.size,
                "group_size": self.group_size,
                "sampler": {"name": self.sampler, "window": self.window},
                "buffer": {"capacity": self.capacity, "spare_prompts": self.spare_mark},
                "checkpoint": {
                    "every": _FAR,
                    "cut": "narrow" if self.narrow else "full",
                    "keep": 1,
                    "failures_in_a_row": _FAR,
                },
                "failures": {"attempts": _FAR, "drop_budget": _FAR, "pause_s": 0},
                "plane": {"kind": "memory", "units": len(self.units)},
                "task": {
                    "prompts": self.per_epoch * self.size,
                    "length": _LENGTH,
                    "vocabulary": _VOCABULARY,
                },
            }
        )

    @cached_property
    def prompts(self) -> ReverseTask:
        """The data set."""
        return build_prompts(self.config)

    @cached_property
    def groups(self) -> Mapping[Value, str]:
        """Prompt of the spec to group id, in the order of the loader."""
        names: dict[Value, str] = {}
        for epoch in range(self.config.epochs):
            order = epoch_order(len(self.prompts), epoch, self.config.seed)
            for place, position in enumerate(order):
                batch, member = divmod(epoch * len(order) + place, self.size)
                if batch < self.batches:
                    prompt = self.prompts[position]
                    names[batch + 1, self.members[member]] = f"{prompt.prompt_id}@{epoch}"
        return MappingProxyType(names)

    @cached_property
    def names(self) -> Mapping[str, Value]:
        """Group id to prompt of the spec."""
        return MappingProxyType({group: prompt for prompt, group in self.groups.items()})

    @cached_property
    def steps(self) -> range:
        """`Steps` of the spec."""
        return range(self.batches * self.size + self.max_failures + 2)

    def group(self, prompt: Value) -> str:
        """The group id of a prompt.

        Raises:
            ConformanceError: there is no such prompt within the bounds.
        """
        if prompt not in self.groups:
            raise ConformanceError(
                f"{prompt!r} is no prompt of {self.batches} batches of {self.size}; replay a trace "
                "with the bounds of its own model"
            )
        return self.groups[prompt]

    def prompt(self, group: str) -> Value:
        """The prompt of a group id."""
        return self.names[group]

    def prompts_of(self, groups: Iterable[str]) -> frozenset[Value]:
        """The prompts of group ids."""
        return frozenset(map(self.names.__getitem__, groups))

    @property
    def keeps_weights(self) -> bool:
        """Whether the spec keeps start weights: only where the choice of groups looks at them."""
        return self.sampler in {"weight_fifo", "windowed"}


class _Constants(msgspec.Struct, rename="pascal"):
    batches: int
    per_epoch: int
    window: int
    sampler: str
    spare_mark: int
    max_failures: int
    capacity: int
    ordered: bool
    narrow: bool


def _listed(name: str, constants: Mapping[str, Value]) -> tuple[Value, ...]:
    value = constants.get(name, frozenset())
    if not isinstance(value, frozenset) or not value:
        raise ConfigError(f"{name} = {to_tla(value)} is no set of at least one; give one")
    return tuple(sorted(value, key=_place))


def _place(value: Value) -> tuple[int, str]:
    """Numbers by size, everything else by name."""
    if isinstance(value, int):
        return value, ""
    return 0, value.name if isinstance(value, ModelValue) else to_tla(value)
