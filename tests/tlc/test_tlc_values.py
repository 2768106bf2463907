from __future__ import annotations

import os
import pickle
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlock.errors import ToolError
from cutlock.tlc.values import Function, ModelValue, Value, function, parse_value, to_tla

identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in ("TRUE", "FALSE")
)
strings = st.text(alphabet=string.ascii_letters + string.digits + ' "\\\n\t\r\f@{<[(', max_size=8)
atoms = st.one_of(st.integers(-(2**31), 2**31), st.booleans(), strings, identifiers.map(ModelValue))


def containers(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.lists(values, max_size=3).map(tuple),
        st.frozensets(values, max_size=3),
        st.dictionaries(values, values, max_size=3).map(function),
        st.dictionaries(identifiers, values, max_size=3).map(function),
    )


values = st.recursive(atoms, containers, max_leaves=12)


@given(values)
def test_a_value_is_read_back_as_it_was_written(value: Value) -> None:
    read = parse_value(to_tla(value))
    assert read == value
    assert type(read) is type(value)
    assert hash(read) == hash(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-12", -12),
        ("TRUE", True),
        ("FALSE", False),
        ('""', ""),
        (r'"a \"b\" \\ \n\t"', 'a "b" \\ \n\t'),
        ("p1", ModelValue("p1")),
        ("1st", ModelValue("1st")),
        ("<<>>", ()),
        ("<<1, <<2>>>>", (1, (2,))),
        ("{}", frozenset()),
        ("{p1, p2}", frozenset({ModelValue("p1"), ModelValue("p2")})),
        ("1..3", frozenset({1, 2, 3})),
        ("-1..0", frozenset({-1, 0})),
        ("3..1", frozenset()),
        ("[a |-> 1, b |-> {}]", Function({"a": 1, "b": frozenset()})),
        ('("c@0" :> -1 @@ "d" :> 2)', Function({"c@0": -1, "d": 2})),
        (
            '(<<1, a>> :> "none" @@ <<1, b>> :> "gen")',
            Function({(1, ModelValue("a")): "none", (1, ModelValue("b")): "gen"}),
        ),
        ('(2 :> "b" @@ 1 :> "a")', ("a", "b")),
        ("(0 :> 5)", Function({0: 5})),
        ("  << 1,\n   2 >>  ", (1, 2)),
    ],
)
def test_values_are_read_as_tlc_prints_them(text: str, value: Value) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("1 2", 2),
        ("<<1, >>", 5),
        ("<<1 2>>", 4),
        ("{1", 2),
        ("[a |-> 1, a |-> 2]", 10),
        ("[1 |-> 2]", 1),
        ("[a :> 2]", 3),
        ("(1 :> 2 @@ 1 :> 3)", 11),
        ("(1 |-> 2)", 3),
        ('"open', 0),
        (r'"a\qb"', 2),
        ("1..p", 3),
        ("<<1, #>>", 5),
        ("TRUE FALSE", 5),
    ],
)
def test_a_malformed_value_is_refused_with_the_position(text: str, position: int) -> None:
    with pytest.raises(ToolError, match=f"at character {position},"):
        parse_value(text)


def test_equal_texts_are_read_once() -> None:
    assert parse_value("<<1, {2}>>") is parse_value("<<1, {2}>>")


def test_a_function_is_a_mapping_that_cannot_be_changed() -> None:
    value = Function({"a": 1})
    assert value["a"] == 1
    assert dict(value) == {"a": 1}
    assert value == Function([("a", 1)])
    assert value != {"a": 1}
    assert {value: 1}[Function({"a": 1})] == 1
    with pytest.raises(TypeError):
        value["a"] = 2  # type: ignore[index]


def test_equal_values_are_written_alike_whatever_their_order() -> None:
    assert to_tla(Function({"b": 2, "a": 1})) == to_tla(Function({"a": 1, "b": 2}))
    assert to_tla(frozenset({"b", "a"})) == '{"a", "b"}'


@pytest.mark.parametrize("text", ["caf\u00e9", "\x00", "a\x0bb"])
def test_a_string_that_no_module_can_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="plain ASCII"):
        to_tla(text)


def test_what_is_no_value_is_not_written() -> None:
    with pytest.raises(TypeError, match="float"):
        to_tla(1.5)  # type: ignore[arg-type]


def test_a_function_is_found_again_in_another_process() -> None:
    script = (
        "import pickle, sys\n"
        "from cutlock.tlc.values import Function\n"
        "given = pickle.load(sys.stdin.buffer)\n"
        'print(given in {Function({"led": Function({"a": "none"})})})\n'
    )
    value = Function({"led": Function({"a": "none"})})
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(value),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
    )
    assert done.stdout.strip() == b"True"
