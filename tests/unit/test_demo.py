"""What `houston demo` packs and says: an adapter that fits its model, and lines that are true."""

import json
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.demo.demo_tour import (
    LIVE_ADAPTER,
    LIVE_ENGINE_TABLE,
    LIVE_TASK,
    TOUR_ORDERS,
    DemoRollouts,
    matches_order,
    tour_lines,
)
from houston_daemon.engines.local_model import MODEL_NAME, model_path
from houston_daemon.experiments import experiment_recipe
from houston_daemon.training.policies.policy_files import find_weights, model_hash
from houston_shared.command import main
from houston_shared.errors import ExitCode
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.task import load_task
from houston_shared.toml_file import parse_toml

MAX_BYTES = 20_000_000
RECIPE = experiment_recipe.read_recipe(experiment_recipe.find_recipe("errands"))
ROLLOUTS = DemoRollouts("count-words-aaaa", "count-words-bbbb", "errands-cccc")


NEEDS_ADAPTER = pytest.mark.skipif(
    not LIVE_ADAPTER.is_dir(), reason="no adapter is packed: houston experiment errands makes one"
)


def packed(name: str) -> Any:
    return json.loads((LIVE_ADAPTER / name).read_bytes())


@NEEDS_ADAPTER
def test_the_adapter_is_small_and_of_the_model_that_doctor_fetches() -> None:
    weights = find_weights(LIVE_ADAPTER)
    assert weights.kind == "lora"
    assert "embedded" in weights.engines
    assert sum(file.stat().st_size for file in LIVE_ADAPTER.iterdir()) <= MAX_BYTES
    assert packed("adapter_config.json")["base_model_name_or_path"] == MODEL_NAME
    assert packed("lineage.json")["base"] == MODEL_NAME


@NEEDS_ADAPTER
@pytest.mark.model
def test_the_adapter_was_trained_from_the_very_weights_that_are_fetched() -> None:
    base = model_path()
    assert base is not None
    assert packed("lineage.json")["base_hash"] == model_hash(base)


@NEEDS_ADAPTER
def test_the_adapter_names_no_place_of_the_machine_that_made_it() -> None:
    texts = [file.read_text() for file in LIVE_ADAPTER.glob("*.json")]
    places = ("/tmp", "/root", "/home", "/work")
    assert not [place for place in places if any(place in text for text in texts)]


def test_the_live_task_is_what_the_adapter_was_trained_on() -> None:
    task = load_task(LIVE_TASK)
    assert task.instructions.split() == RECIPE.orders.instructions.split()
    assert list(task.task.tools) == list(RECIPE.orders.tools)
    assert task.task.sampling.temperature == RECIPE.model.temperature
    engine = parse_toml(f"engine = {LIVE_ENGINE_TABLE}", "here")["engine"]
    assert engine == dict(RECIPE.model.engine)


@pytest.mark.parametrize(
    ("calls", "done"),
    [
        ([{"name": "open_file", "arguments": {"path": "README.md"}}], True),
        ([{"name": "open_file", "arguments": {"path": "README.md", "line_number": 2}}], True),
        ([{"name": "open_file", "arguments": {"path": "notes.txt"}}], False),
        ([{"name": "list_files", "arguments": {"path": "README.md"}}], False),
        ([{"name": "sleep", "arguments": {}}, {"name": "open_file", "arguments": {}}], False),
        ([], False),
    ],
)
def test_an_order_is_done_by_its_call_on_what_it_names(
    calls: list[dict[str, Any]], done: bool
) -> None:
    assert matches_order(TOUR_ORDERS[0], calls) is done


@pytest.mark.parametrize(
    ("model", "obeys"),
    [
        pytest.param(True, True, id="an agent that obeys"),
        pytest.param(True, False, id="a model as it comes"),
        pytest.param(False, False, id="no model"),
    ],
)
def test_the_tour_has_three_lines_and_promises_no_more_than_there_is(
    model: bool, obeys: bool
) -> None:
    lines = tour_lines(ROLLOUTS, 5, model, obeys)
    assert len(lines) == 3
    assert "step 5" in lines[0]
    assert ("errands-cccc" in lines[1]) is model
    assert ("waits for your message" in lines[1]) is obeys
    if model:
        assert max(map(len, lines)) <= 79, "the console indents them by one, at 80 columns"


def test_what_the_tour_invites_to_can_be_done_in_the_live_task() -> None:
    last = tour_lines(ROLLOUTS, 5, True, True)[2]
    workspace = LIVE_TASK.parent / "workspace"
    texts = [file.read_text() for file in workspace.rglob("*") if file.is_file()]
    assert "read notes.txt" in last
    assert (workspace / "notes.txt").is_file()
    assert "list letters" in last
    assert (workspace / "letters").is_dir()
    assert "search for tea" in last
    assert [text for text in texts if "tea" in text]


def test_a_home_whose_daemon_runs_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo ends what it started: of another it would end everybody's work."""
    monkeypatch.setenv("HOUSTON_HOME", str(tmp_path))
    lock = HomeLock(Home(tmp_path))
    assert lock.take(HomeOwner(pid=0, since="")) is None
    assert main(["demo", "--headless"]) == ExitCode.BUSY
    assert "A daemon runs on" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"daemon.lock"}
    lock.release()
