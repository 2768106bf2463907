"""The machine that a figure was measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import msgspec

__all__ = ["Machine", "describe_machine"]

_PACKAGES = ("cutlock", "torch", "ray", "TransferQueue", "msgspec")
_GIB = 1 << 30


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the figures depend on."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    packages: dict[str, str]
    load: tuple[float, float, float]
    """Load averages over 1, 5 and 15 minutes when the measurement began."""


def describe_machine() -> Machine:
    """This machine, now."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_gib=round(memory / _GIB, 1),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: importlib.metadata.version(name) for name in _PACKAGES},
        load=os.getloadavg(),
    )


def _cpu() -> str:
    facts = Path("/proc/cpuinfo")
    for line in facts.read_text().splitlines() if facts.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
