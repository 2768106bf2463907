"""The pages in a real browser: how they look, how they are stepped, and that they are read."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.pages.conftest import MakePage
from tests.support.chromium import Browser, Page
from tests.support.local_runs import Run

pytestmark = pytest.mark.browser

TRACES = Path(__file__).parents[2] / "traces"
CURSOR = TRACES / "counterexamples" / "cursor_early.itf.json"
BARRIER = TRACES / "counterexamples" / "barrier_cuts_overtake.itf.json"
REJECTED = TRACES / "rejected" / "index_reads_less"

Look = Callable[..., AbstractContextManager[Page]]

CONTRAST = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => {
      c /= 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (a, b) => {
    const [x, y] = [light(parts(a)), light(parts(b))].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) === 1) return colour;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  const found = new Map();
  const note = (what, value) => found.set(what, Math.min(value, found.get(what) ?? Infinity));
  for (const element of document.querySelectorAll("body *")) {
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const name = `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""}`;
    if (element instanceof SVGTextElement) {
      const box = element.parentElement.querySelector(":scope > rect:not(.hit)");
      note(`text of ${name} in ${element.parentElement.getAttribute("class")}`,
        ratio(style.fill, box ? getComputedStyle(box).fill : paper));
    } else if (element instanceof SVGElement) {
      if (element.matches("circle.dot")) {
        note(`mark ${name} of ${element.parentElement.getAttribute("class")}`,
          ratio(style.fill, paper));
        for (const wash of document.querySelectorAll("rect.wash")) {
          note(`mark ${name} on ${wash.getAttribute("class")}`,
            ratio(style.fill, getComputedStyle(wash).fill));
        }
      } else if (element.matches(".box:not(.value):not(.rows) > rect")) {
        note(`edge of ${element.parentElement.getAttribute("class")}`, ratio(style.stroke, paper));
      }
    } else if ([...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) {
      note(`text of ${name}`, ratio(style.color, behind(element)));
    }
  }
  return [...found];
})()
"""
"""Smallest contrast of each kind of text (4.5 is wanted) and of each kind of mark (3)."""


@pytest.fixture
def look(browser: Browser, make_page: MakePage) -> Look:
    """A page in a tab, which must not have complained of anything in the end."""

    @contextmanager
    def open_(
        path: Path,
        width: int = 1280,
        *,
        dark: bool = False,
        script: bool = True,
        steps: bool = False,
    ) -> Iterator[Page]:
        page = Page(browser, make_page(path, steps=steps), width, dark=dark, script=script)
        try:
            yield page
            assert page.complaints() == []
        finally:
            page.close()

    return open_


def current(page: Page) -> int:
    number: str = page.evaluate("document.querySelector('[aria-current]').dataset.number")
    return int(number)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("what", ["trace", "barrier", "rejected", "run"])
def test_a_page_fits_is_legible_and_complains_of_nothing(
    look: Look, fresh_run: Run, tmp_path: Path, what: str, width: int, dark: bool
) -> None:
    path = {"trace": CURSOR, "barrier": BARRIER, "rejected": REJECTED, "run": fresh_run.root}[what]
    with look(path, width, dark=dark) as page:
        page.press("ArrowLeft")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        poor = {
            name: round(ratio, 2)
            for name, ratio in page.evaluate(CONTRAST)
            if ratio < (4.5 if name.startswith("text") else 3.0)
        }
        assert poor == {}
        picture = page.screenshot()
        assert struct.unpack(">II", picture[16:24]) == (width, 800)
        assert len(picture) > 15_000, "there is something on it"
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") is not dark
    folder = Path(os.environ.get("CUTLOCK_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{what}-{width}-{'dark' if dark else 'light'}.png").write_bytes(picture)


def test_the_keys_step_through_a_trace(look: Look) -> None:
    with look(CURSOR) as page:
        assert current(page) == 20, "it begins with the step that breaks"
        for key, expected in (
            ("Home", 0),
            ("ArrowLeft", 0),
            ("ArrowRight", 1),
            ("j", 2),
            ("j", 3),
            ("k", 2),
            ("End", 20),
            ("ArrowRight", 20),
            ("ArrowLeft", 19),
        ):
            page.press(key)
            assert current(page) == expected, key
        assert page.evaluate("location.hash") == "#step-19"
        assert "WriteManifest" in page.evaluate("document.getElementById('place').textContent")
        assert "manifest" in page.evaluate("document.getElementById('card').textContent")
        assert "Step 19" in page.evaluate("document.getElementById('spoken').textContent")


def test_the_cursor_in_the_picture_and_the_table_follow_the_step(look: Look) -> None:
    with look(CURSOR) as page:
        page.press("Home")
        assert page.evaluate("document.querySelector('.now').getAttribute('x')") == "0"
        page.press("ArrowRight")
        column = page.evaluate("+document.querySelector('.scroller').dataset.column")
        assert page.evaluate("+document.querySelector('.now').getAttribute('x')") == column
        page.press("End")
        told = page.evaluate(
            "[...document.querySelectorAll('#state tbody tr')].map((row) => row.textContent)"
        )
        assert "1aA0admitted, stamp 0A0admitted, stamp 0" in told
        counts = page.evaluate("document.querySelector('#state .counts').textContent")
        assert "disk: cursor -1" in counts


def test_of_many_prompts_the_table_begins_with_those_that_the_step_names(look: Look) -> None:
    with look(TRACES / "runs" / "ready_first", steps=True) as page:
        page.evaluate("location.hash = '#step-14'")
        page.settle()
        named = page.evaluate("document.querySelector('#card .arguments span').textContent")
        first = page.evaluate("document.querySelector('#state tbody tr').textContent")
        assert named.startswith("group reverse-21@0")
        assert first.startswith("reverse-21@0")


def test_a_column_can_be_clicked_and_the_buttons_pressed(look: Look) -> None:
    with look(CURSOR) as page:
        page.evaluate(
            "document.querySelector('a.column[href=\"#step-7\"]').dispatchEvent("
            "new MouseEvent('click', { bubbles: true, cancelable: true }))"
        )
        assert current(page) == 7
        page.evaluate("document.getElementById('next').click()")
        assert current(page) == 8
        page.evaluate("document.getElementById('previous').click()")
        assert current(page) == 7
        page.evaluate("document.getElementById('to-breach').click()")
        assert current(page) == 20
        page.evaluate("document.getElementById('more').click()")
        assert page.evaluate("document.getElementById('told').hidden") is True


def test_a_link_to_a_step_shows_it(look: Look) -> None:
    with look(CURSOR) as page:
        page.evaluate("location.hash = '#step-4'")
        page.settle()
        assert current(page) == 4


def test_what_has_the_focus_can_be_seen(look: Look) -> None:
    with look(CURSOR) as page:
        for _ in range(6):
            page.press("Tab")
            style = page.evaluate(
                "(({ outlineStyle, outlineWidth, boxShadow }) => [outlineStyle, outlineWidth])"
                "(getComputedStyle(document.activeElement.matches('input')"
                " ? document.activeElement.nextElementSibling : document.activeElement))"
            )
            assert style == ["solid", "3px"], page.evaluate("document.activeElement.outerHTML")


def test_stepping_goes_over_from_one_part_to_the_next(look: Look) -> None:
    with look(TRACES / "runs" / "ready_first", steps=True) as page:
        first = page.evaluate("document.querySelectorAll('#part-1 li.step').length")
        page.evaluate(f"location.hash = '#step-{first}'")
        page.settle()
        assert page.evaluate("document.querySelector('#part-1 .now').getAttribute('visibility')")
        page.press("ArrowRight")
        assert current(page) == first + 1
        shown = page.evaluate(
            "[...document.querySelectorAll('.now')].map((now) => now.getAttribute('visibility'))"
        )
        assert shown.count("visible") == 1
        assert shown[1] == "visible"


def test_a_long_picture_scrolls_to_the_step_and_keeps_its_labels(look: Look) -> None:
    with look(TRACES / "counterexamples" / "late_forget.itf.json", 360) as page:
        page.press("End")
        left = page.evaluate("document.querySelector('.scroller').scrollLeft")
        assert left > 500
        label = page.evaluate(
            "document.querySelector('.labels').getBoundingClientRect().left"
            " - document.querySelector('.scroller').getBoundingClientRect().left"
        )
        assert 0 <= label <= 2


def test_the_switch_chooses_the_colours_whatever_the_system_says(look: Look) -> None:
    with look(CURSOR, dark=True) as page:
        colour = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(colour) == "rgb(22, 24, 29)"
        page.evaluate("document.querySelector('input[value=light]').click()")
        assert page.evaluate(colour) == "rgb(255, 255, 255)"
        page.evaluate("document.querySelector('input[value=auto]').click()")
        assert page.evaluate(colour) == "rgb(22, 24, 29)"


def test_without_scripts_everything_is_there_to_be_read(look: Look) -> None:
    with look(CURSOR, script=False) as page:
        assert page.evaluate("getComputedStyle(document.getElementById('dock')).display") == "none"
        assert page.evaluate("getComputedStyle(document.querySelector('.theme')).display") == "none"
        seen = page.evaluate(
            "[...document.querySelectorAll('li.step')].filter((s) => s.offsetHeight > 20).length"
        )
        assert seen == 21


def test_nothing_moves_by_itself_for_who_wants_less_motion(look: Look) -> None:
    with look(CURSOR) as page:
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        assert page.evaluate("document.getAnimations().length") == 0


def test_a_page_can_be_printed_in_light_colours_with_all_of_its_steps(look: Look) -> None:
    with look(CURSOR, dark=True) as page:
        assert page.printed().startswith(b"%PDF")
        page.as_printed()
        assert page.evaluate("getComputedStyle(document.getElementById('dock')).display") == "none"
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour == "rgb(255, 255, 255)"
