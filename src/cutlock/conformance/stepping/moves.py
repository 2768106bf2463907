"""How each action of the alphabet is brought about, and when the code does not stand there.

What the code decides by itself (which groups, which spare, batch or pool) is asked of the
code before it is let go on, so that an action that it would not do changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from cutlock.alphabet import Action
from cutlock.conformance.stepping.doing import Doing, Move, Records
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.errors import (
    CutlockError,
    DivergenceError,
    NotEnabledError,
    PlaneError,
    SaveError,
)
from cutlock.samplers import TransactionalAdmissionSampler

__all__ = ["MOVES", "SAVE_STOPS"]

_MANY = 10**6

SAVE_STOPS = (
    Action.TAKE_CUT,
    Action.COPY_POLICY,
    Action.OPEN_CUT,
    Action.READ_CURSOR,
    Action.READ_LOADER,
    Action.READ_SPARE_POOL,
    Action.READ_INDEX,
    Action.READ_LEDGER,
    Action.SAVE_PLANE,
    Action.SAVE_UNIT,
    Action.CLOSE_CUT,
    Action.WRITE_POLICY,
    Action.WRITE_SIDECARS,
    Action.WRITE_MANIFEST,
    Action.PUBLISH_BUNDLE,
)
"""Where a save stands and can fail, in order."""


# The start.


def _begin_run(doing: Doing) -> Records:
    _require_stage(doing, "down")
    incarnation = doing.stepper.begin()
    if incarnation.bundle is not None:
        # The controller has a log only when it connects; what was before is recorded then.
        return ()
    incarnation.load()
    incarnation.connect()
    return (Action.BEGIN_RUN,)


def _verify_bundle(doing: Doing) -> Records:
    _require_stage(doing, "begun")
    if doing.incarnation.bundle is None:
        raise NotEnabledError("no bundle is published; the run starts afresh with StartPumps")
    _stage(doing.incarnation.verify, doing)
    return ()


def _load_plane(doing: Doing) -> Records:
    _require_stage(doing, "verified")
    _stage(doing.incarnation.load, doing)
    return ()


def _connect_plane(doing: Doing) -> Records:
    _require_stage(doing, "loaded")
    _stage(doing.incarnation.connect, doing)
    return Action.BEGIN_RUN, Action.VERIFY_BUNDLE, Action.LOAD_PLANE, Action.CONNECT_PLANE


def _stage(stage: Callable[[], None], doing: Doing) -> None:
    try:
        stage()
    except CutlockError as error:
        doing.incarnation.refuse(error)


def _start_pumps(doing: Doing) -> Records:
    fresh = doing.stepper.up == "begun" and doing.incarnation.bundle is None
    if not fresh:
        _require_stage(doing, "restored")
    doing.incarnation.start()
    return (Action.START_PUMPS,)


def _end_run(doing: Doing) -> Records:
    incarnation = doing.incarnation
    if incarnation.stage == "refused":
        return ()
    run = incarnation.run
    if run is not None and not run.done() and _stands_at_its_end(incarnation):
        doing.release(Action.SELECT_GROUPS)
        doing.quiesce()
    if run is None or not run.done():
        raise NotEnabledError("the run goes on")
    return ()


def _stands_at_its_end(incarnation: Incarnation) -> bool:
    """Whether the train pump, about to select, will find that nothing is left and all is saved."""
    saved = incarnation.engine.saver.saved_step == incarnation.engine.step
    at_select = incarnation.stands.at(Action.SELECT_GROUPS)
    return at_select and saved and incarnation.engine.finished


def _crash(doing: Doing) -> Records:
    _ = doing.incarnation
    doing.stepper.kill()
    doing.stepper.crashes += 1
    return ()


def _require_stage(doing: Doing, stage: str) -> None:
    if doing.stepper.up != stage:
        raise NotEnabledError(f"the start has come to {doing.stepper.up!r}, not to {stage!r}")


# The rollout pump.


def _reserve_batch(doing: Doing) -> Records:
    _advance(doing, low=False)
    return (Action.RESERVE_BATCH,)


def _fill_spare_pool(doing: Doing) -> Records:
    _advance(doing, low=True)
    return (Action.FILL_SPARE_POOL,)


def _advance(doing: Doing, *, low: bool) -> None:
    doing.require_at(Action.RESERVE_BATCH)
    if doing.running.engine.pool_is_low() is not low:
        raise NotEnabledError(f"the spare pool is {'not low' if low else 'low'}")
    doing.require_door("loader_advance")
    doing.release(Action.RESERVE_BATCH)


def _drain_spare_pool(doing: Doing) -> Records:
    doing.require_at(Action.DRAIN_SPARE_POOL)
    state = doing.running.engine.state
    doing.require_choice("drain", _spares(doing, state.config.prompts_per_step))
    doing.require_door("spare_drain")
    doing.release(Action.DRAIN_SPARE_POOL)
    return (Action.DRAIN_SPARE_POOL,)


def _spares(doing: Doing, count: int) -> list[str]:
    pool = doing.running.engine.state.pool
    return [spare.key for spare in itertools.islice(pool._spares, count)]


def _open_gate(doing: Doing) -> Records:
    doing.require_at(Action.OPEN_GATE)
    state = doing.running.engine.state
    assert isinstance(state.sampler, TransactionalAdmissionSampler)
    probe = doing.stepper.loop.create_task(state.sampler.wait_until_admissible(state.version))
    doing.quiesce()
    if not probe.done():
        probe.cancel()
        doing.quiesce()
        raise NotEnabledError(
            f"the gate is shut: cursor {state.sampler.cursor}, version {state.version.value}"
        )
    doing.release(Action.OPEN_GATE)
    return (Action.OPEN_GATE,)


def _commit_admission(doing: Doing) -> Records:
    doing.require_at(Action.COMMIT_ADMISSION)
    doing.require_door("admission")
    doing.release(Action.COMMIT_ADMISSION)
    return (Action.COMMIT_ADMISSION,)


# One group in flight.


def _begin_commit(doing: Doing) -> Records:
    _require_generated(doing)
    doing.require_door("group_commit")
    doing.running.generator.succeed(doing.group)
    return (Action.BEGIN_COMMIT,)


def _fail_group(doing: Doing) -> Records:
    _require_generated(doing)
    _count_failure(doing)
    doing.running.generator.fail(doing.group)
    return (Action.FAIL_GROUP,)


def _require_generated(doing: Doing) -> None:
    if doing.group not in doing.running.generator.groups:
        raise NotEnabledError(f"group {doing.group!r} is not in generation")


def _roll_back_group(doing: Doing) -> Records:
    stops = (Action.COMMIT_GROUP, Action.STORE_ROW)
    stop = next((stop for stop in stops if doing.at(stop, doing.group)), Action.PUT_ROWS)
    doing.require_at(stop, doing.group)
    _count_failure(doing)
    doing.release(stop, doing.group, PlaneError(f"the commit of {doing.group} was told to fail"))
    doing.quiesce()
    while doing.at(Action.STORE_ROW, doing.group):
        # All units are asked at the same time, and this one is told to fail as well.
        doing.release(Action.STORE_ROW, doing.group, PlaneError("and so was the next unit"))
        doing.quiesce()
    return Action.ROLLBACK_GROUP, Action.FAIL_GROUP


def _count_failure(doing: Doing) -> None:
    doing.running.set_attempts(1 if doing.gives_up else _MANY)
    doing.stepper.failures += 1


def _store_row(doing: Doing) -> Records:
    doing.require_at(Action.STORE_ROW, doing.group)
    unit = doing.running.stands.units[doing.group]
    if unit != doing.unit:
        raise NotEnabledError(f"the put comes to unit {unit} first")
    doing.release(Action.STORE_ROW, doing.group)
    return ()


def _drop_group(doing: Doing) -> Records:
    doing.require_at(Action.DROP_GROUP, doing.group)
    if _spares(doing, 1):
        raise NotEnabledError("there is a spare, which would be its substitute")
    doing.require_door("drop")
    doing.release(Action.DROP_GROUP, doing.group)
    return (Action.DROP_GROUP,)


def _substitute_group(doing: Doing) -> Records:
    doing.require_at(Action.DROP_GROUP, doing.group)
    if _spares(doing, 1) != [doing.substitute]:
        raise NotEnabledError(f"the first spare is {_spares(doing, 1)}, not {doing.substitute!r}")
    doing.require_door("drop")
    doing.release(Action.DROP_GROUP, doing.group)
    return (Action.SUBSTITUTE_GROUP,)


def _at_stop_of_group(action: Action) -> Move:
    def move(doing: Doing) -> Records:
        _ = doing.running
        doing.release(action, doing.group)
        return (action,)

    return move


# The train pump. Whoever has waited there looks again and may come to another stop.


def _abort_stale(doing: Doing) -> Records:
    pump, group = doing.running.engine, doing.group
    first = pump.first_stale(doing.running.engine.state.version.value)
    if first != group:
        raise NotEnabledError(f"the code would abort {first!r}")
    if not doing.at(Action.ABORT_STALE, group):
        _look_again_before_sync(doing)
    doing.require_door("stale_abort")
    doing.release(Action.ABORT_STALE, group)
    return (Action.ABORT_STALE,)


def _sync_weights(doing: Doing) -> Records:
    if doing.incarnation.stage == "started":
        doing.release(Action.SYNC_WEIGHTS)
        return (Action.SYNC_WEIGHTS,)
    pump = doing.running.engine
    if stale := pump.first_stale(doing.running.engine.state.version.value):
        raise NotEnabledError(f"{stale!r} is stale and has to be aborted first")
    if not doing.at(Action.SYNC_WEIGHTS):
        _look_again_before_sync(doing)
    doing.release(Action.SYNC_WEIGHTS)
    return (Action.SYNC_WEIGHTS,)


def _look_again_before_sync(doing: Doing) -> None:
    """From the sync, or from the abort of a group that is not the first one any more."""
    stands = doing.running.stands
    for group in stands.groups(Action.ABORT_STALE):
        doing.release(Action.ABORT_STALE, group)
        doing.quiesce()
        return
    doing.release(Action.SYNC_WEIGHTS)
    doing.quiesce()


def _evict_groups(doing: Doing) -> Records:
    stale = doing.running.engine.stale_groups()
    if not stale:
        raise NotEnabledError("no finished group is stale")
    doing.require_choice("evict", stale)
    doing.require_door("evict")
    if doing.at(Action.SELECT_GROUPS):
        doing.release(Action.SELECT_GROUPS)
        doing.quiesce()
    doing.release(Action.EVICT_GROUPS)
    return (Action.EVICT_GROUPS,)


def _select_groups(doing: Doing) -> Records:
    doing.require_at(Action.SELECT_GROUPS)
    chosen = doing.running.engine.selectable_groups()
    if chosen is None:
        raise NotEnabledError("the groups of the next step are not to be selected now")
    doing.require_choice("select", chosen)
    doing.require_door("select")
    doing.release(Action.SELECT_GROUPS)
    return (Action.SELECT_GROUPS,)


# The save.


def _request_cut(doing: Doing) -> Records:
    incarnation = doing.running
    if not doing.at(Action.REQUEST_CUT):
        if incarnation.engine.saver.saved_step == incarnation.engine.step:
            raise NotEnabledError("this step is saved already")
        if (open_save := incarnation.engine.phases.save) != "none":
            raise NotEnabledError(f"the last save is not over, but at {open_save!r}")
        if incarnation.engine.saver._last is not None and not incarnation.engine.saver._last.done():
            raise NotEnabledError("the last save has failed and is still to clear what waited")
        if (place := incarnation.engine.phases.train) != "idle":
            raise NotEnabledError(f"the train pump is at {place!r}, not idle")
        incarnation.engine.request_save()
        doing.quiesce()
        for stop in (Action.SELECT_GROUPS, Action.EVICT_GROUPS):
            if doing.at(stop):
                doing.release(stop)
                doing.quiesce()
        if not doing.at(Action.REQUEST_CUT):
            raise DivergenceError("a save was requested, and the train pump does not come to it")
    doing.release(Action.REQUEST_CUT)
    return (Action.REQUEST_CUT,)


def _fail_save(doing: Doing) -> Records:
    failure = SaveError("the save was told to fail")
    for stop, where in list(doing.incarnation.stands.places):
        flushes = stop is Action.FLUSH_DEFERRED and doing.incarnation.engine.phases.save != "none"
        if stop in SAVE_STOPS or flushes:
            doing.release(stop, where, failure)
            doing.stepper.failures += 1
            return (Action.FAIL_SAVE,)
    raise NotEnabledError("no save stands where it could fail")


def _save_unit(doing: Doing) -> Records:
    """The log says it of all units together, when the last one has written."""
    doing.release(Action.SAVE_UNIT, str(doing.unit))
    units = len(doing.stepper.bounds.units)
    return (Action.SAVE_UNIT,) * (units if doing.unit == units - 1 else 0)


def _at_stop(action: Action) -> Move:
    def move(doing: Doing) -> Records:
        doing.release(action)
        return (action,)

    return move


_STOPS = (
    Action.RAISE_EPOCH,
    Action.WRITE_ADVANTAGES,
    Action.TRAIN_STEP,
    Action.CLEAR_ROWS,
    Action.RAISE_VERSION,
    *SAVE_STOPS,
    Action.FLUSH_DEFERRED,
    Action.PRUNE_BUNDLES,
    Action.RESTORE_INDEX,
    Action.RESTORE_SPARE_POOL,
    Action.RESTORE_LEDGER,
    Action.RESTORE_CURSOR,
)

MOVES: Mapping[str, Move] = {
    Action.BEGIN_RUN: _begin_run,
    Action.VERIFY_BUNDLE: _verify_bundle,
    Action.LOAD_PLANE: _load_plane,
    Action.CONNECT_PLANE: _connect_plane,
    Action.START_PUMPS: _start_pumps,
    Action.END_RUN: _end_run,
    Action.CRASH: _crash,
    Action.RESERVE_BATCH: _reserve_batch,
    Action.FILL_SPARE_POOL: _fill_spare_pool,
    Action.DRAIN_SPARE_POOL: _drain_spare_pool,
    Action.OPEN_GATE: _open_gate,
    Action.COMMIT_ADMISSION: _commit_admission,
    Action.LAUNCH_GROUP: _at_stop_of_group(Action.LAUNCH_GROUP),
    Action.BEGIN_COMMIT: _begin_commit,
    Action.PUT_ROWS: _at_stop_of_group(Action.PUT_ROWS),
    Action.COMMIT_GROUP: _at_stop_of_group(Action.COMMIT_GROUP),
    Action.ROLLBACK_GROUP: _roll_back_group,
    Action.FAIL_GROUP: _fail_group,
    Action.DROP_GROUP: _drop_group,
    Action.SUBSTITUTE_GROUP: _substitute_group,
    Action.ABORT_STALE: _abort_stale,
    Action.EVICT_GROUPS: _evict_groups,
    Action.SELECT_GROUPS: _select_groups,
    Action.SYNC_WEIGHTS: _sync_weights,
    Action.REQUEST_CUT: _request_cut,
    Action.FAIL_SAVE: _fail_save,
    **{action: _at_stop(action) for action in _STOPS},
    Action.STORE_ROW: _store_row,
    Action.SAVE_UNIT: _save_unit,
}
"""What brings an action about, by its name."""
