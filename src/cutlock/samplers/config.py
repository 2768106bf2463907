"""From the `[sampler]` table of a configuration to a sampler; `name` says which struct it is."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any, Literal, assert_never

import msgspec
from msgspec.inspect import LiteralType, StructType, type_info

from cutlock.barrier import Barrier
from cutlock.errors import ConfigError
from cutlock.samplers.builtin import (
    InOrderSampler,
    ReadyFirstSampler,
    WeightFifoSampler,
    WindowedSampler,
)
from cutlock.samplers.custom import AnySampler, load_class

__all__ = [
    "CONFIGS",
    "SAMPLER_NAMES",
    "CustomConfig",
    "InOrderConfig",
    "ReadyFirstConfig",
    "SamplerConfig",
    "WeightFifoConfig",
    "WindowedConfig",
    "build_sampler",
    "is_restorable",
    "parse_sampler",
    "refusal",
]

SAMPLER_NAMES = ("windowed", "ready_first", "weight_fifo", "in_order")
"""The shipped samplers; `custom` is the fifth name a configuration may use."""

Window = Annotated[int, msgspec.Meta(ge=0)]


class WindowedConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="windowed", tag_field="name"
):
    """`windowed`; see `WindowedSampler`."""

    window: Window = 1
    order: Literal["insertion", "freshest"] = "insertion"


class ReadyFirstConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ready_first", tag_field="name"
):
    """`ready_first`; see `ReadyFirstSampler`."""

    window: Window = 1


class WeightFifoConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="weight_fifo", tag_field="name"
):
    """`weight_fifo`; see `WeightFifoSampler`."""

    window: Window = 1


class InOrderConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="in_order", tag_field="name"
):
    """`in_order`; see `InOrderSampler`."""

    window: Window = 1


class CustomConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="custom", tag_field="name"
):
    """A sampler of the user's own; see `samplers.custom`."""

    path: str
    """`module:Class`."""
    options: dict[str, Any] = {}
    """Keyword arguments of the class, after the barrier."""


SamplerConfig = WindowedConfig | ReadyFirstConfig | WeightFifoConfig | InOrderConfig | CustomConfig

CONFIGS: dict[str, type[SamplerConfig]] = {
    "windowed": WindowedConfig,
    "ready_first": ReadyFirstConfig,
    "weight_fifo": WeightFifoConfig,
    "in_order": InOrderConfig,
    "custom": CustomConfig,
}
"""The configuration of each name."""


def parse_sampler(raw: dict[str, Any]) -> SamplerConfig:
    """Read the `[sampler]` table of a configuration.

    Raises:
        ConfigError: unknown name, a field that this sampler does not have, a bad value.
    """
    name = raw.get("name")
    if not isinstance(name, str) or name not in CONFIGS:
        raise ConfigError(
            f"unknown sampler {name!r}; choose one of {', '.join(SAMPLER_NAMES)}, or 'custom' "
            "with path = 'module:Class'"
        )
    try:
        return msgspec.convert(raw, CONFIGS[name])
    except msgspec.ValidationError as error:
        raise ConfigError(f"sampler {name!r}: {refusal(error, raw, CONFIGS[name])}") from error


def is_restorable(config: SamplerConfig) -> bool:
    """Whether finished groups may be restored under this sampler; constructs nothing."""
    return not isinstance(config, CustomConfig) or load_class(config.path).restorable


def build_sampler(config: SamplerConfig, barrier: Barrier) -> AnySampler:
    """Construct the sampler that `config` names, bound to `barrier`."""
    match config:
        case WindowedConfig():
            return WindowedSampler(barrier, config.window, config.order)
        case ReadyFirstConfig():
            return ReadyFirstSampler(barrier, config.window)
        case WeightFifoConfig():
            return WeightFifoSampler(barrier, config.window)
        case InOrderConfig():
            return InOrderSampler(barrier, config.window)
        case CustomConfig():
            found = load_class(config.path)
            try:
                inspect.signature(found).bind(barrier, **config.options)
            except TypeError as error:
                raise ConfigError(
                    f"sampler {config.path!r} does not take the options "
                    f"{sorted(config.options)}: {error}; give sampler.options what its class takes"
                ) from error
            sampler: AnySampler = found(barrier, **config.options)
            for name in ("name", "cursor"):
                if not hasattr(sampler, name):
                    raise ConfigError(
                        f"sampler {config.path!r} has no {name}; give it every member of "
                        "cutlock.samplers.Sampler"
                    )
            return sampler
        case _:
            assert_never(config)


def refusal(error: msgspec.ValidationError, raw: Any, kind: type[msgspec.Struct]) -> str:
    """Why `raw` is no `kind`: path, value, and what is allowed there."""
    message, _, path = str(error).partition(" - at `$")
    names = path.removesuffix("`").split(".")[1:]
    place = type_info(kind)
    for name in names:
        raw = raw[name]
        if isinstance(place, StructType):
            place = next(field.type for field in place.fields if field.name == name)
    at = "".join(f"{name}." for name in names)
    if isinstance(place, StructType) and (unknown := re.search("unknown field `(.*)`", message)):
        allowed = ", ".join(field.name for field in place.fields)
        return f"{at}{unknown[1]} is unknown; choose from {allowed}"
    if isinstance(place, LiteralType):
        message = f"choose from {', '.join(map(repr, place.values))}"
    return f"{at.removesuffix('.')} = {raw!r}: {message}".removeprefix(" = ")
