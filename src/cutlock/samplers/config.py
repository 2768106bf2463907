"""Sampler configurations: one struct per sampler, told apart by `name`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

__all__ = [
    "CustomConfig",
    "InOrderConfig",
    "ReadyFirstConfig",
    "SamplerConfig",
    "WeightFifoConfig",
    "WindowedConfig",
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
