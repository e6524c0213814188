"""Policies and a real engine: loaded while it runs, active after a first token, taken back, held
against the engine's limit. The embedded server with SmolLM2 and adapters made by hand."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.engines.local_model import model_path
from tests.engines.adapters import make_adapter
from tests.support.reference_ledger import Ledger
from tests.support.station import Station, alive

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]
"""Each test goes on where the one before it ended: the whole file runs, or none of it."""

CONFIGURATION = """
[engines.embedded]
kind = "embedded"
max_adapters = 2
"""
STEPS = "steps = {0}\nminimum_steps = {0}\nanswer_tokens = 64\nsleep_seconds = 1\n"


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """A daemon with three policies of one base model."""
    made = Station(tmp_path_factory.mktemp("policies"))
    made.home.mkdir()
    (made.home / "houston.toml").write_text(CONFIGURATION)
    try:
        made.start()
        for seed in (1, 2, 3):
            folder = make_adapter(made.folder / f"adapter{seed}", seed)
            words = ["policy", "import", str(folder), "--base", str(model_path())]
            assert made.json(*words) == [{"policy": f"policy@{seed + 1}", "known": False}]
        yield made
    finally:
        made.clear()
        shutil.rmtree(made.home / "policies", ignore_errors=True)  # merged weights among them


def activate(station: Station, policy: str) -> dict[str, Any]:
    (row,) = station.json("policy", "activate", policy)
    return row


def listed(station: Station) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in station.json("policy", "list")}


def quick(station: Station, name: str, steps: int = 1) -> str:
    """A task that a rollout on SmolLM2 is through in seconds; the file's path."""
    file = station.task(name, budget=STEPS.format(steps))
    if not file.read_text().startswith("tools"):
        file.write_text('tools = ["think", "list_files", "finish"]\n' + file.read_text())
    return str(file)


def start(station: Station, task: str, *words: str) -> str:
    (row,) = station.json("rollout", "start", task, *words)
    return str(row["rollout"])


def sampled_by(station: Station, rollout: str) -> set[str]:
    return {
        row[0] for row in station.query("SELECT policy FROM samples WHERE rollout = ?", rollout)
    }


def test_new_rollouts_sample_with_what_is_active_and_running_ones_keep_theirs(
    station: Station,
) -> None:
    long = quick(station, "long", 60)
    old = start(station, long)
    station.until(lambda: station.closed(old) >= 1, 120, "a step with the engine's own model")
    row = activate(station, "policy@2")
    assert (row["state"], row["policy"], row["engine"]) == ("active", "policy@2", "embedded")
    new = start(station, quick(station, "one"))
    assert station.ended(new)["state"] == "finished"
    assert sampled_by(station, new) == {"policy@2"}
    before = station.closed(old)
    station.until(lambda: station.closed(old) > before, 120, "the old one goes on")
    assert sampled_by(station, old) == {""}
    assert Ledger(station.home, new).check() >= 0
    (step,) = station.steps(new)
    assert step["policy"] == "policy@2", "the ledger names the version"
    station.run("rollout", "cancel", old, "--wait")
    found = listed(station)
    assert found["policy@2"]["active"] == ["embedded"]
    assert found["policy@2"]["tokens"] > 0
    assert found["policy@1"]["kind"] == "base"


def test_a_rollback_is_one_command_and_goes_back_step_by_step(station: Station) -> None:
    activate(station, "policy@3")
    (back,) = station.json("policy", "rollback")
    assert (back["policy"], back["rollback"], back["state"]) == ("policy@2", True, "active")
    (further,) = station.json("policy", "rollback")
    assert further["policy"] is None
    active = {name: one["active"] for name, one in listed(station).items() if one["active"]}
    assert active == {"policy@1": ["embedded"]}, "its own model, by its name"
    said = station.run("policy", "rollback", code=1).stderr
    assert "only its own model" in said


def test_a_rollout_may_name_its_policy(station: Station) -> None:
    activate(station, "policy@2")
    base = start(station, quick(station, "one"), "--policy", "base")
    station.ended(base)
    assert sampled_by(station, base) == {""}
    said = station.run(
        "rollout", "start", quick(station, "one"), "--policy", "policy@4", code=1
    ).stderr
    assert "policy@4 was never activated" in said


def test_more_live_versions_than_the_engine_holds_are_refused_with_who_uses_them(
    station: Station,
) -> None:
    task = quick(station, "long", 60)
    activate(station, "policy@2")
    two = start(station, task)
    activate(station, "policy@3")
    three = start(station, task)
    said = station.run("policy", "activate", "policy@4", code=1).stderr
    assert "2 policies may be live at once" in said
    assert f"policy@2 by {two}" in said
    assert f"policy@3 by {three}" in said
    assert listed(station)["policy@3"]["active"] == ["embedded"], "as it was"
    named = ["rollout", "start", quick(station, "one"), "--policy", "policy@4"]
    assert "policy@4 was never activated" in station.run(*named, code=1).stderr
    station.run("rollout", "cancel", two, "--wait")
    assert activate(station, "policy@4")["state"] == "active"
    (event,) = station.query(
        "SELECT body FROM events WHERE kind = 'activated' ORDER BY seq DESC LIMIT 1"
    )
    assert b"policy@2" in event[0], "the oldest that nobody uses made room"
    station.run("rollout", "cancel", three, "--wait")


def test_an_engine_with_another_model_is_refused(station: Station, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in Path(str(model_path())).iterdir():
        (other / file.name).symlink_to(file)
    (other / "config.json").unlink()
    config = json.loads((Path(str(model_path())) / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-6}))
    adapter = make_adapter(tmp_path / "adapter", 9)
    words = ["policy", "import", str(adapter), "--base", str(other), "--name", "elsewhere"]
    assert station.json(*words) == [{"policy": "elsewhere@2", "known": False}]
    said = station.run("policy", "activate", "elsewhere@2", code=1).stderr
    assert "is not the model that elsewhere@2 was trained from" in said
    refused = station.run(
        "policy", "import", str(adapter), "--base", str(other), "--name", "policy", code=1
    ).stderr
    assert "trained from another base model" in refused


def test_what_is_no_adapter_for_the_model_is_refused_by_the_engine(
    station: Station, tmp_path: Path
) -> None:
    adapter = make_adapter(tmp_path / "adapter", 9)
    broken = (adapter / "adapter_model.safetensors").read_bytes()
    (adapter / "adapter_model.safetensors").write_bytes(broken[: len(broken) // 2])
    (row,) = station.json("policy", "import", str(adapter), "--base", str(model_path()))
    active = [name for name, one in listed(station).items() if one["active"]]
    said = station.run("policy", "activate", row["policy"], code=1).stderr
    assert "Engine embedded refuses" in said
    assert [name for name, one in listed(station).items() if one["active"]] == active


def test_files_that_are_not_what_was_registered_are_never_sampled_with(station: Station) -> None:
    """The ledger would name policy@3 for tokens of something else."""
    file = station.home / "policies/policy@3/adapter_model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    said = station.run("policy", "activate", "policy@3", code=1).stderr
    assert "are not those that were registered as policy@3" in said
    file.write_bytes(whole)
    assert activate(station, "policy@3")["state"] == "active"
    station.run("policy", "rollback")


def test_the_home_is_sound_and_says_what_happened(station: Station) -> None:
    station.run("verify")
    (row,) = station.json("backup")
    copy = station.home / "backups" / row["name"] / "policies/policy@2/adapter_model.safetensors"
    mine = station.home / "policies/policy@2/adapter_model.safetensors"
    assert copy.read_bytes() == mine.read_bytes(), "adapters are part of a backup"
    mine.write_bytes(mine.read_bytes()[:-1] + b"x")
    said = station.run("verify", code=65).stdout
    assert "adapter_model.safetensors is not the file that was registered" in said
    mine.write_bytes(copy.read_bytes())
    told = station.run("log", "--audit", "-n", "200").stdout
    assert "new rollouts of embedded are to sample with policy@2" in told
    assert "going back" in told
    shown = station.json("policy", "show", "policy@2")[0]
    assert {one["state"] for one in shown["activations"]} == {"active"}
    assert set(shown["files"]) == {"adapter_config.json", "adapter_model.safetensors"}


def test_full_weights_have_an_engine_of_their_own_that_ends_with_their_use(
    station: Station, tmp_path: Path
) -> None:
    station.run("policy", "activate", "base")
    merged = tmp_path / "merged"
    station.run("policy", "merge", "policy@2", "--out", str(merged))
    (row,) = station.json("policy", "import", str(merged), "--base", str(model_path()))
    full = row["policy"]
    assert activate(station, full)["state"] == "active"
    rollout = start(station, quick(station, "one"))
    shown = station.ended(rollout)
    assert (shown["state"], shown["engine"]) == ("finished", full)
    assert sampled_by(station, rollout) == {full}
    (status,) = station.json("daemon", "status")
    assert status["engines"][full] == "ready"
    assert status["policies"] == {"embedded": full}
    (state,) = (station.home / "run/engines").glob("policy*.json")
    server = int(json.loads(state.read_text())["pid"])
    station.run("daemon", "restart")
    assert alive(server), "a restart keeps engines"
    station.run("policy", "rollback")
    station.until(lambda: not alive(server), 60, "nobody uses it any more")
    assert full not in station.json("daemon", "status")[0]["engines"]


def test_full_weights_that_were_trained_from_full_weights_are_activated_like_the_first(
    station: Station, tmp_path: Path
) -> None:
    """The engine serves the model that the first round began from. An adapter of such weights is
    refused, with the way that works."""
    station.run("policy", "activate", "base")
    merged = [tmp_path / f"merged{number}" for number in (1, 2)]
    station.run("policy", "merge", "policy@3", "--out", str(merged[0]))
    words = ("policy", "import", str(merged[0]), "--base", str(model_path()), "--name", "rounds")
    first = station.json(*words)[0]["policy"]
    weights = str(station.home / "policies" / first)
    adapter = make_adapter(tmp_path / "adapter", 7)
    words = ("policy", "import", str(adapter), "--base", weights, "--name", "rounds")
    on_it = station.json(*words)[0]["policy"]
    said = station.run("policy", "activate", on_it, code=1).stderr
    assert f"{on_it} is an adapter of the full weights {first}" in said
    assert f"houston policy merge {on_it} --out DIR" in said
    station.run("policy", "merge", on_it, "--out", str(merged[1]))
    words = ("policy", "import", str(merged[1]), "--base", weights, "--name", "rounds")
    second = station.json(*words)[0]["policy"]
    assert activate(station, second)["state"] == "active"
    rollout = start(station, quick(station, "one"))
    assert station.ended(rollout)["engine"] == second
    assert sampled_by(station, rollout) == {second}
    station.run("policy", "rollback")
