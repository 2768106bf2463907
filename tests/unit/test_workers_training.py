import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlock.errors import WorkerError
from cutlock.workers.training import FIRST_CHAIN, extend_chain, group_relative_advantages

rewards = st.floats(min_value=-100, max_value=100, allow_nan=False)


@given(rewards, st.integers(min_value=0, max_value=9))
def test_a_group_of_equal_rewards_has_zero_advantages(reward, size):
    assert group_relative_advantages([reward] * size) == [0.0] * size


def test_two_siblings_end_on_both_sides_of_zero():
    low, high = group_relative_advantages([0.0, 1.0])
    assert low == -high
    assert high == pytest.approx(1.0, abs=1e-5)


@given(st.lists(rewards, min_size=2, max_size=9))
def test_advantages_are_centred_and_bounded_and_ordered_as_the_rewards(group):
    advantages = group_relative_advantages(group)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-4)
    assert all(abs(advantage) <= math.sqrt(len(group)) for advantage in advantages)
    order = sorted(range(len(group)), key=group.__getitem__)
    assert [advantages[place] for place in order] == sorted(advantages)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_refused_by_value(bad):
    with pytest.raises(WorkerError, match=r"0\.5.*(nan|inf).*finite number"):
        group_relative_advantages([0.5, bad])


histories = st.lists(st.sets(st.text(max_size=4), max_size=4), max_size=4)


def chain_of(history):
    chain = FIRST_CHAIN
    for step, groups in enumerate(history):
        chain = extend_chain(chain, step, groups)
    return chain


def test_the_first_chain_is_the_hash_of_the_name():
    assert hashlib.sha256(b"cutlock").hexdigest() == FIRST_CHAIN


def test_a_link_hashes_the_chain_bytes_and_the_json_of_step_and_sorted_groups():
    expected = hashlib.sha256(hashlib.sha256(b"cutlock").digest() + b'[7,["a@0","b@0"]]')
    assert extend_chain(FIRST_CHAIN, 7, ["b@0", "a@0"]) == expected.hexdigest()


def test_an_empty_step_extends_the_chain():
    assert extend_chain(FIRST_CHAIN, 0, []) != FIRST_CHAIN


def test_the_step_is_part_of_the_chain():
    assert extend_chain(FIRST_CHAIN, 0, ["a"]) != extend_chain(FIRST_CHAIN, 1, ["a"])


@given(histories, histories)
def test_equal_chains_mean_equal_histories(one, other):
    assert (chain_of(one) == chain_of(other)) == (one == other)
