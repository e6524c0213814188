"""The whole circle on a real vLLM: rollouts, a word of guidance, verdicts, rows, training, and new
rollouts that sample with what was trained, the ledger naming the version of every token."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.engines.local_model import model_path
from houston_daemon.engines.vllm_serve import vllm_command
from tests.support.reference_ledger import Ledger
from tests.support.station import Station

pytestmark = [pytest.mark.vllm, pytest.mark.model, pytest.mark.timeout(900)]

STEPS = 2
BUDGET = f"steps = {STEPS}\nminimum_steps = {STEPS}\nanswer_tokens = 64\nsleep_seconds = 1\n"
ORDER = "Open the file README.md first."
RANK = 8
"""Of the adapter that is trained."""

CONFIGURATION = """
default_engine = "vllm"
[engines.vllm]
kind = "vllm"
max_adapters = 2
command = {0}
"""


def command() -> list[str]:
    """What Houston starts by itself, with room for adapters no wider than the one trained here.

    On the CPU vLLM copies its matrices for every token, filled up to the greatest rank: at 64 a
    prompt takes minutes.
    """
    own = vllm_command(Path(str(model_path())), 0, adapters=2)
    own[own.index("--max-lora-rank") + 1] = str(RANK)
    own[own.index("--port") + 1] = "{port}"
    return own


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("circle"))
    made.home.mkdir()
    (made.home / "houston.toml").write_text(CONFIGURATION.format(json.dumps(command())))
    try:
        made.start()
        yield made
    finally:
        made.clear()


def task(station: Station) -> Path:
    file = station.task("circle", budget=BUDGET)
    if "tools =" not in file.read_text():
        file.write_text('tools = ["think", "list_files", "finish"]\n' + file.read_text())
    return file


def sampled(station: Station, rollout: str) -> list[tuple[str, int]]:
    """Policy and count of sampled tokens of every sample, in order."""
    rows = station.query(
        "SELECT policy, sampled_ids FROM samples WHERE rollout = ? ORDER BY seq", rollout
    )
    return [(str(policy), int(ids)) for policy, ids in rows]


def one(station: Station, *words: str) -> dict[str, Any]:
    (row,) = station.json(*words)
    return dict(row)


def test_from_a_guided_rollout_to_a_policy_that_samples(station: Station, tmp_path: Path) -> None:
    # Rollouts by SmolLM2 as it comes, one of them guided.
    guided, other = station.rollout(task(station), "vllm", 2)
    station.run("guide", guided, ORDER)
    for rollout in (guided, other):
        assert station.ended(rollout, 600)["state"] == "finished"
    (heard,) = station.json("guidance", guided)
    assert heard["state"] == "delivered"
    base = sampled(station, guided)
    assert {policy for policy, _ in base} == {""}
    # Verdicts: rules of all steps, a person's of two, which outranks them.
    station.run("judge", guided, other, "--rules-only")
    station.run("verdict", f"{guided}@1-2", "keep", "--reason", "it looks around")
    # Rows.
    data = tmp_path / "rows"
    station.run("export", guided, other, "--format", "trl", "--out", str(data))
    manifest = json.loads((data / "manifest.json").read_text())
    assert manifest["rows"] >= 1
    # Training, as a child of the daemon, beside the engine.
    words = ["--data", str(data), "--base", str(model_path()), "--gpus", "0"]
    for setting in ("steps=2", "batch=1", "max_length=896", f"lora_rank={RANK}"):
        words += ["--set", setting]
    said = station.run("train", "sft", *words, "--json", timeout=600).stdout
    trained = json.loads(said)
    assert (trained["state"], trained["policy"]) == ("finished", "policy@2")
    shown = one(station, "train", "show", trained["run"])
    assert shown["state"] == "finished"
    assert shown["progress"]["step"] == 2
    # Into the running engine: the same process, no rollout of which is touched.
    (engine,) = (station.home / "run/engines").glob("*.json")
    server = json.loads(engine.read_text())["pid"]
    active = one(station, "policy", "activate", "policy@2")
    assert active["state"] == "active"
    assert json.loads(engine.read_text())["pid"] == server
    # New rollouts sample with it, and the ledger says so of every token.
    (new,) = station.rollout(task(station), "vllm")
    assert station.ended(new, 600)["state"] == "finished", station.log()
    assert {policy for policy, _ in sampled(station, new)} == {"policy@2"}
    assert {step["policy"] for step in station.steps(new)} == {"policy@2"}
    assert Ledger(station.home, new).check() == STEPS - 1
    assert sampled(station, guided) == base, "what was sampled before stays what it was"
    # Where it comes from can be followed back to the rows and to who judged them.
    policy = one(station, "policy", "show", "policy@2")
    assert (policy["parent"], policy["run"]) == ("policy@1", trained["run"])
    assert policy["active"] == ["vllm"]
    assert policy["tokens"] == sum(ids for _, ids in sampled(station, new))
    # And back in one command.
    assert one(station, "policy", "rollback")["policy"] is None
    station.run("verify")
