import asyncio
import os

import pytest
import ray
import torch

from cutlock.errors import (
    BundleCorruptError,
    ConfigError,
    NoWorkerError,
    WorkerError,
    WorkerLostError,
    WorkerTimeoutError,
)
from cutlock.workers.base import Generator, Trainer
from cutlock.workers.prompts import ReverseTask
from cutlock.workers.ray_workers import RayGenerators, RayTrainer, RayWeights
from cutlock.workers.torch_generator import TorchGenerator
from cutlock.workers.torch_trainer import TorchTrainer
from cutlock.workers.training import FIRST_CHAIN, extend_chain, group_relative_advantages
from tests.support.processes import frozen, wait_for_end

pytestmark = pytest.mark.real

TASK = ReverseTask(8)
LIMIT_S = 120.0
FOR_EVER_S = 3600.0


def generate_locally(group_size=4, seed=5):
    core = TorchGenerator(TASK.shape, TASK)
    core.load_weights(TorchTrainer(TASK.shape, seed=1).weights(), 0)
    return core.generate(TASK[0], group_size=group_size, seed=seed)


def rows_of_one_group():
    rollouts = generate_locally()
    advantages = group_relative_advantages(rollouts.rewards)
    fields = rollouts.fields | {"advantage": [torch.tensor([one]) for one in advantages]}
    return {
        f"g/{row}": {name: rows[row] for name, rows in fields.items()}
        for row in range(len(rollouts.rewards))
    }


def connector(rows):
    # Made of local objects, which travel by value: the actor cannot import this module.
    class Rows:
        async def get(self, keys, fields):
            return {field: [rows[key][field] for key in keys] for field in fields}

        async def close(self):
            pass

    async def connect():
        return Rows()

    return connect


def moody_task():
    class Moody(ReverseTask):
        def reward(self, prompt, response):
            if prompt == self[1]:
                raise ZeroDivisionError("no reward for this one")
            return super().reward(prompt, response)

    return Moody(8)


@pytest.fixture(scope="module")
def rows():
    return rows_of_one_group()


@pytest.fixture
async def trainer(real_cluster, rows):
    trainer = RayTrainer.start(TASK.shape, connector(rows), seed=1, limit_s=LIMIT_S)
    yield trainer
    await trainer.close()


@pytest.fixture
async def weights(real_cluster):
    return RayWeights(ray.put(TorchTrainer(TASK.shape, seed=1).weights()))


async def started(weights, *, count, token_delay_s=0.0):
    pool = RayGenerators.start(
        TASK.shape, moody_task(), count=count, limit_s=LIMIT_S, token_delay_s=token_delay_s
    )
    await pool.load_weights(weights, 0)
    return pool


@pytest.fixture
async def generators(weights):
    pool = await started(weights, count=1)
    yield pool
    await pool.close()


@pytest.fixture
async def slow(weights):
    pool = await started(weights, count=2, token_delay_s=FOR_EVER_S)
    yield pool
    await pool.close()


def ask(pool, **sizes):
    return asyncio.create_task(pool.generate(TASK[0], **({"group_size": 4, "seed": 5} | sizes)))


async def test_fronts_work_in_the_actor_that_they_are_handed_to(trainer, generators, rows):
    @ray.remote(num_cpus=1)
    def control(trainer: Trainer, generators: Generator):
        async def step():
            weights = await trainer.weights()
            await generators.load_weights(weights, 0)
            rollouts = await generators.generate(TASK[0], group_size=4, seed=5)
            report = await trainer.train(0, {"g": sorted(rows)})
            return type(weights).__name__, rollouts, report, await trainer.copy()

        return asyncio.run(step())

    kind, rollouts, report, chain = await control.remote(trainer, generators)
    local = generate_locally()
    assert kind == "RayWeights"
    assert rollouts.rewards == local.rewards
    for name, given in rollouts.fields.items():
        torch.testing.assert_close(given, local.fields[name])
    assert (report.groups, report.reward_mean) == (1, pytest.approx(sum(local.rewards) / 4))
    assert chain == (1, extend_chain(FIRST_CHAIN, 0, ["g"]))


async def test_a_save_holds_the_state_of_its_begin_and_loads_again(trainer, rows, tmp_path):
    groups = {"g": sorted(rows)}
    await trainer.copy()
    await trainer.train(0, groups)
    await trainer.save(tmp_path)
    assert (await trainer.copy())[0] == 1
    await trainer.load(tmp_path)
    assert await trainer.copy() == (0, FIRST_CHAIN)
    handed = await (await trainer.weights()).ref
    fresh = TorchTrainer(TASK.shape, seed=1).weights()
    assert all(torch.equal(handed[name], fresh[name]) for name in fresh)
    (tmp_path / "trainer.json").unlink()
    with pytest.raises(BundleCorruptError, match=r"trainer\.json"):
        await trainer.load(tmp_path)


async def test_a_dead_trainer_is_named_and_can_be_closed(trainer):
    process = await trainer.worker.actor.__ray_call__.remote(lambda self: os.getpid())
    trainer.worker.kill()
    # Ray passes the order on: until then the trainer would answer.
    await asyncio.to_thread(wait_for_end, process)
    with pytest.raises(WorkerError, match="trainer died or was cut off before it answered copy"):
        await trainer.copy()


async def test_errors_of_the_family_arrive_as_they_are_and_others_name_the_worker(generators):
    with pytest.raises(ConfigError, match="group_size is 0"):
        await ask(generators, group_size=0)
    with pytest.raises(WorkerError, match=r"generator-0 failed in generate: ZeroDivisionError"):
        await generators.generate(TASK[1], group_size=1, seed=0)
    assert len((await ask(generators)).rewards) == 4


async def test_a_slow_worker_is_named_with_its_limit_and_still_answers_others(slow):
    for worker in slow.workers:
        worker.limit_s = 0.1
    said = r"generator-0 did not answer generate within 0.1 s \(workers.limit_s\)"
    with pytest.raises(WorkerTimeoutError, match=said):
        await ask(slow)
    with pytest.raises(WorkerTimeoutError, match="generator-1"):
        await ask(slow)
    assert [worker.busy for worker in slow.workers] == [0, 0]


async def test_calls_are_spread_and_a_cancelled_one_frees_its_worker(slow):
    for worker in slow.workers:
        worker.limit_s = FOR_EVER_S
    first, second = ask(slow), ask(slow)
    await asyncio.sleep(0)
    assert [worker.busy for worker in slow.workers] == [1, 1]
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert [worker.busy for worker in slow.workers] == [0, 1]
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_a_worker_that_dies_is_named_once_and_gets_no_further_calls(slow, weights):
    first, second = ask(slow), ask(slow)
    await asyncio.sleep(0)
    slow.workers[0].kill()
    with pytest.raises(
        WorkerLostError, match="generator-0 died or was cut off before it answered generate"
    ):
        await first
    await slow.load_weights(weights, 1)
    third = ask(slow)
    await asyncio.sleep(0)
    assert [worker.busy for worker in slow.workers] == [0, 2]
    slow.workers[1].kill()
    for call in (second, third):
        with pytest.raises(WorkerError, match="generator-1 died"):
            await call
    with pytest.raises(
        NoWorkerError,
        match=r"no .* worker is left of generator-0 \(died .* generate\), generator-1 \(died",
    ):
        await ask(slow)


async def test_a_worker_that_dies_before_it_loads_weights_is_left_out(weights):
    pool = await started(weights, count=2)
    try:
        pool.workers[0].kill()
        await pool.load_weights(weights, 1)
        for _ in range(3):
            assert len((await ask(pool)).rewards) == 4
        pool.workers[1].kill()
        with pytest.raises(
            NoWorkerError, match=r"generator-0 \(was stopped\), generator-1 \(was stopped\)"
        ):
            await pool.load_weights(weights, 2)
    finally:
        await pool.close()


async def test_a_worker_that_never_answers_is_asked_last_and_left_out_when_it_misses_weights(
    weights,
):
    pool = await started(weights, count=2)
    hung, healthy = pool.workers
    process = await hung.actor.__ray_call__.remote(lambda self: os.getpid())
    try:
        with frozen(process):
            hung.work_limit_s = 0.1
            with pytest.raises(
                WorkerTimeoutError, match=r"generator-0 .* 0.1 s \(workers.group_limit_s\)"
            ):
                await ask(pool)
            served = healthy.served
            for _ in range(4):
                await ask(pool)
            assert (hung.overdue, healthy.served) == (1, served + 4)
            hung.limit_s = 0.1
            await pool.load_weights(weights, 1)
            assert "did not answer load_weights within 0.1 s" in hung.lost
            assert healthy.usable
    finally:
        await pool.close()


async def test_a_worker_that_answers_too_late_is_asked_like_the_others_again(slow):
    late = slow.workers[0]
    late.work_limit_s, late.limit_s = 0.1, LIMIT_S
    with pytest.raises(WorkerTimeoutError, match="generator-0"):
        await ask(slow)
    # What is slow, not stopped, ends the call when it is told to.
    while late.overdue:
        await late.call("load_weights", RayWeights(ray.put(TorchTrainer(TASK.shape).weights())), 0)
    slow.workers[1].busy += 1
    call = ask(slow)
    await asyncio.sleep(0)
    assert late.busy == 1
    call.cancel()
    await asyncio.wait({call})


async def test_a_worker_that_cannot_load_weights_gets_no_further_calls(generators):
    other = RayWeights(ray.put({}))
    with pytest.raises(ConfigError, match="weights of version 3 do not fit"):
        await generators.load_weights(other, 3)
    with pytest.raises(WorkerError, match="no generation worker is left"):
        await ask(generators)
    await generators.close()


def test_a_pool_of_no_workers_is_refused():
    with pytest.raises(ConfigError, match="count of generation workers is 0"):
        RayGenerators.start(TASK.shape, TASK, count=0)
