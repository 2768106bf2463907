"""The configuration: what it refuses and in which words, and what a resume may change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlock.errors import CapacityError, ConfigError, ConfigMismatchError
from cutlock.run.config import RunConfig, load_config, parse_config
from cutlock.run.resume_rules import require_resumable
from cutlock.samplers import SAMPLER_NAMES
from cutlock.samplers.config import CustomConfig, InOrderConfig

CUSTOM = {"name": "custom", "path": "tests.support.custom_samplers:AdmitOnly"}


class TestParsing:
    def test_nothing_is_a_configuration(self) -> None:
        assert parse_config({}) == RunConfig()
        assert RunConfig().sampler == InOrderConfig(window=1)

    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_a_configuration_comes_back_from_plain_data(self, name: str) -> None:
        config = parse_config(
            {
                "seed": 3,
                "prompts_per_step": 2,
                "sampler": {"name": name, "window": 2},
                "buffer": {"capacity": 6, "spare_prompts": 1},
                "watchdog": {"stall_s": 5, "action": "fail"},
            }
        )
        plain = msgspec.json.decode(msgspec.json.encode(config.plain()))
        assert parse_config(plain) == config
        assert parse_config(plain).digest == config.digest

    def test_a_custom_sampler_comes_back_with_its_options(self) -> None:
        config = parse_config({"sampler": {**CUSTOM, "options": {"window": 2}}})
        assert parse_config(config.plain()) == config
        assert isinstance(config.sampler, CustomConfig)

    def test_the_digest_changes_with_every_value(self) -> None:
        changed = [{"seed": 1}, {"epochs": 2}, {"buffer": {"spare_prompts": 1}}]
        digests = {parse_config(raw).digest for raw in ({}, *changed)}
        assert len(digests) == 4

    def test_what_is_parsed_is_left_as_it_was(self) -> None:
        raw = {"seed": 1, "sampler": {"name": "windowed"}}
        parse_config(raw)
        assert raw == {"seed": 1, "sampler": {"name": "windowed"}}

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            ({"epochs": 0}, "epochs = 0: Expected `int` >= 1"),
            ({"prompts_per_step": "8"}, "prompts_per_step = '8': Expected `int`, got `str`"),
            ({"max_steps": -1}, "max_steps = -1: Expected `int` >= 0"),
            ({"seed": 1.5}, "seed = 1.5: Expected `int`, got `float`"),
            ({"group_size": True}, "group_size = True: Expected `int`, got `bool`"),
            ({"buffer": {"capacity": 0}}, "buffer.capacity = 0: Expected `int` >= 1"),
            ({"buffer": {"spare_prompts": -2}}, "buffer.spare_prompts = -2: Expected"),
            ({"checkpoint": {"every": 0}}, "checkpoint.every = 0: Expected `int` >= 1"),
            ({"checkpoint": {"limit_s": 0}}, "checkpoint.limit_s = 0: Expected `float` > 0.0"),
            ({"checkpoint": {"limit_s": float("nan")}}, "checkpoint.limit_s = nan: Expected"),
            (
                {"plane": {"kind": "disk"}},
                "kind = 'disk': choose from 'memory', 'own', 'transfer_queue'",
            ),
            ({"watchdog": {"action": "cry"}}, "action = 'cry': choose from 'fail', 'warn'"),
            ({"task": {"vocabulary": 1}}, "task.vocabulary = 1: Expected `int` >= 2"),
            ({"buffer": 3}, "buffer = 3: Expected `object`, got `int`"),
            ({"epoch": 1}, "epoch is unknown; choose from seed, epochs, max_steps"),
            ({"buffer": {"cap": 1}}, "buffer.cap is unknown; choose from capacity, max_in_flight"),
            (
                {"sampler": "in_order"},
                "sampler = 'in_order' is no table; write one, e.g. [sampler]",
            ),
            ({"sampler": {"name": "fifo"}}, "unknown sampler 'fifo'; choose one of windowed, "),
            ({"sampler": {"name": "in_order", "window": -1}}, "window = -1: Expected `int` >= 0"),
            ({"sampler": {"name": "custom", "path": "x"}}, "'x' is not of the form"),
            ({"sampler": {**CUSTOM, "options": {"no": 1}}}, "not take the options ['no']"),
        ],
    )
    def test_a_bad_value_is_refused_with_path_value_and_what_is_allowed(
        self, raw: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            parse_config(raw)


class TestCapacity:
    @pytest.mark.parametrize(
        ("name", "window", "needed"),
        [
            ("windowed", 0, 4), ("windowed", 2, 4),
            ("ready_first", 0, 4), ("ready_first", 2, 12),
            ("weight_fifo", 1, 8), ("in_order", 1, 8),
        ],
    )  # fmt: skip
    def test_a_buffer_must_hold_what_its_sampler_needs(
        self, name: str, window: int, needed: int
    ) -> None:
        raw: dict[str, Any] = {
            "prompts_per_step": 4,
            "sampler": {"name": name, "window": window},
        }
        assert parse_config(raw).capacity() == needed
        for capacity in (needed, needed + 1):
            assert parse_config(raw | {"buffer": {"capacity": capacity}}).capacity() == capacity
        with pytest.raises(
            CapacityError,
            match=f"buffer.capacity = {needed - 1} is below the {needed} groups that sampler "
            f"'{name}' needs with 4 prompts per step; raise it to {needed} or leave it out",
        ):
            parse_config(raw | {"buffer": {"capacity": needed - 1}})

    def test_a_custom_sampler_says_what_it_needs(self) -> None:
        raw = {"prompts_per_step": 4, "sampler": {**CUSTOM, "options": {"window": 3}}}
        assert parse_config(raw).capacity() == 16


class TestLoading:
    def load(self, tmp_path: Path, content: bytes) -> RunConfig:
        path = tmp_path / "run.toml"
        path.write_bytes(content)
        return load_config(path)

    def test_a_toml_file_is_read(self, tmp_path: Path) -> None:
        config = self.load(
            tmp_path,
            b'seed = 7\n[sampler]\nname = "weight_fifo"\nwindow = 2\n[watchdog]\nstall_s = 5\n',
        )
        assert config == parse_config(
            {
                "seed": 7,
                "sampler": {"name": "weight_fifo", "window": 2},
                "watchdog": {"stall_s": 5.0},
            }
        )

    def test_it_is_read_as_utf_8_whatever_the_machine_prefers(self, tmp_path: Path) -> None:
        config = self.load(tmp_path, '[plane]\npartition = "roll\u00fcts"\n'.encode())
        assert config.plane.partition == "roll\u00fcts"

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"seed = ", "run.toml is not TOML: .*; mend that line"),
            (b"\xff\xfe", "run.toml is not TOML"),
            (b"epochs = 0", r"run.toml: configuration: epochs = 0: Expected"),
            (b'[sampler]\nname = "x"', "run.toml: unknown sampler 'x'"),
        ],
    )
    def test_an_error_names_the_file(self, tmp_path: Path, content: bytes, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            self.load(tmp_path, content)

    def test_a_buffer_too_small_stays_a_capacity_error(self, tmp_path: Path) -> None:
        with pytest.raises(CapacityError, match=r"run.toml: buffer.capacity = 3"):
            self.load(tmp_path, b"[buffer]\ncapacity = 3")

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no configuration file '.*none.toml'; give the"):
            load_config(tmp_path / "none.toml")

    def test_a_directory_is_no_configuration(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"cannot be read: .*; give a readable TOML file"):
            load_config(tmp_path)


FIXED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"seed": 1}, "seed", "0", "1"),
    ({"prompts_per_step": 4}, "prompts_per_step", "8", "4"),
    ({"group_size": 2}, "group_size", "4", "2"),
    ({"sampler": {"name": "weight_fifo"}}, "sampler.name", "'in_order'", "'weight_fifo'"),
    ({"sampler": CUSTOM}, "sampler.name", "'in_order'", "'custom'"),
    ({"task": {"prompts": 63}}, "task.prompts", "64", "63"),
]

FIXED_WITH_ROWS = [
    ({"plane": {"kind": "memory"}}, "plane.kind", "'transfer_queue'", "'memory'"),
    ({"plane": {"units": 3}}, "plane.units", "2", "3"),
    ({"plane": {"partition": "other"}}, "plane.partition", "'rollouts'", "'other'"),
]

ADAPTS: list[dict[str, Any]] = [
    {"epochs": 2},
    {"max_steps": 9},
    {"sampler": {"name": "in_order", "window": 0}},
    {"sampler": {"name": "in_order", "window": 2}},
    {"buffer": {"capacity": 99}},
    {"buffer": {"max_in_flight": 1}},
    {"buffer": {"spare_prompts": 5}},
    {"checkpoint": {"every": 1, "keep": 9, "rows": False, "limit_s": 1, "failures_in_a_row": 1}},
    {"failures": {"attempts": 1, "drop_budget": 9}},
    {"plane": {"limit_s": 1}},
    {"workers": {"generators": 5, "learning_rate": 0.5}},
    {"watchdog": {"stall_s": 1, "action": "fail"}},
    {"metrics": {"port": 0, "host": "127.0.0.2", "transfer_queue": False}},
]


class TestResume:
    @pytest.mark.parametrize("with_rows", [True, False])
    def test_an_unchanged_configuration_is_resumable(self, with_rows: bool) -> None:
        require_resumable(RunConfig(), parse_config({}), with_rows=with_rows)

    @pytest.mark.parametrize("with_rows", [True, False])
    @pytest.mark.parametrize(("change", "field", "before", "after"), FIXED)
    def test_what_the_saved_state_depends_on_is_fixed(
        self, change: dict[str, Any], field: str, before: str, after: str, with_rows: bool
    ) -> None:
        with pytest.raises(
            ConfigMismatchError,
            match=f"^{field} was {before} when the bundle was saved and is {after} now; .*; "
            f"set {field} = {before}$",
        ):
            require_resumable(RunConfig(), parse_config(change), with_rows=with_rows)

    @pytest.mark.parametrize(("change", "field", "before", "after"), FIXED_WITH_ROWS)
    def test_what_the_saved_rows_depend_on_is_fixed_only_with_them(
        self, change: dict[str, Any], field: str, before: str, after: str
    ) -> None:
        now = parse_config(change)
        with pytest.raises(
            ConfigMismatchError,
            match=f"^{field} was {before} .* is {after} now; .*; set {field} = {before} or "
            "resume with --without-rows$",
        ):
            require_resumable(RunConfig(), now, with_rows=True)
        require_resumable(RunConfig(), now, with_rows=False)

    def test_another_class_is_another_sampler(self) -> None:
        saved = parse_config({"sampler": CUSTOM})
        now = parse_config(
            {"sampler": {**CUSTOM, "path": "tests.support.custom_samplers:Dawdling"}}
        )
        with pytest.raises(ConfigMismatchError, match=r"sampler.path was '.*:AdmitOnly' .* and"):
            require_resumable(saved, now, with_rows=True)

    def test_other_options_of_the_same_class_adapt(self) -> None:
        saved = parse_config({"sampler": CUSTOM})
        now = parse_config({"sampler": {**CUSTOM, "options": {"window": 3}}})
        require_resumable(saved, now, with_rows=True)

    @pytest.mark.parametrize("change", ADAPTS, ids=str)
    def test_everything_else_adapts(self, change: dict[str, Any]) -> None:
        now = parse_config(change)
        assert now != RunConfig()
        require_resumable(RunConfig(), now, with_rows=True)
        require_resumable(now, RunConfig(), with_rows=True)

    def test_every_field_is_either_fixed_or_adapts(self) -> None:
        tried = {field for change, *_ in FIXED + FIXED_WITH_ROWS for field in change}
        tried |= {field for change in ADAPTS for field in change}
        assert tried == set(RunConfig.__struct_fields__)
