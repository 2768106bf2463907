import pickle

import msgspec
import pytest
import torch

from cutlock.errors import BundleCorruptError, ConfigMismatchError, RowsMissingError
from cutlock.workers.base import POLICY_FILES, PolicyShape, Trainer
from cutlock.workers.prompts import ReverseTask
from cutlock.workers.torch_generator import TorchGenerator
from cutlock.workers.torch_trainer import Learning, LocalTrainer, TorchTrainer
from cutlock.workers.training import FIRST_CHAIN, extend_chain, group_relative_advantages

TASK = ReverseTask(400)


class Rows:
    """As much of a plane as a trainer uses."""

    def __init__(self):
        self.rows = {}

    async def get(self, keys, fields):
        missing = [key for key in keys if key not in self.rows]
        if missing:
            raise RowsMissingError(f"rows {missing} are gone")
        return {field: [self.rows[key][field] for key in keys] for field in fields}


class Run:
    """A trainer with the rows it reads, and a generator that fills them."""

    def __init__(self, **trainer):
        self.plane = Rows()
        self.core = TorchTrainer(TASK.shape, **trainer)
        self.trainer = LocalTrainer(self.core, self.plane)
        self.generator = TorchGenerator(TASK.shape, TASK)

    def generate(self, step, prompts=6, group_size=8):
        self.generator.load_weights(self.core.weights(), step)
        groups = {}
        for position in range(step * prompts, (step + 1) * prompts):
            prompt = TASK[position]
            rollouts = self.generator.generate(prompt, group_size=group_size, seed=position)
            advantages = group_relative_advantages(rollouts.rewards)
            groups[f"{prompt.prompt_id}@0"] = keys = []
            for sibling, advantage in enumerate(advantages):
                keys.append(f"{prompt.prompt_id}@0/{sibling}")
                row = {name: rows[sibling] for name, rows in rollouts.fields.items()}
                self.plane.rows[keys[-1]] = row | {"advantage": torch.tensor([advantage])}
        return groups

    async def step(self, step, **sizes):
        return await self.trainer.train(step, self.generate(step, **sizes))


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def moments(core):
    state = core.capture().optimizer["state"]
    return {f"{number}.{name}": value for number in state for name, value in state[number].items()}


@pytest.fixture
def run():
    return Run(seed=1)


@pytest.fixture
async def saved(run, tmp_path):
    await run.step(0, prompts=2)
    await run.step(1, prompts=2)
    await run.trainer.copy()
    await run.trainer.save(tmp_path)
    return tmp_path


def test_reward_rises_over_forty_steps():
    run = Run(seed=0)
    rewards = []
    for step in range(40):
        groups = run.generate(step)
        keys = [key for keys in groups.values() for key in keys]
        rows = {
            name: [run.plane.rows[key][name] for key in keys] for name in run.plane.rows[keys[0]]
        }
        rewards.append(run.core.train(step, list(groups), rows).reward_mean)
    first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
    assert first < 0.3
    assert last > first + 0.4


async def test_the_local_trainer_is_a_trainer(run):
    trainer: Trainer = run.trainer
    assert await trainer.copy() == (0, FIRST_CHAIN)
    await trainer.close()


async def test_equal_seeds_and_steps_give_bit_equal_weights(run):
    twin = Run(seed=1)
    for step in range(2):
        assert await run.step(step, prompts=2) == await twin.step(step, prompts=2)
    assert same(run.core.weights(), twin.core.weights())


async def test_the_order_of_the_groups_does_not_matter(run):
    twin = Run(seed=1)
    groups = run.generate(0, prompts=3)
    twin.generate(0, prompts=3)
    await run.trainer.train(0, groups)
    await twin.trainer.train(0, dict(reversed(groups.items())))
    assert same(run.core.weights(), twin.core.weights())
    assert await run.trainer.copy() == await twin.trainer.copy()


async def test_a_report_counts_what_was_trained(run):
    groups = run.generate(0, prompts=3, group_size=4)
    report = await run.trainer.train(0, groups)
    rows = run.plane.rows.values()
    assert report.groups == 3
    assert report.tokens == sum(len(row["response"]) for row in rows)
    assert report.reward_mean == pytest.approx(sum(row["reward"].item() for row in rows) / 12)
    assert report.grad_norm > 0


async def test_a_group_of_zero_advantages_leaves_a_fresh_policy_as_it_is(run):
    groups = run.generate(0, prompts=1)
    for row in run.plane.rows.values():
        row["advantage"] = torch.zeros(1)
    before = run.core.weights()
    report = await run.trainer.train(0, groups)
    assert report.grad_norm == 0
    assert same(run.core.weights(), before)


async def test_a_better_sibling_becomes_more_likely(run):
    groups = run.generate(0, prompts=1, group_size=2)
    (keys,) = groups.values()
    for key, advantage in zip(keys, (1.0, -1.0), strict=True):
        run.plane.rows[key]["advantage"] = torch.tensor([advantage])
    await run.trainer.train(0, groups)
    better = run.plane.rows[keys[0]]
    policy = run.core._policy
    scored, _ = policy.log_probs([better["prompt"]], [better["response"]])
    assert scored.sum() > better["logprobs"].sum()


async def test_a_token_beyond_the_clip_does_not_pull(run):
    groups = run.generate(0, prompts=1, group_size=2)
    (keys,) = groups.values()
    for key in keys:
        row = run.plane.rows[key]
        row["advantage"] = torch.ones(1)
        row["logprobs"] = row["logprobs"] - 1.0
    report = await run.trainer.train(0, groups)
    assert report.grad_norm == 0
    assert report.loss == pytest.approx(-(1 + Learning().clip))


async def test_a_step_without_groups_learns_nothing_but_counts(run):
    before = run.core.weights()
    report = await run.trainer.train(0, {})
    assert (report.groups, report.tokens) == (0, 0)
    assert same(run.core.weights(), before)
    assert await run.trainer.copy() == (0, extend_chain(FIRST_CHAIN, 0, []))
    assert run.core.facts.step == 1


async def test_the_chain_is_that_of_the_trained_groups(run):
    first, second = run.generate(0, prompts=2), run.generate(1, prompts=3)
    await run.trainer.train(4, first)
    await run.trainer.train(5, second)
    expected = extend_chain(extend_chain(FIRST_CHAIN, 4, first), 5, second)
    assert await run.trainer.copy() == (5, expected)


async def test_missing_rows_leave_the_trainer_as_it_was(run):
    groups = run.generate(0, prompts=1)
    run.plane.rows.popitem()
    before = run.core.weights()
    with pytest.raises(RowsMissingError):
        await run.trainer.train(0, groups)
    assert same(run.core.weights(), before)
    assert await run.trainer.copy() == (0, FIRST_CHAIN)


async def test_handed_over_weights_do_not_change_with_later_steps(run):
    handed = await run.trainer.weights()
    before = {name: value.clone() for name, value in handed.items()}
    await run.step(0, prompts=2)
    assert same(handed, before)
    assert not same(handed, run.core.weights())


async def test_a_captured_state_does_not_change_with_later_steps(run):
    await run.step(0, prompts=2)
    state = run.core.capture()
    before = moments(run.core)
    await run.step(1, prompts=2)
    run.core.restore(state)
    assert same(moments(run.core), before)


async def test_a_save_writes_the_policy_files_and_nothing_else(saved):
    assert sorted(path.name for path in saved.iterdir()) == sorted(POLICY_FILES)


async def test_a_load_gives_bit_equal_weights_optimizer_and_chain(run, saved):
    resumed = Run(seed=99)
    await resumed.trainer.load(saved)
    assert same(resumed.core.weights(), run.core.weights())
    assert same(moments(resumed.core), moments(run.core))
    assert resumed.core.facts == run.core.facts
    assert resumed.core.facts.step == 2


async def test_a_loaded_trainer_takes_the_same_next_step(run, saved):
    resumed = Run(seed=99)
    await resumed.trainer.load(saved)
    assert await resumed.step(2, prompts=2) == await run.step(2, prompts=2)
    assert same(resumed.core.weights(), run.core.weights())
    assert same(moments(resumed.core), moments(run.core))


async def test_a_resume_keeps_its_own_learning_rate(saved):
    resumed = Run(learning=Learning(rate=0.5))
    await resumed.trainer.load(saved)
    assert [group["lr"] for group in resumed.core.capture().optimizer["param_groups"]] == [0.5]


async def test_a_saved_policy_of_another_shape_is_refused_with_both_values(saved):
    other = PolicyShape(tokens=4, eos=3, longest_prompt=5, longest_response=10)
    with pytest.raises(ConfigMismatchError, match=r"tokens=9.*tokens=4"):
        await LocalTrainer(TorchTrainer(other), Rows()).load(saved)


@pytest.mark.parametrize("name", POLICY_FILES)
@pytest.mark.parametrize("damage", ["missing", "torn", "garbage"])
async def test_a_damaged_file_is_named_and_nothing_is_loaded(saved, name, damage):
    path = saved / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2] if damage == "torn" else b"\x00garbage")
    fresh = TorchTrainer(TASK.shape, seed=5)
    before = fresh.weights()
    with pytest.raises(BundleCorruptError, match=f"{name}.*another bundle"):
        await LocalTrainer(fresh, Rows()).load(saved)
    assert same(fresh.weights(), before)
    assert fresh.facts.step == 0


async def test_weights_that_lack_a_tensor_are_refused_and_nothing_is_loaded(run):
    state = run.core.capture()
    del state.weights["gate.bias"]
    fresh = TorchTrainer(TASK.shape, seed=5)
    before = fresh.weights()
    with pytest.raises(BundleCorruptError, match=r"gate\.bias"):
        fresh.restore(state)
    assert same(fresh.weights(), before)


class Bomb:
    """Pickles to a call that leaves a mark when it is unpickled without care."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


@pytest.mark.parametrize(
    "write", [torch.save, lambda bomb, path: path.write_bytes(pickle.dumps(bomb))]
)
async def test_an_optimizer_file_that_holds_code_is_refused_and_not_run(saved, tmp_path, write):
    mark = tmp_path / "mark"
    write(Bomb(mark), saved / "optimizer.pt")
    with pytest.raises(BundleCorruptError, match=r"optimizer\.pt"):
        await LocalTrainer(TorchTrainer(TASK.shape), Rows()).load(saved)
    assert not mark.exists()


async def test_an_optimizer_file_that_holds_no_state_dict_is_refused(saved):
    torch.save([1, 2], saved / "optimizer.pt")
    with pytest.raises(BundleCorruptError, match="holds a list"):
        await LocalTrainer(TorchTrainer(TASK.shape), Rows()).load(saved)


async def test_trainer_json_holds_step_and_chain_and_refuses_unknown_fields(run, saved):
    path = saved / "trainer.json"
    content = msgspec.json.decode(path.read_bytes())
    assert (content["step"], content["trained_groups"]) == (2, 4)
    assert (4, content["trained_chain"]) == await run.trainer.copy()
    path.write_bytes(msgspec.json.encode(content | {"version": 1}))
    with pytest.raises(BundleCorruptError, match=r"trainer\.json.*version"):
        await LocalTrainer(TorchTrainer(TASK.shape), Rows()).load(saved)
