"""Metrics of a run: what is served, whether it is true, and that the run does not depend on it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import cutlock
from cutlock.alphabet import Action
from cutlock.controller.core import Controller
from cutlock.errors import ConfigError
from cutlock.events import EventLog
from cutlock.run.endpoint import announced, targets_file
from cutlock.run.exporter import Exporter, owners
from cutlock.samplers import SAMPLER_NAMES
from tests.support.commands import assert_refused, cutlock_
from tests.support.local_runs import Run, Trouble, killed, prompt_ids, tiny_config

ROOT = Path(cutlock.__file__).parents[2]
SERVED = {"metrics": {"port": 0}}


class Watched(Run):
    """A run whose controller a test can look at."""

    controller: Controller

    async def _build(self, *arguments: Any) -> tuple[Controller, EventLog]:
        self.controller, events = await super()._build(*arguments)
        return self.controller, events


def scraped(url: str) -> dict[str, Metric]:
    """All families by name."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


class Scrapes:
    """Scrapes a run after every step, from another thread, as Prometheus would."""

    def __init__(self, run: Watched) -> None:
        self.run = run
        self.found: list[dict[str, Metric]] = []
        self.targets: list[dict[str, Any]] = []

    async def reach(self, action: Action, /, **where: object) -> None:
        if action is Action.RAISE_VERSION:
            url = self.run.controller.status().metrics_url
            self.targets = json.loads(targets_file(self.run.root, "cutlock").read_text())
            with ThreadPoolExecutor(1) as thread:
                loop = asyncio.get_running_loop()
                self.found.append(await loop.run_in_executor(thread, scraped, url))


def value(found: dict[str, Metric], sample: str, **labels: str) -> float:
    (only,) = [
        each.value
        for family in found.values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return only


class Owners:
    """Counts the owners at every announcement."""

    def __init__(self, run: Watched) -> None:
        self.run = run
        self.seen: list[dict[str, int]] = []

    async def reach(self, action: Action, /, **where: object) -> None:
        if hasattr(self.run, "controller"):  # it is restored
            self.seen.append(owners(self.run.controller.engine.look()))


@pytest.mark.parametrize("sampler", SAMPLER_NAMES)
@pytest.mark.parametrize("cut", ["narrow", "full"])
def test_at_every_action_every_prompt_has_one_owner(ram_path: Path, sampler: str, cut: str) -> None:
    # A window so wide that no group is evicted.
    window = 9 if sampler == "windowed" else 1
    config = tiny_config(sampler={"name": sampler, "window": window}, checkpoint={"cut": cut})
    run = Watched.create(ram_path / "run", config)
    counted = Owners(run)
    run.first(config, counted)
    # What has no other owner counts as dropped, and nothing was.
    assert [found for found in counted.seen if found["dropped"]] == []
    owning = {owner for found in counted.seen for owner, count in found.items() if count}
    assert owning >= {"unread", "reserved", "admitted", "buffered", "in_training", "trained"}
    assert owners(run.controller.engine.look())["trained"] == 10


def test_owners_at_the_end_are_those_of_the_audit(ram_path: Path) -> None:
    config = tiny_config(failures={"attempts": 1, "drop_budget": 9})
    failing = prompt_ids(config)[1]
    run = Watched.create(ram_path / "run", config, Trouble(failing=frozenset({failing})))
    run.first(config)
    audit, found = run.audit(), owners(run.controller.engine.look())
    assert audit.dropped == 2
    assert (found["trained"], found["dropped"]) == (audit.trained_once, audit.dropped)
    assert sum(found.values()) == audit.prompts


def test_a_resumed_run_counts_what_was_trained_before_it(ram_path: Path) -> None:
    left = killed(ram_path, tiny_config(), Action.TRAIN_STEP, 3)
    run = Watched(left.directory)
    counted = Owners(run)
    run.resume(stops=counted)
    assert counted.seen[0]["trained"] == 5  # in three steps: two, two, and the rest of the epoch
    assert [found for found in counted.seen if found["dropped"]] == []
    assert owners(run.controller.engine.look())["trained"] == 10


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Scrapes:
    """A whole run that is scraped after every step, with a save that fails."""
    config = tiny_config(**SERVED)
    trouble = Trouble(broken_saves=frozenset({3}))
    run = Watched.create(tmp_path_factory.mktemp("scraped") / "run", config, trouble)
    found = Scrapes(run)
    run.first(config, found)
    return found


def test_counters_and_gauges_are_those_of_the_run(scrapes: Scrapes) -> None:
    last = scrapes.found[-1]
    assert value(last, "cutlock_steps_total") == 6
    assert value(last, "cutlock_trained_groups_total") == 10
    assert value(last, "cutlock_trained_tokens_total") == 20
    assert value(last, "cutlock_commits_total") == 10
    assert value(last, "cutlock_trainer_version") == 5
    assert value(last, "cutlock_prompts", owner="trained") == 10
    assert value(last, "cutlock_saves_total", outcome="published") == 5
    assert value(last, "cutlock_saves_total", outcome="failed") == 1
    assert value(last, "cutlock_last_bundle_step") == 5
    assert value(last, "cutlock_restores_total") == 0
    assert value(last, "cutlock_incarnation") == 1
    assert value(last, "cutlock_reward_mean") == 0.5
    assert value(last, "cutlock_slots_total", kind="group_commit") == 10
    assert value(last, "cutlock_run_info", sampler="in_order", cut="full") == 1


def test_counters_never_go_down(scrapes: Scrapes) -> None:
    for metric in ("cutlock_steps_total", "cutlock_commits_total", "cutlock_trained_groups_total"):
        values = [value(found, metric) for found in scrapes.found]
        assert values == sorted(values)


def test_histograms_have_every_save_step_and_wait_once(scrapes: Scrapes) -> None:
    last = scrapes.found[-1]
    for metric in ("drain", "exclusive", "asynchronous"):
        assert value(last, f"cutlock_save_{metric}_seconds_count") == 5
    assert value(last, "cutlock_bundle_size_bytes_count") == 5
    assert value(last, "cutlock_bundle_size_bytes_sum") > 1000
    assert value(last, "cutlock_staleness_versions_count") == 6
    waits = [s for s in last["cutlock_slot_wait_seconds"].samples if s.name.endswith("_count")]
    assert sum(sample.value for sample in waits) > 0


def documented() -> dict[str, str]:
    """Names of the table in docs/metrics.md, with their types."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    return dict(re.findall(r"^\| `(cutlock_\w+)` \| (\w+) ", text, re.MULTILINE))


def test_the_documented_metrics_are_those_that_are_served(scrapes: Scrapes) -> None:
    served = {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in scrapes.found[-1].values()
    }
    assert documented() == served


def test_the_documented_labels_are_those_that_are_served(scrapes: Scrapes) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(cutlock_\w+)` \| \w+ \|([^|]*)\|", text, re.MULTILINE)
    labels = {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows}
    for family in scrapes.found[-1].values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels[name]


def test_the_documented_owners_are_those_that_are_served(scrapes: Scrapes) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text().partition("| owner |")[2]
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    served = [sample.labels["owner"] for sample in scrapes.found[-1]["cutlock_prompts"].samples]
    assert listed == served


DASHBOARD = json.loads((ROOT / "examples" / "grafana" / "cutlock.json").read_text())


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def test_the_dashboard_asks_only_for_what_is_served(scrapes: Scrapes) -> None:
    samples = {s.name for family in scrapes.found[-1].values() for s in family.samples}
    variables = [v["definition"] for v in DASHBOARD["templating"]["list"] if "definition" in v]
    asked = {
        name for query in [*queries(), *variables] for name in re.findall(r"cutlock_\w+", query)
    }
    assert asked
    assert asked <= samples


def test_the_dashboard_shows_every_metric() -> None:
    asked = " ".join(queries())
    shown = {name for name in documented() if re.search(rf"\b{name}(_bucket|_sum)?\b", asked)}
    assert documented().keys() - shown == {
        "cutlock_run_info",  # chooses the run
        "cutlock_cursor",
        "cutlock_restores_total",
        "cutlock_trained_tokens_total",
    }


def test_panels_of_the_dashboard_have_numbers_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


# Where it is found, and what may go wrong.


def test_the_run_directory_says_where_to_scrape_while_the_run_goes_on(scrapes: Scrapes) -> None:
    ((target, labels),) = [(t["targets"], t["labels"]) for t in scrapes.targets]
    assert labels == {"job": "cutlock"}
    assert re.fullmatch(r"127\.0\.0\.1:\d+", target[0])
    assert not targets_file(scrapes.run.root, "cutlock").exists()


def test_a_run_without_a_port_serves_nothing(ram_path: Path) -> None:
    config = tiny_config()
    run = Watched.create(ram_path / "run", config)
    run.first(config)
    assert run.controller.status().metrics_url == ""
    assert not targets_file(run.root, "cutlock").exists()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_taken_is_refused_before_anything_is_made(
    ram_path: Path, taken: int
) -> None:
    config = ram_path / "run.toml"
    config.write_text(f"plane = {{ kind = 'memory' }}\nmetrics = {{ port = {taken} }}\n")
    result = cutlock_("run", config, "--out", ram_path / "run", code=2)
    assert_refused(result, f"metrics.port = {taken}", "in use", "0 for a free port")
    assert not (ram_path / "run").exists()


def test_a_port_that_is_taken_meanwhile_ends_the_run_before_it_begins(
    ram_path: Path, taken: int
) -> None:
    config = tiny_config(metrics={"port": taken})
    run = Watched.create(ram_path / "run", config)
    with pytest.raises(ConfigError, match=f"metrics.port = {taken} cannot be had"):
        run.first(config)
    assert run.trainer.steps == []


class Broken(Watched):
    """A run whose metrics cannot be read."""

    async def _build(self, *arguments: Any) -> tuple[Controller, EventLog]:
        self.controller, events = await super()._build(*arguments)
        self.controller.engine.look = lambda: 1 / 0  # type: ignore[method-assign]
        self.complaints: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, found: self.complaints.append(str(found)))
        return self.controller, events


def test_metrics_that_cannot_be_read_do_not_disturb_the_run(ram_path: Path) -> None:
    config = tiny_config(**SERVED)
    run = Broken.create(ram_path / "run", config)
    found = Scrapes(run)
    assert run.first(config, found).ended == "exhausted"
    assert found.found == [{}] * 6
    assert len(run.complaints) == 6
    assert run.audit().ok


async def test_a_loop_that_has_ended_is_seen_as_it_was_last(ram_path: Path) -> None:
    config = tiny_config(**SERVED)
    run = Watched.create(ram_path / "run", config)
    await asyncio.to_thread(run.first, config)

    async def ended() -> Exporter:
        return Exporter(run.controller.engine.look, run.controller.engine.look().state.barrier)

    exporter = await asyncio.to_thread(lambda: asyncio.run(ended()))
    assert [*exporter.collect()] == []


def test_what_another_start_announces_stays_when_the_first_one_ends(tmp_path: Path) -> None:
    path = targets_file(tmp_path, "cutlock")
    other = announced(tmp_path, "cutlock", "http://127.0.0.1:2/metrics")
    with announced(tmp_path, "cutlock", "http://127.0.0.1:1/metrics"):
        other.__enter__()
    assert "127.0.0.1:2" in path.read_text()
    other.__exit__(None, None, None)
    assert not path.exists()
