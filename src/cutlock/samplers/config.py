"""Sampler configurations: one struct per sampler, told apart by `name`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec.inspect import LiteralType, StructType, type_info

__all__ = [
    "CONFIGS",
    "CustomConfig",
    "InOrderConfig",
    "ReadyFirstConfig",
    "SamplerConfig",
    "WeightFifoConfig",
    "WindowedConfig",
    "refusal",
]

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
