import asyncio

import pytest
import torch

from cutlock.errors import ConfigError, ConfigMismatchError, MisuseError
from cutlock.workers.base import GENERATED_FIELDS, Generator, PolicyShape
from cutlock.workers.policy import build_policy
from cutlock.workers.prompts import ReverseTask
from cutlock.workers.torch_generator import LocalGenerator, TorchGenerator

TASK = ReverseTask(20)


def weights(seed=0):
    return build_policy(TASK.shape, seed=seed).state_dict()


@pytest.fixture
def core():
    core = TorchGenerator(TASK.shape, TASK)
    core.load_weights(weights(), version=0)
    return core


def plain(rollouts):
    return {name: [row.tolist() for row in rows] for name, rows in rollouts.fields.items()}


def test_a_group_has_every_field_for_every_sibling(core):
    rollouts = core.generate(TASK[0], group_size=5, seed=1)
    assert tuple(rollouts.fields) == GENERATED_FIELDS
    assert {len(rows) for rows in rollouts.fields.values()} == {5}


def test_fields_have_the_promised_types_and_shapes(core):
    fields = core.generate(TASK[0], group_size=5, seed=1).fields
    assert all(row.tolist() == list(TASK[0].tokens) for row in fields["prompt"])
    assert all(row.dtype == torch.int64 for row in fields["prompt"] + fields["response"])
    assert all(row.dtype == torch.float32 for row in fields["logprobs"] + fields["reward"])
    assert all(row.shape == (1,) for row in fields["reward"])
    assert [len(row) for row in fields["logprobs"]] == [len(row) for row in fields["response"]]


def test_lengths_are_ragged_between_siblings(core):
    responses = core.generate(TASK[0], group_size=8, seed=1).fields["response"]
    assert len({len(response) for response in responses}) > 2


def test_rewards_are_those_of_the_verifier(core):
    rollouts = core.generate(TASK[1], group_size=6, seed=2)
    assert rollouts.rewards == [
        TASK.reward(TASK[1], response.tolist()) for response in rollouts.fields["response"]
    ]
    torch.testing.assert_close(torch.cat(rollouts.fields["reward"]), torch.tensor(rollouts.rewards))


def test_equal_arguments_and_weights_give_equal_rollouts(core):
    twin = TorchGenerator(TASK.shape, TASK)
    twin.load_weights(weights(), version=7)
    twin.generate(TASK[3], group_size=2, seed=9)
    assert plain(core.generate(TASK[0], group_size=4, seed=1)) == plain(
        twin.generate(TASK[0], group_size=4, seed=1)
    )


def test_other_weights_give_other_rollouts(core):
    before = plain(core.generate(TASK[0], group_size=4, seed=1))
    core.load_weights(weights(seed=1), version=1)
    assert plain(core.generate(TASK[0], group_size=4, seed=1)) != before


def test_weights_are_copied_in(core):
    mine = weights()
    core.load_weights(mine, version=1)
    before = plain(core.generate(TASK[0], group_size=4, seed=1))
    for value in mine.values():
        value.zero_()
    assert plain(core.generate(TASK[0], group_size=4, seed=1)) == before


def test_nothing_is_generated_before_weights_were_loaded():
    with pytest.raises(MisuseError, match=f"{TASK[0].prompt_id}.*call load_weights"):
        TorchGenerator(TASK.shape, TASK).generate(TASK[0], group_size=2, seed=0)


def test_an_empty_group_is_refused(core):
    with pytest.raises(ConfigError, match="group_size is 0"):
        core.generate(TASK[0], group_size=0, seed=0)


def test_weights_of_another_shape_are_refused_and_change_nothing(core):
    before = plain(core.generate(TASK[0], group_size=4, seed=1))
    other = build_policy(PolicyShape(4, 3, 5, 10), seed=0).state_dict()
    with pytest.raises(ConfigMismatchError, match=r"version 3 .*one policy shape"):
        core.load_weights(other, version=3)
    assert plain(core.generate(TASK[0], group_size=4, seed=1)) == before


async def test_the_local_generator_is_a_generator(core):
    generator: Generator = LocalGenerator(core)
    await generator.load_weights(weights(seed=1), 1)
    rollouts = await generator.generate(TASK[0], group_size=4, seed=1)
    await generator.close()
    assert plain(rollouts) == plain(core.generate(TASK[0], group_size=4, seed=1))


async def test_a_delay_holds_the_group_but_not_the_weights_that_it_was_sampled_with(core):
    asked, release = [], asyncio.Event()

    async def delay(prompt, seed):
        asked.append((prompt, seed))
        await release.wait()

    expected = plain(core.generate(TASK[0], group_size=4, seed=1))
    generator = LocalGenerator(core, delay=delay)
    task = asyncio.create_task(generator.generate(TASK[0], group_size=4, seed=1))
    await asyncio.sleep(0)
    assert asked == [(TASK[0], 1)]
    assert not task.done()
    await generator.load_weights(weights(seed=1), 1)
    release.set()
    assert plain(await task) == expected
