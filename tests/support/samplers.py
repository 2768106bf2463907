"""Samplers of a user's own."""

from __future__ import annotations

from cutlock.samplers.base import Admission, TrainerVersion
from cutlock.samplers.builtin import InOrderSampler


class NotRestorable(InOrderSampler):
    """Takes no finished groups from a bundle."""

    restorable = False


class AdmitOnly(InOrderSampler):
    """Has no split admission, so its wait at the gate is inside a slot."""

    restorable = True
    wait_until_admissible = None  # type: ignore[assignment]
    commit_admission = None  # type: ignore[assignment]

    async def admit(self, version: TrainerVersion) -> Admission:
        await version.wait_for(self._gate_open)
        self._cursor += 1
        return Admission(self._cursor, self._stamp())
