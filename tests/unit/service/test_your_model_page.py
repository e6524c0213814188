"""The whole `houston.toml` files of docs/your-model.md are read by the real reader, and their
engines pass the checks that stand before every rollout."""

import re
from pathlib import Path

import msgspec
import pytest

from houston_daemon.engines.vllm_serve import vllm_command
from houston_daemon.service import rollout_start_checks
from houston_shared import hub_models
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.home import Home
from houston_shared.hub_models import HubPin
from tests.support.small_tokenizer import small_tokenizer

PAGE = Path(__file__).parents[3] / "docs" / "your-model.md"
FILES = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(params=range(3), ids=["a node of 8 GPUs", "a URL", "a paid endpoint"])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> LoadedConfiguration:
    """The file, for a home in which every id of the page was fetched."""
    file = tmp_path / "houston.toml"
    file.write_text(FILES[request.param])
    home = Home(tmp_path / "home")
    home.path.mkdir()
    models = tmp_path / "model"
    models.mkdir()
    small_tokenizer(models)
    for name in ("config.json", "model.safetensors"):
        (models / name).write_text("{}")
    ids = re.findall(r"[\w.-]+/[\w.-]+@[\w.-]+", FILES[request.param])
    pins = {id: HubPin("c" * 40, str(models)) for id in ids}
    hub_models.pins_file(home).write_bytes(msgspec.json.encode(pins))
    return load_configuration(str(home.path), str(file), environment={})


def test_there_are_three_whole_files(tmp_path: Path) -> None:
    assert len(FILES) == 3
    kinds = []
    for number, text in enumerate(FILES):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        read = load_configuration(None, str(file), environment={})
        assert str(read.home.path) == "/data/houston"
        kinds.append(read.engine(read.config.default_engine).kind)
    assert kinds == ["vllm", "token", "chat"]


def test_its_engines_pass_the_checks_before_a_rollout(
    loaded: LoadedConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, engine in loaded.config.engines.items():
        if variable := engine.api_key_env:
            monkeypatch.setenv(variable, "a-key-of-many-letters")
        rollout_start_checks._check_settings(loaded, name, loaded.engine(name))
    assert loaded.config.default_engine in loaded.config.engines
    assert (loaded.config.judge.engine or "") in {"", *loaded.config.engines}


def test_the_gpus_of_the_node_suffice_and_some_are_left_for_training(
    loaded: LoadedConfiguration, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    children = [engine for engine in loaded.config.engines.values() if engine.is_daemon_child]
    leased = sum(engine.gpus for engine in children)
    assert leased < loaded.config.hosts.gpus or not children
    vllm = "houston_daemon.engines.vllm_serve.vllm_path"
    monkeypatch.setattr(vllm, lambda: tmp_path)
    for engine in children:  # as many processes as it has GPUs, and no flag that is Houston's
        words = vllm_command(Path("m"), 1, args=engine.args)
        assert words[words.index("--tensor-parallel-size") + 1] == str(engine.gpus)
