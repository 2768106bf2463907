import pytest

from cutlock.errors import ConfigError
from cutlock.workers.base import Prompt, PromptSet, Verifier
from cutlock.workers.prompts import ReverseTask


def test_the_digest_of_a_prompt_is_of_its_tokens_alone():
    assert Prompt("a", (1, 2)).digest == Prompt("b", (1, 2)).digest
    assert Prompt("a", (1, 2)).digest != Prompt("a", (2, 1)).digest
    assert len(Prompt("a", (1, 2)).digest) == 16


def test_the_reverse_task_is_a_prompt_set_and_a_verifier():
    prompts: PromptSet = ReverseTask(5)
    verifier: Verifier = ReverseTask(5)
    assert len(list(prompts)) == len(prompts) == 5
    assert verifier.reward(prompts[0], [*reversed(prompts[0].tokens), 8]) == 1.0


def test_equal_arguments_give_the_same_data_set():
    assert list(ReverseTask(50, seed=3)) == list(ReverseTask(50, seed=3))
    assert ReverseTask(50, seed=3).digest == ReverseTask(50, seed=3).digest


@pytest.mark.parametrize("other", [{"seed": 4}, {"count": 51}, {"vocabulary": 7}, {"length": 4}])
def test_another_data_set_has_another_digest(other):
    base = {"count": 50, "seed": 3}
    assert ReverseTask(**base).digest != ReverseTask(**(base | other)).digest


def test_prompt_ids_are_distinct_and_lead_back_to_their_prompts():
    task = ReverseTask(60, length=3, vocabulary=4)
    assert len({prompt.prompt_id for prompt in task}) == 60
    assert all(task.by_id(prompt.prompt_id) is prompt for prompt in task)


def test_every_string_can_be_a_prompt():
    assert {prompt.tokens for prompt in ReverseTask(12, length=3, vocabulary=2)} == {
        tuple(int(digit) for digit in f"{number:0{length}b}")
        for length in (2, 3)
        for number in range(2**length)
    }


def test_an_unknown_prompt_id_is_named_with_the_way_out():
    with pytest.raises(ConfigError, match=r"'reverse-99'.*run with the data set"):
        ReverseTask(5).by_id("reverse-99")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"count": 13, "length": 3, "vocabulary": 2},
            "13 prompts are wanted, but 2 digits form",
        ),
        ({"count": 0}, "0 prompts are wanted"),
        ({"count": 5, "length": 1}, "length is 1"),
        ({"count": 5, "vocabulary": 11}, "vocabulary is 11"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        ReverseTask(**arguments)


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ([3, 2, 1, 8], 1.0),
        ([3, 2, 1], 3 / 4),
        ([3, 2, 8], 2 / 4),
        ([3, 2, 1, 1, 8], 3 / 5),
        ([1, 2, 3, 8], 2 / 4),
        ([8], 0.0),
        ([], 0.0),
    ],
)
def test_the_reward_is_the_share_of_right_tokens_over_the_longer_side(response, reward):
    assert ReverseTask(1).reward(Prompt("p", (1, 2, 3)), response) == reward
