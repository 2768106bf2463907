from __future__ import annotations

import os
import sys

import pytest

from cutlock.errors import MisuseError
from cutlock.plane.loopback import keep_ray_on_loopback

VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def test_the_variable_is_set_before_ray_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    keep_ray_on_loopback()
    assert os.environ[VARIABLE] == "0"


def test_it_is_refused_when_ray_has_read_another_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "ray", sys)
    with pytest.raises(MisuseError, match="imported already"):
        keep_ray_on_loopback()


def test_it_may_be_called_again_when_ray_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    monkeypatch.setitem(sys.modules, "ray", sys)
    keep_ray_on_loopback()
    assert os.environ[VARIABLE] == "0"
