"""The metrics endpoint of a run, on against off, end to end.

A whole run in one process on the in-process plane, with the shipped demo's torch workers, as in
the group `event_log`. On means that the endpoint serves and that another process scrapes it ten
times per second, a hundred times as often as Prometheus does by default. The figures compare the
CPU time of the run and exclude that of the scraper.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import torch

from bench.event_log import _torch_workers, demo, one_run
from bench.harness import Goal, Measurement, Session, compare, interleave
from bench.scratch import scratch
from cutlock.run.config import MetricsConfig
from cutlock.run.endpoint import targets_file

_SCRAPER = """
import json, sys, time, urllib.request
while True:
    try:
        (found,) = json.load(open(sys.argv[1]))
        urllib.request.urlopen(f"http://{found['targets'][0]}/metrics").read()
    except (OSError, ValueError):
        pass
    time.sleep(0.1)
"""


def measure(session: Session) -> Iterator[Measurement]:
    torch.set_num_threads(1)
    config = demo(session.pick(full=3, quick=1, tiny=1), session.pick(full=96, quick=48, tiny=8))
    served = msgspec.structs.replace(config, metrics=MetricsConfig(port=0))
    with scratch() as root:
        runs = (root / str(number) for number in itertools.count())

        def run(*, serve: bool, scrape: bool) -> float:
            place = next(runs)
            with scraping(place) if scrape else contextlib.nullcontext():
                settings = served if serve else config
                _, processor = asyncio.run(one_run(place, settings, _torch_workers, log=True))
            return processor

        samples = interleave(
            {
                "off": partial(run, serve=False, scrape=False),
                "served": partial(run, serve=True, scrape=False),
                "scraped": partial(run, serve=True, scrape=True),
            },
            session.repetitions(15),
        )
    for case, words, goal in (
        ("served", "that serves its metrics without a scraper", Goal(1.05)),
        ("scraped", "that is scraped ten times per second", Goal(1.1)),
    ):
        yield compare(
            case,
            samples,
            case,
            "off",
            what=f"CPU time of a run {words}",
            beside="the same run without an endpoint",
            unit="s",
            goal=goal,
        )


@contextlib.contextmanager
def scraping(root: Path) -> Iterator[None]:
    """Scrape a run from another process."""
    place = str(targets_file(root, "cutlock"))
    scraper = subprocess.Popen([sys.executable, "-c", _SCRAPER, place])
    try:
        yield
    finally:
        scraper.kill()
        scraper.wait()
