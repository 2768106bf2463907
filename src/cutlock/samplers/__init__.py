"""Samplers: admission of batches and choice of finished groups."""

from cutlock.samplers.base import (
    Admission,
    GroupView,
    Sampler,
    TrainerVersion,
    TransactionalAdmissionSampler,
)
from cutlock.samplers.config import (
    SAMPLER_NAMES,
    SamplerConfig,
    build_sampler,
    is_restorable,
    parse_sampler,
)
from cutlock.samplers.custom import AnySampler

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
