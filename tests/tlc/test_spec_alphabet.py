"""One alphabet: specification, labels, table and Python name the same actions."""

import re
from pathlib import Path

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.tlc.manifest import load_manifest

SPEC = Path(__file__).parents[2] / "spec"
PYTHON = {action.value for action in Action}
# Found by mutants only: an artifact that was read too early, and what a mutant adds.
HOOKS = {"PassOver", "Late"}
_LABEL = re.compile(
    r"(\w+)(?:\(\w+(?:, \w+)*\))?\s*/\\ "
    r"(?:(Act|Of|All)\(\"(\w+)\"|act' = \[name \|-> \"(\w+)\"((?:, \w+ \|-> \w+)*)\])"
)
_ARGUMENTS = {"Act": [], "Of": ["group"], "All": ["groups"]}


def text_of(module: str) -> str:
    return re.sub(r"\\\*[^\n]*|\(\*.*?\*\)", "", (SPEC / f"{module}.tla").read_text(), flags=re.S)


def operator(module: str, name: str) -> str:
    found = re.search(rf"^{name} ==(.*?)(?=^\S|\Z)", text_of(module), re.S | re.M)
    assert found, f"no {name} in {module}"
    return found[1]


def specified() -> set[str]:
    listed = operator("Cutlock", "Progress") + operator("Cutlock", "Trouble") + r" \/ EndRun"
    return set(re.findall(r"\\/ (?:\\E [^:]*:\s*)?(?:\\/ )?([A-Z]\w+)", listed)) - HOOKS


def labels() -> dict[str, tuple[str, list[str]]]:
    """Label to the operator that it is of, and its arguments."""
    found = {}
    for match in _LABEL.finditer(text_of("LabelledCutlock")):
        name, helper, first, second, given = match.groups()
        arguments = _ARGUMENTS[helper] if helper else re.findall(r"(\w+) \|->", given)
        assert (first or second) not in found, f"{first or second} is labelled twice"
        found[first or second] = (name, arguments)
    del found["Late"]
    return found


def test_the_actions_of_the_specification_are_those_of_python() -> None:
    assert specified() == PYTHON


def test_every_action_has_its_own_label() -> None:
    assert {label: name for label, (name, _) in labels().items()} == {n: n for n in PYTHON}


def test_arguments_have_the_names_of_the_alphabet() -> None:
    for label, (_, arguments) in labels().items():
        assert set(arguments) <= set(ARGUMENTS[Action(label)]), label


def test_what_an_action_chooses_is_in_its_label() -> None:
    for label, (_, arguments) in labels().items():
        parameters = re.search(rf"\b{label}\((\w+(?:, \w+)*)\) ==", text_of("Cutlock"))
        chosen = len(parameters[1].split(", ")) if parameters else 0
        assert len(arguments) >= chosen, label


def test_the_table_lists_every_action_once() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \|.*\|$", (SPEC / "README.md").read_text(), re.M)
    operators = {
        "PutIsTorn",
        "UnitFiles",
        "KeyMaps",
        "OthersUsePlane",
        "Places",
        "Renamed",
        "MayCrash",
        "MayFail",
    }
    modules = {path.stem for path in SPEC.glob("*.tla")}
    actions = [row for row in rows if row not in operators | modules]
    assert sorted(actions) == sorted(PYTHON)


def test_every_model_is_bounded_in_all_that_the_specification_bounds() -> None:
    bounded = set(re.findall(r"^MC(\w+)(?:\(.*\))? ==", text_of("MCCutlock"), re.M))
    manifest = load_manifest(SPEC.parent / "model_check" / "manifest.toml")
    for model in manifest.models:
        if "Barrier" not in model.module:
            tokens = manifest.config(model)["constants"]
            triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
            replaced = {name for name, arrow, by in triples if (arrow, by) == ("<-", f"MC{name}")}
            assert replaced == bounded, model.name
