from __future__ import annotations

from cutlock.bond.compare import differences
from cutlock.conformance.observation.compare import likely_cause
from cutlock.tlc.values import Function


def test_equal_states_have_no_difference() -> None:
    assert differences({"pos": 1}, {"pos": 1}) == ()


def test_a_difference_is_shown_with_its_way_into_records_and_functions() -> None:
    spec = {"disk": Function({"led": Function({(1, 2): "ADMITTED", (1, 1): "none"}), "pos": 1})}
    code = {"disk": Function({"led": Function({(1, 2): "none", (1, 1): "none"}), "pos": 1})}
    (found,) = differences(spec, code)
    assert str(found) == 'disk.led[<<1, 2>>]: spec "ADMITTED", code "none"'
    assert found.variable == "disk"


def test_what_only_one_side_has_is_a_difference() -> None:
    found = differences({"a": 1, "f": Function({1: 1})}, {"b": 1, "f": Function({2: 1})})
    assert [str(difference) for difference in found] == [
        "a: spec 1, code nothing",
        "b: spec nothing, code 1",
        "f[1]: spec 1, code nothing",
        "f[2]: spec nothing, code 1",
    ]


def test_truth_is_not_a_number() -> None:
    assert len(differences({"gate": True}, {"gate": 1})) == 1


def test_the_likely_cause_is_a_sentence_about_the_variables() -> None:
    assert likely_cause("SavePlane", frozenset({"rows", "cap"})) == (
        "the plane and the index changed apart."
    )
    assert likely_cause("EndRun", frozenset({"unheard"})).startswith("the two do not have")
