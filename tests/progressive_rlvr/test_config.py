"""A configuration is complete or refused, in one line that says what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from progressive_rlvr.config import RunConfig, dump_config, load_config, with_seed
from progressive_rlvr.errors import UserError

SMALL = {"name": "x", "base": {"model": "pocket"}, "domains": {"mathematics": {}}}


def write(path: Path, **changes: object) -> Path:
    file = path / "c.yaml"
    file.write_text(yaml.safe_dump({**SMALL, **changes}))
    return file


def test_a_small_configuration_is_whole_and_survives_a_round_trip(tmp_path: Path) -> None:
    config = load_config(write(tmp_path))
    again = tmp_path / "again.yaml"
    again.write_text(dump_config(config))
    assert load_config(again) == config
    assert config.sample.n >= 3000


def test_another_training_seed_is_another_run_and_nothing_else(tmp_path: Path) -> None:
    config = load_config(write(tmp_path))
    assert with_seed(config, None) is config
    third = with_seed(config, 3)
    assert (third.name, third.seed) == ("x-seed3", 3)
    assert third.model_copy(update={"name": "x", "seed": 0}) == config
    with pytest.raises(UserError, match="no run can be called"):
        with_seed(config.model_copy(update={"name": "x" * 60}), 3)


def test_aliases_of_domains_become_their_names(tmp_path: Path) -> None:
    assert list(load_config(write(tmp_path, domains={"math": {}, "sql": {}})).domains) == ["mathematics", "text_to_sql"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lerning_rate": 1}, "lerning_rate: Extra inputs"),
        ({"delta": 0}, "delta: Input should be greater than 0"),
        ({"delta": 1.0}, "delta: Input should be less than 1"),
        ({"sample": {"n": 0}}, "sample.n"),
        ({"domains": {}}, "domains"),
        ({"name": "../up"}, "name"),
        ({"menu": {"steps": ["-0.1"]}}, "positive decimal"),
        ({"menu": {"steps": [0.1]}}, "menu.steps.0"),
        ({"menu": {"codes": [{"kind": "zip"}]}}, "menu.codes"),
        ({"generation": {"engine": "tgi"}}, "generation.engine: Input should be 'hf' or 'vllm'"),
        ({"stages": {"rollouts": "sglang"}}, "stages.rollouts"),
        ({"stages": {"rlvr": None}}, "distill needs the teacher"),
        ({"stages": {"rlvr": None, "distill": None, "tinylora": None}}, "no stage trains the student"),
        ({"stages": {"tinylora": {"samples": 1}}}, "stages.tinylora.samples"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load_config(write(tmp_path, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "not YAML"), ("- a\n- b\n", "must be a mapping"), ("\x00", "not YAML"), ("", "must be a mapping")],
)
def test_what_is_no_configuration_is_said_so(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=said):
        load_config(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the configuration"):
        load_config(tmp_path / "none.yaml")


def test_configurations_of_the_project_load() -> None:
    folder = Path(__file__).parents[2] / "configs"
    loaded = [load_config(file) for file in sorted(folder.glob("*.yaml"))]
    assert {"pocket", "smollm2-math"} <= {c.name for c in loaded}
    assert all(isinstance(c, RunConfig) for c in loaded)
