"""Which values of a state contradict each other, one function for each promise.

Source: `spec/Invariants.tla` and `spec/Barrier.tla`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cutlock.show.moments import listed
from cutlock.show.spec_state import (
    COUNTERS,
    disk_owners,
    live_owners,
    name_of,
    names_of,
    prompts_of,
)

__all__ = ["FINDERS", "Found"]

State = Mapping[str, Any]


class Found(NamedTuple):
    """One contradiction, and the rows of the picture that show it."""

    text: str
    rows: tuple[str, ...] = ()


def _two_or_none(
    prompts: Sequence[Any], owners: Callable[[Any], list[str]], position: int, where: str
) -> Iterator[Found]:
    alike: dict[str, list[str]] = {}
    for prompt in prompts:
        found = owners(prompt)
        served = prompt[0] <= position
        if len(found) > 1:
            what = f"twice {where}: {' and '.join(found)}"
        elif found and not served:
            what = f"{found[0]} {where}, and still to be handed out by the loader"
        elif served and not found:
            what = f"in nobody's hands {where}, though the loader has handed {{}} out"
        else:
            continue
        alike.setdefault(what, []).append(name_of(prompt))
    for what, names in alike.items():
        told = what.format("it" if len(names) == 1 else "them")
        yield Found(f"{listed(names)} {_are(names)} {told}", (*names,))


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _wait(names: Sequence[str]) -> str:
    return "waits" if len(names) == 1 else "wait"


def _count(number: int, what: str) -> str:
    return (
        f"{number} {what}"
        if number == 1
        else f"{number} {what}{'es' if what.endswith('ch') else 's'}"
    )


def type_ok(state: State) -> Iterator[Found]:
    """What a state holds and may not hold; of the many, what can be told in words."""
    if "led" not in state:
        yield Found(f"the barrier counts {_count(state['slots'], 'slot')}", ("slots counted",))
        return
    known = set(prompts_of(state))
    for group in sorted({group for group, _ in state["rows"]} - known, key=name_of):
        name = name_of(group)
        yield Found(f"the plane has rows of {name}, which the data set does not serve", (name,))


def one_owner(state: State) -> Iterator[Found]:
    if state["up"] == "running":
        yield from _two_or_none(
            prompts_of(state), lambda p: live_owners(state, p), state["pos"], "in the process"
        )


def disk_one_owner(state: State) -> Iterator[Found]:
    disk = state["disk"]
    yield from _two_or_none(
        prompts_of(state), lambda p: disk_owners(state, p), disk["pos"], "in the bundle"
    )


def _stamped_on_disk(state: State) -> list[Any]:
    disk = state["disk"]
    return [p for p in prompts_of(state) if p in disk["index"] or disk["led"][p] == "ADMITTED"]


def disk_cursor(state: State) -> Iterator[Found]:
    disk = state["disk"]
    above: dict[int, list[Any]] = {}
    for prompt in _stamped_on_disk(state):
        if disk["idx"][prompt] > disk["cursor"]:
            above.setdefault(disk["idx"][prompt], []).append(prompt)
    for stamp, prompts in above.items():
        names = names_of(prompts)
        yield Found(
            f"the saved cursor is {disk['cursor']}, and {listed(names)} in the same bundle "
            f"{_have(names)} the stamp {stamp}",
            (COUNTERS["disk_cursor"], *names),
        )
    for prompt in prompts_of(state):
        if disk["led"][prompt] == "RESERVED" and disk["idx"][prompt] != -1:
            name = name_of(prompt)
            yield Found(
                f"{name} is saved as reserved and already has the stamp {disk['idx'][prompt]}",
                (name,),
            )


def disk_stamps(state: State) -> Iterator[Found]:
    size = max(sum(p[0] == batch for p in prompts_of(state)) for batch, _ in prompts_of(state))
    by_stamp: dict[int, list[Any]] = {}
    for prompt in _stamped_on_disk(state):
        by_stamp.setdefault(state["disk"]["idx"][prompt], []).append(prompt)
    for stamp, prompts in by_stamp.items():
        if len(prompts) > size:
            names = names_of(prompts)
            yield Found(
                f"{listed(names)} all have the stamp {stamp}, a step takes {size}", (*names,)
            )


def one_admission(state: State) -> Iterator[Found]:
    by_batch: dict[int, dict[int, list[Any]]] = {}
    for prompt in prompts_of(state):
        if prompt in state["index"] or state["led"][prompt] != "none":
            by_batch.setdefault(prompt[0], {}).setdefault(state["idx"][prompt], []).append(prompt)
    for batch, stamps in by_batch.items():
        if len(stamps) > 1:
            told = [
                f"{listed(names_of(prompts))} "
                + (f"with stamp {stamp}" if stamp >= 0 else "not admitted yet")
                for stamp, prompts in sorted(stamps.items(), reverse=True)
            ]
            rows = names_of(p for prompts in stamps.values() for p in prompts)
            yield Found(f"batch {batch} was not admitted as a whole: {', '.join(told)}", (*rows,))


def disk_epoch(state: State) -> Iterator[Found]:
    disk = state["disk"]
    yield Found(
        f"the saved loader has handed out {_count(disk['pos'], 'batch')}, and the saved epoch "
        f"counter is {disk['epoch']}, which does not belong to that position",
        (COUNTERS["disk_loader"],),
    )


def _units_of(rows: Any) -> dict[Any, set[Any]]:
    found: dict[Any, set[Any]] = {}
    for prompt, unit in rows:
        found.setdefault(prompt, set()).add(unit)
    return found


def _rows_against(
    rows: Any, owners: Any, units: int, what: str, whose: str, *, others: bool
) -> Iterator[Found]:
    there = _units_of(rows)
    for prompt in sorted({*owners, *there}, key=name_of):
        name, count = name_of(prompt), len(there.get(prompt, ()))
        if prompt in owners and count < units:
            has = "no rows" if not count else f"rows in {count} of {units} units"
            yield Found(f"{name} is {whose}, and has {has} in {what}", (name,))
        elif prompt not in owners and others:
            yield Found(f"{name} has rows in {what}, and is not {whose}", (name,))


def _unit_count(state: State) -> int:
    named = {unit for _, unit in {*state["rows"], *state["cap"]["rows"], *state["disk"]["rows"]}}
    files = {*state["disk"]["files"], *state["cap"]["files"]}
    return max(1, len(named | (files - {"policy", "sidecars", "manifest"})))


def disk_rows(state: State) -> Iterator[Found]:
    disk, units = state["disk"], _unit_count(state)
    whose, what = "in the saved index", "the saved store"
    found = list(_rows_against(disk["rows"], disk["index"], units, what, whose, others=False))
    for prompt in sorted(disk["index"] - disk["keys"], key=name_of):
        name = name_of(prompt)
        found.append(Found(f"{name} is {whose}, and the saved key map does not list it", (name,)))
    # Other rows are wrong in a full window only, so they are told if nothing else is wrong.
    yield from found or _rows_against(disk["rows"], disk["index"], units, what, whose, others=True)


def live_rows(state: State) -> Iterator[Found]:
    owners = state["index"] | state["claimed"] | state["deferred"]
    yield from _rows_against(
        state["rows"],
        owners,
        _unit_count(state),
        "the plane",
        "owned by the buffer or a step",
        others=True,
    )


def inventory(state: State) -> Iterator[Found]:
    captured = state["cap"]["index"]
    index = captured["v"] if captured["set"] else frozenset()
    narrow = state["door"] != "shut"
    for found in _rows_against(
        state["rows"],
        index,
        _unit_count(state),
        "the plane",
        "in the index that the save has read",
        others=not narrow,
    ):
        yield Found(found.text, (COUNTERS["read_index"], *found.rows))


def fresh_advantages(state: State) -> Iterator[Found]:
    names = names_of(state["claimed"] - state["computed"])
    yield Found(
        f"the step trains {listed(names)} with advantages of an earlier step, from before the "
        "restart",
        (*names,),
    )


def no_twice(state: State) -> Iterator[Found]:
    for prompt in prompts_of(state):
        if state["trained"][prompt] > 1:
            name = name_of(prompt)
            yield Found(f"{name} has been trained twice in the history that survives", (name,))


def no_loss(state: State) -> Iterator[Found]:
    for prompt in prompts_of(state):
        if state["trained"][prompt] != 1 and prompt not in state["dropped"]:
            name = name_of(prompt)
            yield Found(
                f"{name} is neither trained nor dropped, and the run is at its end", (name,)
            )


def no_batch_dropped(state: State) -> Iterator[Found]:
    names = names_of(state["dropped"])
    yield Found(f"{listed(names)} are dropped, and nothing has failed", (*names,))


def no_refusal(state: State) -> Iterator[Found]:
    disk = state["disk"]
    missing = {"policy", "sidecars", "manifest"} - disk["files"]
    if missing:
        yield Found(f"the bundle can be found and lacks: {listed(sorted(missing))}")
        return
    found = list(
        _rows_against(
            state["rows"],
            disk["index"],
            _unit_count(state),
            "the plane after the restore",
            "in the restored index",
            others=True,
        )
    )
    yield from found
    if not found:
        yield Found("the bundle can be found, and the restore refuses it")


def complete(state: State) -> Iterator[Found]:
    files = state["disk"]["files"]
    missing = sorted({"policy", "sidecars", "manifest"} - files)
    yield Found(f"the bundle can be found and lacks: {listed(missing) if missing else 'rows'}")


def one_save(state: State) -> Iterator[Found]:
    saves: dict[int, list[str]] = {}
    for what, step in state["disk"]["of"].items():
        saves.setdefault(step, []).append(what)
    told = "; ".join(
        f"{listed(sorted(what))} of {'no save' if step < 0 else f'the save of step {step}'}"
        for step, what in sorted(saves.items())
    )
    yield Found(f"the bundle is not of one save: {told}", (COUNTERS["disk_version"],))


def cut_excludes(state: State) -> Iterator[Found]:
    names = names_of(p for p in prompts_of(state) if state["task"][p] in {"committing", "put"})
    if names:
        yield Found(
            f"the window is open while {listed(names)} {_are(names)} being committed", (*names,)
        )
    if state["raising"]:
        yield Found("the window is open while the loader raises its epoch", (COUNTERS["loader"],))


def gate_bound(state: State) -> Iterator[Found]:
    yield Found(
        f"the cursor is {state['cursor']} at trainer version {state['version']}: dispatch is "
        f"{state['cursor'] - state['version']} ahead, more than the gate window lets it be",
        (COUNTERS["cursor"], COUNTERS["version"]),
    )


def stuck(state: State) -> Iterator[Found]:
    if "led" not in state:
        yield from waiting(state)
        return
    reserved = names_of(p for p in prompts_of(state) if state["led"][p] == "RESERVED")
    admitted = names_of(
        p for p in prompts_of(state) if state["led"][p] == "ADMITTED" and state["task"][p] == "none"
    )
    if reserved:
        found = "" if state["gate"] else " at the gate"
        yield Found(
            f"{listed(reserved)} {_are(reserved)} reserved and {_wait(reserved)}{found}: cursor "
            f"{state['cursor']}, trainer version {state['version']}",
            (COUNTERS["cursor"], COUNTERS["version"], *reserved),
        )
    if admitted:
        held = len(state["index"]) + sum(task != "none" for task in state["task"].values())
        taken = f"for a place; {_count(held, 'place')} {'is' if held == 1 else 'are'} taken"
        yield Found(
            f"{listed(admitted)} {_are(admitted)} admitted and {_wait(admitted)} "
            f"{taken if held else 'to be launched'}",
            (*admitted,),
        )
    if state["sv"] == "requested":
        yield Found(f"a save waits for its cut; the door is {state['door']}")
    elif state["door"] != "open":
        yield Found(f"the door of the barrier is {state['door']}, and no cut waits any more")
    if state["tp"] == "idle":
        ready = [(p, state["idx"][p]) for p in prompts_of(state) if p in state["index"]]
        told = listed(f"{name_of(p)} (stamp {stamp})" for p, stamp in ready)
        yield Found(
            f"the trainer waits for the groups of step {state['version']}; finished: {told}",
            (COUNTERS["version"],),
        )
    elif state["tp"] == "saving":
        yield Found("the train pump stands still until the save has its cut")


def _people(state: State, *of: str) -> list[str]:
    return sorted(getattr(who, "name", str(who)) for who, at in state["state"].items() if at in of)


def waiting(state: State) -> Iterator[Found]:
    names = _people(state, "waiting")
    yield Found(f"{listed(names)} {_wait(names)} without an end", (*names,))


def exclusion(state: State) -> Iterator[Found]:
    names = _people(state, "inside", "granted")
    yield Found(f"{listed(names)} hold the barrier at once, and one of them is a cut", (*names,))


def balance(state: State) -> Iterator[Found]:
    names = _people(state, "inside", "granted")
    inside = f"inside is {listed(names)}" if names else "nobody is inside"
    yield Found(
        f"the barrier counts {_count(state['slots'], 'slot')} and "
        f"{'an' if state['open'] else 'no'} open cut, and {inside}",
        ("slots counted", *names),
    )


def each_queued_once(state: State) -> Iterator[Found]:
    waits = set(_people(state, "waiting"))
    queue = [getattr(who, "name", str(who)) for who in state["queue"]]
    for name in sorted({*queue, *waits}):
        times = queue.count(name)
        if times != (name in waits):
            told = f"{_count(times, 'time')} in the queue" if times else "not in the queue"
            does = "waits" if name in waits else "does not wait"
            yield Found(f"{name} is {told} and {does}", (name, "queue length"))


def no_idle_place(state: State) -> Iterator[Found]:
    names = _people(state, "waiting")
    yield Found(
        f"{listed(names)} {_wait(names)}, and nothing is in the way: "
        f"{_count(state['slots'], 'slot')}, {'an' if state['open'] else 'no'} open cut",
        (*names,),
    )


def deferred_waits(state: State) -> Iterator[Found]:
    names = names_of(state["deferred"])
    save = "no save is open" if state["sv"] == "none" else "a save is open"
    yield Found(f"the clears of {listed(names)} wait without an end, and {save}", (*names,))
    yield from stuck(state)


FINDERS: Mapping[str, Callable[[State], Iterator[Found]]] = {
    "TypeOK": type_ok,
    "OneOwner": one_owner,
    "DiskOneOwner": disk_one_owner,
    "DiskCursor": disk_cursor,
    "DiskStamps": disk_stamps,
    "OneAdmission": one_admission,
    "DiskEpoch": disk_epoch,
    "DiskRows": disk_rows,
    "SavedRows": disk_rows,
    "LiveRows": live_rows,
    "Inventory": inventory,
    "FreshAdvantages": fresh_advantages,
    "NoTwice": no_twice,
    "NoLoss": no_loss,
    "NoBatchDropped": no_batch_dropped,
    "NoRefusal": no_refusal,
    "Complete": complete,
    "RestoresOneSave": one_save,
    "CutExcludes": cut_excludes,
    "GateBound": gate_bound,
    "CutIsTaken": stuck,
    "SlotEnters": stuck,
    "DeferredEnds": deferred_waits,
    "AdmittedEnds": stuck,
    "RestoreEnds": no_refusal,
    "Exclusion": exclusion,
    "Balance": balance,
    "EachQueuedOnce": each_queued_once,
    "NoIdlePlace": no_idle_place,
    "RunEnds": stuck,
    "deadlock": stuck,
}
"""By the name that the promise has in the specification."""
