"""A machine without Chromium: the tests that need one are skipped, or fail where it is required."""

from __future__ import annotations

import pytest

from tests.support.chromium import require_chromium


@pytest.fixture(autouse=True)
def _no_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUTLOCK_CHROMIUM", raising=False)
    monkeypatch.delenv("CUTLOCK_BROWSER", raising=False)


def test_the_skip_says_how_to_install_it() -> None:
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        require_chromium()


def test_where_it_is_required_its_lack_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTLOCK_BROWSER", "require")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        require_chromium()


def test_another_browser_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTLOCK_CHROMIUM", "/opt/browser")
    assert require_chromium() == "/opt/browser"
