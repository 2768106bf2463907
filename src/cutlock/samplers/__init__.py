"""Samplers: admission of batches and choice of finished groups."""

from __future__ import annotations

import inspect
from typing import Any, assert_never

import msgspec

from cutlock.barrier import Barrier
from cutlock.errors import ConfigError
from cutlock.samplers.base import (
    Admission,
    GroupView,
    Sampler,
    TrainerVersion,
    TransactionalAdmissionSampler,
)
from cutlock.samplers.config import (
    CONFIGS,
    CustomConfig,
    InOrderConfig,
    ReadyFirstConfig,
    SamplerConfig,
    WeightFifoConfig,
    WindowedConfig,
    refusal,
)
from cutlock.samplers.custom import AdmitOnlySampler, load_class
from cutlock.samplers.in_order import InOrderSampler
from cutlock.samplers.ready_first import ReadyFirstSampler
from cutlock.samplers.weight_fifo import WeightFifoSampler
from cutlock.samplers.windowed import WindowedSampler

__all__ = [
    "SAMPLER_NAMES",
    "Admission",
    "AnySampler",
    "GroupView",
    "Sampler",
    "SamplerConfig",
    "TrainerVersion",
    "TransactionalAdmissionSampler",
    "build_sampler",
    "is_restorable",
    "parse_sampler",
]

AnySampler = TransactionalAdmissionSampler | AdmitOnlySampler

SAMPLER_NAMES = ("windowed", "ready_first", "weight_fifo", "in_order")
"""The shipped samplers; `custom` is the fifth name a configuration may use."""


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
