import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlock.errors import WorkerError
from cutlock.workers.advantages import group_relative_advantages

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
