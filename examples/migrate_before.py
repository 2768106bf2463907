"""Before: a loop that saves cursor, dataloader and buffer apart. A resume loses four prompts.

    python migrate_before.py [DIRECTORY]

`migrate_after.py` is the same loop with one cut. Nothing here depends on time: whatever takes a
while takes turns of the event loop, so that every run is the same run.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

PROMPTS = [f"prompt-{n}" for n in range(40)]
PER_STEP = 4
WINDOW = 1  # batches that dispatch may run ahead of the trainer
SAVE_AT = 7


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Loop:
    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        saved = saved or {}
        self.position: int = saved.get("position", 0)  # of the dataloader
        self.cursor: int = saved.get("cursor", -1)  # the last batch that was dispatched
        self.version: int = saved.get("version", 0)  # training steps finished
        self.buffer: dict[int, list[str]] = {int(k): v for k, v in saved.get("buffer", {}).items()}
        self.trained: list[str] = saved.get("trained", [])

    async def roll_out(self) -> None:
        while self.position < len(PROMPTS):
            await turns(3)  # read the data set
            while self.cursor >= self.version + WINDOW:
                await turns(1)
            batch = PROMPTS[self.position : self.position + PER_STEP]
            self.position += PER_STEP
            self.cursor += 1
            stamp = self.cursor  # the training step that this batch is meant for
            if stamp in self.buffer or stamp < self.version:
                continue  # the duplicate guard: that step has its groups already
            await turns(5)  # generate
            self.buffer[stamp] = batch

    async def train(self, save_to: Path | None) -> None:
        rollouts = asyncio.create_task(self.roll_out())
        while self.buffer or not rollouts.done():
            if self.version not in self.buffer:
                await turns(1)
                continue
            self.trained += self.buffer.pop(self.version)
            self.version += 1
            if save_to is not None and self.version == SAVE_AT:
                await self.save(save_to)
                rollouts.cancel()
                return  # killed

    async def save(self, path: Path) -> None:
        state: dict[str, Any] = {"version": self.version, "trained": [*self.trained]}
        state["cursor"] = self.cursor  # 6
        await turns(10)  # write the weights; the next batch is dispatched, stamped 7, generated
        state["position"] = self.position  # 32, past that batch
        state["buffer"] = self.buffer  # holds step 7
        path.write_text(json.dumps(state))


async def main(root: Path) -> None:
    await Loop().train(save_to=root / "checkpoint.json")
    resumed = Loop(json.loads((root / "checkpoint.json").read_text()))
    # Its next batch is stamped 7 again, because the cursor says 6, and the guard drops it.
    await resumed.train(save_to=None)
    lost = [prompt for prompt in PROMPTS if prompt not in resumed.trained]
    print(f"{len(PROMPTS)} prompts, killed after the save of step {SAVE_AT}, resumed")
    print(f"trained: {len(resumed.trained)}, lost: {len(lost)}: {', '.join(lost) or 'none'}")
    print("go on with: python migrate_after.py")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) == 2 else tempfile.mkdtemp())))
