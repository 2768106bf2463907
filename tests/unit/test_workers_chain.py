import hashlib

from hypothesis import given
from hypothesis import strategies as st

from cutlock.workers.chain import FIRST_CHAIN, extend_chain

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
