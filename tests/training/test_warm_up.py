"""A language model warmed up for a suite: traces, rows, weights, and a file that says so."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.station import Station

pytestmark = pytest.mark.slow


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


def test_a_model_is_warmed_up_from_traces(station: Station) -> None:
    folder = station.folder / "warm"
    words = ("policy", "warm", "--suite", "small-workstation", "--out", str(folder))
    few = ("--traces", "8", "--worlds", "0", "--wrong", "0", "--errors", "0", "--set", "steps=1")
    made = station.run(*words, *few, "--json", timeout=900)
    told = json.loads(made.stdout.splitlines()[-1])
    assert told["scripted"] == 1.0, "an agent without faults solves what it plays"
    assert told["training"]["steps"] == 1 and told["training"]["trained"] > 100
    assert (folder / "model.safetensors").is_file() and (folder / "tokenizer.json").is_file()
    assert json.loads((folder / "warm_up.json").read_text())["suite"] == "small-workstation"
    refused = station.run(*words, code=2)
    assert "not an empty folder" in refused.stderr
