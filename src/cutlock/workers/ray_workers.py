"""Workers as Ray actors, the shipped torch ones or others, and what fronts them elsewhere.

This is the only worker module that imports Ray. Fronts are built on the driver and may be
handed to another actor; every actor asks Ray for one CPU. Tensors of weights go from the
trainer to the generators through Ray's object store, not through the controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import ray
import ray.exceptions
import torch

from cutlock.errors import (
    ConfigError,
    CutlockError,
    NoWorkerError,
    WorkerError,
    WorkerLostError,
    WorkerTimeoutError,
)
from cutlock.plane.base import DataPlane
from cutlock.waiting import mark_retrieved
from cutlock.workers.base import (
    Generator,
    PolicyShape,
    Prompt,
    Rollouts,
    RowReader,
    StepReport,
    Trainer,
    Verifier,
)
from cutlock.workers.torch_generator import LocalGenerator, TorchGenerator
from cutlock.workers.torch_trainer import Learning, LocalTrainer, TorchTrainer

__all__ = [
    "CANCEL_S",
    "RayGenerators",
    "RayTrainer",
    "RayWeights",
    "RayWorker",
    "SlowGenerator",
    "torch_trainer",
]

CANCEL_S = 5.0
"""Seconds that a worker has to confirm that it has stopped a call that may be stopped."""


@dataclass(frozen=True, slots=True)
class RayWeights:
    """Weights in Ray's object store; they live as long as the trainer's process."""

    ref: Any
    """Inside a record, because Ray replaces a bare reference argument by its value."""


@dataclass(slots=True)
class RayWorker:
    """One actor as its front knows it."""

    name: str
    actor: Any
    limit_s: float
    """Limit of one call; the first call also waits for the actor's process to start."""
    work_limit_s: float | None = None
    """Limit of the call that is the worker's work, a step or a group; None for `limit_s`."""
    limit_name: str = "workers.limit_s"
    work_limit_name: str = "workers.limit_s"
    """Fields of the configuration that set the limits, for messages."""
    lost: str | None = None
    """Why it gets no more calls: it died, or missed weights that the others have."""
    busy: int = 0
    served: int = 0
    overdue: int = 0
    """Calls that were given up and that the actor has not ended yet."""

    @property
    def usable(self) -> bool:
        """Whether it gets calls."""
        return self.lost is None

    async def call(
        self,
        method: str,
        /,
        *arguments: object,
        stoppable: bool = False,
        work: bool = False,
        **named: object,
    ) -> Any:
        """Call an async method of the actor and await the answer.

        When the caller is cancelled, the actor's task is awaited within the limit before the
        cancellation goes on: what the actor does must not overtake what the caller does next.
        A `stoppable` task is cancelled in the actor first, and is awaited for `CANCEL_S` only.

        Args:
            stoppable: nothing that the call does is seen by a later one.
            work: the call has the limit of the worker's work.

        Raises:
            WorkerTimeoutError: no answer within the limit.
            WorkerLostError: the actor is gone.
            WorkerError: the method raised something foreign; a `CutlockError` arrives as it
                was raised.
        """
        limit_s, limit_name = self.limit_s, self.limit_name
        if work and self.work_limit_s is not None:
            limit_s, limit_name = self.work_limit_s, self.work_limit_name
        ref = getattr(self.actor, method).remote(*arguments, **named)
        answer = asyncio.ensure_future(ref)
        answer.add_done_callback(mark_retrieved)
        try:
            await asyncio.wait({answer}, timeout=limit_s)
        except asyncio.CancelledError:
            if stoppable:
                ray.cancel(ref)
            await asyncio.wait({answer}, timeout=CANCEL_S if stoppable else limit_s)
            self._give_up(answer)
            raise
        if not answer.done():
            if stoppable:
                ray.cancel(ref)
            self._give_up(answer)
            raise WorkerTimeoutError(
                f"{self.name} did not answer {method} within {limit_s:g} s ({limit_name}); "
                "raise the limit if the work takes that long, or see the worker's log"
            )
        try:
            return answer.result()
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, CutlockError):
                raise error.cause from error
            raise WorkerError(
                f"{self.name} failed in {method}: {error.cause!r}; "
                "mend what that names; the worker's own traceback is this error's cause"
            ) from error
        except ray.exceptions.RayActorError as error:
            self.lost = f"died or was cut off before it answered {method}"
            raise WorkerLostError(
                f"{self.name} {self.lost}; see the worker's log, then resume from the last bundle "
                "if no worker is left"
            ) from error
        except ray.exceptions.RayError as error:
            raise WorkerError(
                f"{self.name} gave no answer to {method}: {error}; see Ray's log"
            ) from error

    def _give_up(self, answer: asyncio.Future[Any]) -> None:
        """Count a call that nobody waits for any more until its answer comes."""
        if answer.done():
            return
        self.overdue += 1

        def ended(answer: asyncio.Future[Any]) -> None:
            self.overdue -= 1

        answer.add_done_callback(ended)

    def kill(self) -> None:
        """End the actor's process; a second call is no error."""
        self.lost = self.lost or "was stopped"
        ray.kill(self.actor)


class _LateReader:
    """Connects when the first rows are read, and not earlier.

    A restore refuses a plane that already has a client.
    """

    def __init__(self, connect: Callable[[], Awaitable[DataPlane]]) -> None:
        self._connect = connect
        self._plane: DataPlane | None = None

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> Mapping[str, Sequence[torch.Tensor]]:
        if self._plane is None:
            self._plane = await self._connect()
        return await self._plane.get(keys, fields)

    async def close(self) -> None:
        if self._plane is not None:
            await self._plane.close()


class _TrainerActor:
    """Hosts a `Trainer`, with a plane client of its own."""

    def __init__(
        self,
        make: Callable[[RowReader], Trainer],
        connect: Callable[[], Awaitable[DataPlane]],
    ) -> None:
        torch.set_num_threads(1)
        self._rows = _LateReader(connect)
        self._trainer = make(self._rows)

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> StepReport:
        return await self._trainer.train(step, groups)

    async def weights(self) -> RayWeights:
        return RayWeights(ray.put(await self._trainer.weights()))

    async def copy(self) -> tuple[int, str]:
        return await self._trainer.copy()

    async def save(self, directory: Path) -> Sequence[str]:
        return await self._trainer.save(directory)

    async def load(self, directory: Path) -> None:
        await self._trainer.load(directory)

    async def close(self) -> None:
        await self._trainer.close()
        await self._rows.close()


def torch_trainer(
    rows: RowReader, *, shape: PolicyShape, seed: int, learning: Learning | None
) -> LocalTrainer:
    """The shipped trainer, as `RayTrainer.host` takes it."""
    return LocalTrainer(TorchTrainer(shape, seed=seed, learning=learning), rows)


class RayTrainer:
    """`Trainer` in an actor of its own.

    Every call ends within the worker's limit or raises `WorkerTimeoutError`; a dead actor is
    a `WorkerError`. Calls are made from one event loop at a time.
    """

    def __init__(self, worker: RayWorker) -> None:
        self._worker = worker
        # Ray does not promise that calls to an async actor start in the order they are made.
        self._turn = asyncio.Lock()

    def __reduce__(self) -> tuple[type[RayTrainer], tuple[RayWorker]]:
        """Travel without the lock, which belongs to one event loop."""
        return RayTrainer, (self._worker,)

    @classmethod
    def start(
        cls,
        shape: PolicyShape,
        connect: Callable[[], Awaitable[DataPlane]],
        *,
        seed: int = 0,
        learning: Learning | None = None,
        limit_s: float = 120.0,
        step_limit_s: float | None = None,
    ) -> Self:
        """Start an actor with the shipped trainer.

        Args:
            shape: sizes of the policy.
            seed: draws the first weights.
            learning: settings of objective and optimizer.

        The others are those of `host`.
        """
        make = functools.partial(torch_trainer, shape=shape, seed=seed, learning=learning)
        return cls.host(make, connect, limit_s=limit_s, step_limit_s=step_limit_s)

    @classmethod
    def host(
        cls,
        make: Callable[[RowReader], Trainer],
        connect: Callable[[], Awaitable[DataPlane]],
        *,
        limit_s: float = 120.0,
        step_limit_s: float | None = None,
    ) -> Self:
        """Start an actor with a trainer of one's own.

        Args:
            make: makes it, in the actor, from what it reads its rows with; has to be picklable.
            connect: makes the actor's plane client, in the actor, when rows are first read; has
                to be picklable.
            limit_s: limit of each call in seconds; the first one includes the actor's start.
            step_limit_s: limit of a training step; None for `limit_s`.
        """
        actor = ray.remote(num_cpus=1)(_TrainerActor).remote(make, connect)
        return cls(
            RayWorker(
                "trainer", actor, limit_s, step_limit_s, work_limit_name="workers.step_limit_s"
            )
        )

    @property
    def worker(self) -> RayWorker:
        """The actor behind this front."""
        return self._worker

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> StepReport:
        """Train once; see `Trainer.train`. A cancelled call still ends as a whole or not at all."""
        async with self._turn:
            answer = await self._worker.call("train", step, dict(groups), work=True)
            return cast(StepReport, answer)

    async def weights(self) -> object:
        """A reference to a copy of the weights in the object store, a `RayWeights`."""
        return await self._worker.call("weights")

    async def copy(self) -> tuple[int, str]:
        """Copy in the actor; see `Trainer.copy`."""
        async with self._turn:
            return cast(tuple[int, str], await self._worker.call("copy"))

    async def save(self, directory: Path) -> Sequence[str]:
        """Write the copy; the directory has to be the same one for the actor's machine."""
        return cast(Sequence[str], await self._worker.call("save", directory))

    async def load(self, directory: Path) -> None:
        """Take over a saved trainer; see `Trainer.load`."""
        async with self._turn:
            await self._worker.call("load", directory)

    async def close(self) -> None:
        """Close the actor's plane client, then end the actor."""
        if self._worker.usable:
            with contextlib.suppress(WorkerError):
                await self._worker.call("close")
        self._worker.kill()


class _GeneratorActor:
    """Hosts a `Generator`."""

    def __init__(self, make: Callable[[], Generator]) -> None:
        torch.set_num_threads(1)
        self._generator = make()

    async def generate(self, prompt: Prompt, group_size: int, seed: int) -> Rollouts:
        return await self._generator.generate(prompt, group_size=group_size, seed=seed)

    async def load_weights(self, weights: RayWeights, version: int) -> None:
        await self._generator.load_weights(await weights.ref, version)


class SlowGenerator(LocalGenerator):
    """The shipped generator, which can pretend to be as slow as a large one.

    Args:
        token_delay_s: seconds per token of the longest sibling.
    """

    def __init__(self, shape: PolicyShape, verifier: Verifier, token_delay_s: float) -> None:
        super().__init__(TorchGenerator(shape, verifier))
        self._token_delay_s = token_delay_s

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        """Sample a group and wait as long as it would have taken; see `Generator.generate`."""
        rollouts = await super().generate(prompt, group_size=group_size, seed=seed)
        # Siblings are decoded side by side, so the longest one decides.
        longest = max(len(response) for response in rollouts.fields["response"])
        await asyncio.sleep(self._token_delay_s * longest)
        return rollouts


class RayGenerators:
    """`Generator` over a pool of actors; each call goes to the least busy usable one.

    Every call ends within its limit or raises `WorkerTimeoutError`. A worker that died is left
    out from then on, and so is one that did not take over weights: its rollouts would be older
    than they say. What it was doing is the caller's to give to another one. A worker that owes
    an answer which nobody waits for any more gets calls only if all of them do. When the last
    one is lost, every call is a `NoWorkerError`.
    """

    def __init__(self, workers: Sequence[RayWorker]) -> None:
        self._workers = tuple(workers)

    @classmethod
    def start(
        cls,
        shape: PolicyShape,
        verifier: Verifier,
        *,
        count: int,
        limit_s: float = 120.0,
        group_limit_s: float | None = None,
        token_delay_s: float = 0.0,
    ) -> Self:
        """Start actors with the shipped generator.

        Args:
            shape: sizes of the policy.
            verifier: rewards the responses, in the actor; has to be picklable.
            token_delay_s: simulated cost of decoding, in seconds per token of the longest
                sibling; makes durations uneven, as those of large models are.

        The others, and what is raised, are those of `host`.
        """
        make = functools.partial(SlowGenerator, shape, verifier, token_delay_s)
        return cls.host(make, count=count, limit_s=limit_s, group_limit_s=group_limit_s)

    @classmethod
    def host(
        cls,
        make: Callable[[], Generator],
        *,
        count: int,
        limit_s: float = 120.0,
        group_limit_s: float | None = None,
    ) -> Self:
        """Start actors with a generator of one's own in each.

        Args:
            make: makes one, in its actor; has to be picklable.
            count: number of actors.
            limit_s: limit of each call in seconds; the first one includes the actor's start.
            group_limit_s: limit of the generation of a group; None for `limit_s`.

        Raises:
            ConfigError: `count` is below 1.
        """
        if count < 1:
            raise ConfigError(f"count of generation workers is {count}; choose 1 or more")
        remote = ray.remote(num_cpus=1)(_GeneratorActor)
        return cls(
            [
                RayWorker(
                    f"generator-{number}",
                    remote.remote(make),
                    limit_s,
                    group_limit_s,
                    work_limit_name="workers.group_limit_s",
                )
                for number in range(count)
            ]
        )

    @property
    def workers(self) -> tuple[RayWorker, ...]:
        """The actors behind this front, dead ones included."""
        return self._workers

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        """Sample a group; see `Generator.generate`. A cancelled call is cancelled in the actor."""
        # Ties go to the worker with fewer calls, so that a retry meets another worker.
        worker = min(self._usable(), key=lambda one: (one.overdue > 0, one.busy, one.served))
        worker.busy += 1
        worker.served += 1
        try:
            answer = await worker.call(
                "generate", prompt, group_size, seed, stoppable=True, work=True
            )
        finally:
            worker.busy -= 1
        return cast(Rollouts, answer)

    async def load_weights(self, weights: object, version: int) -> None:
        """Give the weights of a `RayTrainer` to every usable actor.

        An actor that does not take them over is left out; the others go on.

        Raises:
            NoWorkerError: none has taken them over.
            CutlockError: what an actor has refused them with.
        """
        usable = self._usable()
        outcomes = await asyncio.gather(
            *(worker.call("load_weights", weights, version) for worker in usable),
            return_exceptions=True,
        )
        refusal: BaseException | None = None
        for worker, outcome in zip(usable, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                worker.lost = worker.lost or f"did not take over the weights: {outcome}"
                if not isinstance(outcome, WorkerError):
                    refusal = refusal or outcome
        if refusal is not None:
            raise refusal
        self._usable()

    async def close(self) -> None:
        """End all actors."""
        for worker in self._workers:
            worker.kill()

    def _usable(self) -> list[RayWorker]:
        usable = [worker for worker in self._workers if worker.usable]
        if not usable:
            lost = ", ".join(f"{worker.name} ({worker.lost})" for worker in self._workers)
            raise NoWorkerError(
                f"no generation worker is left of {lost}; resume from the last bundle"
            )
        return usable
