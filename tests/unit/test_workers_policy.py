import pytest
import torch

from cutlock.errors import ConfigError
from cutlock.workers.base import PolicyShape
from cutlock.workers.policy import build_policy

SHAPE = PolicyShape(tokens=6, eos=5, longest_prompt=4, longest_response=7, hidden=16)


@pytest.fixture(scope="module")
def policy():
    return build_policy(SHAPE, seed=1)


def sample(policy, seed=3, count=12):
    return policy.sample(torch.tensor([0, 1, 2]), count=count, seed=seed)


def test_the_default_policy_has_less_than_a_hundred_thousand_parameters():
    default = build_policy(PolicyShape(9, 8, 5, 10), seed=0)
    assert sum(parameter.numel() for parameter in default.parameters()) < 100_000


def test_equal_seeds_build_equal_policies_and_leave_the_global_state_alone():
    before = torch.random.get_rng_state()
    one, other = build_policy(SHAPE, seed=4), build_policy(SHAPE, seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(map(torch.equal, one.parameters(), other.parameters()))


def test_equal_seeds_sample_equal_responses_and_other_seeds_others(policy):
    texts = [[one.tokens.tolist() for one in sample(policy, seed)] for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("seed", [-1, 2**80])
def test_any_integer_is_a_seed(policy, seed):
    assert len(sample(policy, seed)) == 12


def test_responses_of_a_group_are_ragged(policy):
    assert len({len(one.tokens) for one in sample(policy)}) > 2


def test_a_response_stops_at_its_first_end_token_or_at_the_longest_length(policy):
    for tokens, logprobs in sample(policy, count=50):
        ends = (tokens == SHAPE.eos).nonzero().flatten().tolist()
        assert ends == [len(tokens) - 1] or (not ends and len(tokens) == SHAPE.longest_response)
        assert logprobs.shape == tokens.shape


def test_a_sampled_row_owns_only_its_own_storage(policy):
    assert all(
        tensor.untyped_storage().nbytes() == tensor.nbytes
        for one in sample(policy)
        for tensor in one
    )


def test_log_probs_of_a_padded_batch_are_those_of_the_sampling(policy):
    prompts = [torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([4, 3, 2, 1])]
    samples = [
        (prompt, one) for prompt in prompts for one in policy.sample(prompt, count=4, seed=2)
    ]
    scored, mask = policy.log_probs(
        [prompt for prompt, _ in samples], [one.tokens for _, one in samples]
    )
    for row, (_, one) in enumerate(samples):
        assert mask[row].sum() == len(one.tokens)
        torch.testing.assert_close(scored[row, : len(one.tokens)], one.logprobs)


def test_probabilities_of_the_next_token_sum_to_one(policy):
    prompt = torch.tensor([0, 1, 2])
    answers = [torch.tensor([token]) for token in range(SHAPE.tokens)]
    scored, _ = policy.log_probs([prompt] * SHAPE.tokens, answers)
    torch.testing.assert_close(scored.exp().sum(), torch.tensor(1.0))


def test_a_prompt_that_is_too_long_is_refused_with_both_lengths(policy):
    with pytest.raises(ConfigError, match=r"has 5 tokens, the policy takes 4.*longest_prompt"):
        policy.sample(torch.tensor([0, 1, 2, 3, 4]), count=1, seed=0)
