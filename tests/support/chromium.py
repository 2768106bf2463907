"""A real browser without a window, spoken to by the DevTools protocol over two pipes.

There is nothing to install for it but Chromium itself.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["HOW_TO_INSTALL", "Browser", "Page", "find_chromium", "require_chromium", "started"]

HOW_TO_INSTALL = "no Chromium found; install it, e.g. `apt-get install chromium` on Debian"

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
_LIMIT_S = 60.0
"""For one answer of the browser; a hang is an error and never a wait without end."""


def find_chromium() -> str | None:
    """Path of the browser; CUTLOCK_CHROMIUM names another one."""
    named = os.environ.get("CUTLOCK_CHROMIUM")
    if named:
        return named
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def require_chromium() -> str:
    """Path of the browser; without one the test is skipped, or fails if CUTLOCK_BROWSER says so."""
    chromium = find_chromium()
    if chromium is not None:
        return chromium
    if os.environ.get("CUTLOCK_BROWSER") == "require":
        pytest.fail(f"CUTLOCK_BROWSER=require: {HOW_TO_INSTALL}")
    pytest.skip(HOW_TO_INSTALL)


class Browser:
    """One process of Chromium."""

    def __init__(self, process: subprocess.Popen[bytes], into: int, out_of: int) -> None:
        self._process = process
        self._into, self._out_of = into, out_of
        self._read = b""
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Ask for something and wait for the answer; events that come meanwhile are kept."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while (found := self._message()).get("id") != number:
            self.events.append(found)
        if "error" in found:
            raise AssertionError(f"{method}: {found['error']}")
        return found["result"]

    def wait_for(self, method: str, session: str) -> None:
        """Return when an event has come, now or before; it is used up."""
        while True:
            for place, event in enumerate(self.events):
                if (event.get("method"), event.get("sessionId")) == (method, session):
                    del self.events[place]
                    return
            self.events.append(self._message())

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + _LIMIT_S
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._out_of], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"Chromium has not answered for {_LIMIT_S:.0f} s")
            chunk = os.read(self._out_of, 1 << 20)
            if not chunk:
                raise AssertionError("Chromium has ended")
            self._read += chunk
        line, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        os.close(self._into)
        os.close(self._out_of)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Page:
    """One tab with one file in it."""

    def __init__(
        self, browser: Browser, path: Path, width: int, *, dark: bool = False, script: bool = True
    ) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._target = target
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._media(dark=dark)
        if not script:
            self._call("Emulation.setScriptExecutionDisabled", value=True)
        self._call("Page.navigate", url=path.resolve().as_uri())
        browser.wait_for("Page.loadEventFired", self._session)

    def _media(self, *, dark: bool, media: str = "") -> None:
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)

    def _call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, as JSON."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def settle(self) -> None:
        """Return when the page has handled what was asked of it, and has been drawn."""
        self._call(
            "Runtime.evaluate",
            expression="new Promise((done) => requestAnimationFrame(() => setTimeout(done)))",
            awaitPromise=True,
        )

    def as_printed(self) -> None:
        """Show the page as a printer would, on a system that prefers dark colours."""
        self._media(dark=True, media="print")

    def printed(self) -> bytes:
        """The page as PDF."""
        data = self._call("Page.printToPDF", landscape=True, printBackground=True)["data"]
        return base64.b64decode(data)

    def screenshot(self, part: str | None = None) -> bytes:
        """A PNG of what is seen, or of the elements that a selector finds."""
        if part is None:
            data = self._call("Page.captureScreenshot", format="png")["data"]
            return base64.b64decode(data)
        left, top, right, bottom = self.evaluate(
            "(() => { document.getElementById('dock')?.remove();"
            f" const boxes = [...document.querySelectorAll({part!r})]"
            ".map((found) => found.getBoundingClientRect());"
            " const least = (side) => Math.min(...boxes.map((box) => box[side]));"
            " const most = (side) => Math.max(...boxes.map((box) => box[side]));"
            " return [least('left') + scrollX, least('top') + scrollY, most('right') + scrollX,"
            " most('bottom') + scrollY]; })()"
        )
        clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": 1}
        data = self._call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )["data"]
        return base64.b64decode(data)

    def complaints(self) -> list[str]:
        """Errors of scripts, messages on the console, and requests to anything but the file."""
        self.evaluate("0")
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            method, params = event["method"], event["params"]
            if method in {"Runtime.exceptionThrown", "Runtime.consoleAPICalled"}:
                found.append(f"{method}: {json.dumps(params)[:400]}")
            elif method == "Log.entryAdded":
                found.append(f"{method}: {params['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:,")):
                    found.append(f"a request to {url}")
        return found

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextlib.contextmanager
def started(chromium: str) -> Iterator[Browser]:
    """A browser with a profile that is new and empty, and goes with it."""
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol is spoken on descriptors 3 and 4. A shell that knows descriptors of one
        # digit only can open the others by their names.
        process = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                f'exec "$@" 3</dev/fd/{theirs_in} 4>/dev/fd/{theirs_out}',
                "sh",
                chromium,
                *_FLAGS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        browser = Browser(process, ours_in, ours_out)
        try:
            yield browser
        finally:
            browser.close()
