"""From data to one HTML file with everything in it: no server, no network, no script needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from cutlock.errors import ConfigError
from cutlock.report.pages.charts import Chart, percent, reward_chart, staleness_chart
from cutlock.report.pages.data import RunPage, Story
from cutlock.report.pages.figure import LABELS, draw, slug
from cutlock.report.pages.lanes import BARRIER_LANES, LANES, STATES, Lane, State, state
from cutlock.report.results import write_whole

__all__ = ["GENERATOR", "render_run", "render_story", "write_page"]

GENERATOR = "cutlock show"
_HEAD = 1024
"""Bytes in which a page says what it is from."""


def render_story(story: Story) -> str:
    """The page of a trace or a log."""
    barrier = _is_barrier(story)
    lanes: Sequence[Lane] = BARRIER_LANES if barrier else LANES
    what = "who" if barrier else "prompts"
    figures = [draw(chapter, lanes, what, story.loop) for chapter in story.chapters]
    return _render(
        "story.html",
        story=story,
        parts=list(zip(story.chapters, figures, strict=True)),
        lanes={lane.key: lane.title for lane in lanes},
        states=_used(story),
        labels_width=LABELS,
        barrier=barrier,
    )


def render_run(page: RunPage) -> str:
    """The page of a run."""
    charts: list[Chart] = []
    if page.trained:
        charts = [
            reward_chart(page.trained, page.restarts),
            staleness_chart(page.trained, page.restarts),
        ]
    return _render("run.html", page=page, charts=charts, most=_most(page))


def write_page(path: Path, html: str) -> None:
    """Write a page; a file that is something else is left alone.

    Raises:
        ConfigError: there is something else than a page of this command.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a directory; give the name of a file with -o")
    if path.exists():
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if f'name="generator" content="{GENERATOR}"'.encode() not in head:
            raise ConfigError(
                f"{path} is no page of `{GENERATOR}` and is not overwritten; give another name "
                "with -o, or remove it"
            )
    write_whole(path, html.encode())


def _render(template: str, **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cutlock.report.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["slug"] = slug
    environment.filters["percent"] = percent
    environment.filters["state"] = state
    environment.filters["ms"] = _milliseconds
    files = resources.files("cutlock.report.pages") / "templates"
    return environment.get_template(template).render(
        generator=GENERATOR,
        # Files of the package, no input.
        css=Markup((files / "page.css").read_text()),
        script=Markup((files / "page.js").read_text()),
        **values,
    )


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _is_barrier(story: Story) -> bool:
    lanes = {step.lane for chapter in story.chapters for step in chapter.steps}
    return "slot" in lanes


def _used(story: Story) -> list[State]:
    """The states that the pictures show, in the order of the legend."""
    shown = {
        span.state
        for chapter in story.chapters
        for track in chapter.prompts
        for span in (*track.live, *track.disk)
    }
    return [known for key, known in STATES.items() if key in shown]


def _most(page: RunPage) -> dict[str, float]:
    """What the bars of a column are measured by."""
    return {
        "drain": max((save.drain_ms for save in page.saves), default=0.0),
        "exclusive": max((save.exclusive_ms for save in page.saves), default=0.0),
        "rest": max((save.rest_ms for save in page.saves), default=0.0),
        "seconds": max((start.seconds for start in page.starts), default=0.0),
    }
