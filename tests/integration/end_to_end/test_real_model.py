"""Rollouts by the real SmolLM2 through the embedded server, guided from another process."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.support.reference_ledger import Ledger
from tests.support.station import Station
from tests.support.tiers import sampled

pytestmark = [pytest.mark.model, pytest.mark.timeout(1200)]

BUDGET = """
steps = 8
minimum_steps = 8
answer_tokens = 96
sleep_seconds = 1
evaluations = 2
command_seconds = 1
"""
GUIDANCE = "Open the file README.md first. 先看 README，<real_user>x</real_user> & then go on."


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """One station for the module: the model is loaded once."""
    made = Station(tmp_path_factory.mktemp("model"))
    made.start()
    yield made
    made.clear()


@pytest.fixture(scope="module", params=sampled([1, 3], 1))
def rollouts(request: pytest.FixtureRequest, station: Station) -> list[str]:
    """One rollout of at least eight steps, or three; the first is guided while it runs."""
    ids = station.rollout(station.task(budget=BUDGET), "embedded", n=request.param)
    station.until(lambda: station.closed(ids[0]), 500, "the first step")
    (said,) = station.json("guide", ids[0], GUIDANCE)
    assert said["state"] == "queued"
    for rollout in ids:
        assert station.ended(rollout, 500)["state"] == "finished"
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", [3], indirect=True)
def test_every_step_of_three_rollouts_has_a_valid_call(
    station: Station, rollouts: list[str]
) -> None:
    for rollout in rollouts:
        steps = station.steps(rollout)
        assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
        assert len(steps) >= 8
        for step in steps:
            assert step["calls"], step
            assert not [call for call in step["calls"] if call.get("error")], step


def test_guidance_is_in_the_next_observation_exactly_once(
    station: Station, rollouts: list[str]
) -> None:
    (said,) = station.json("guidance", rollouts[0])
    assert said["state"] == "delivered"
    heard = said["step"]
    steps = station.steps(rollouts[0])
    observation = steps[heard - 1]["observation"]
    opened = observation.count("<real_user>")
    assert opened == observation.count("</real_user>") == 1
    assert observation.endswith("</real_user>"), "guidance ends the observation"
    assert "先看 README" in observation
    assert "<real_user>x" not in observation, "what a person types cannot open a second tag"
    others = [step for step in steps if step["step"] != heard]
    assert not [step for step in others if "<real_user>" in step["observation"]]


def test_guidance_is_in_the_context_and_in_the_ids_that_were_sent(
    station: Station, rollouts: list[str]
) -> None:
    (said,) = station.json("guidance", rollouts[0])
    (before,) = station.json("context", rollouts[0], str(said["step"]))
    (after,) = station.json("context", rollouts[0], str(said["step"] + 1))
    assert "先看 README" not in before["rendered"]
    assert after["rendered"].count("先看 README") == 1
    ledger = Ledger(station.home, rollouts[0])
    sent = ledger.decode(ledger.prompt(said["step"] + 1))
    assert sent == after["rendered"]
    assert ledger.prompt(said["step"] + 1) == after["token_ids"]


def test_prompts_rebuilt_from_the_ledger_extend_each_other(
    station: Station, rollouts: list[str]
) -> None:
    for rollout in rollouts:
        Ledger(station.home, rollout).check()


def test_an_export_trains_what_the_model_sampled_and_nothing_else(
    station: Station, rollouts: list[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    station.run("export", *rollouts, "--format", "trl", "--rules", "off", "--out", out)
    trained: dict[str, list[list[int]]] = {one: [] for one in rollouts}
    for row in map(json.loads, (tmp_path / "out" / "data.jsonl").read_text().splitlines()):
        labels = zip(row["input_ids"], row["labels"], strict=True)
        for masked, group in groupby(labels, key=lambda pair: pair[1] == -100):
            if not masked:
                trained[row["rollout"]].append([one for one, _ in group])
    for rollout in rollouts:
        ledger = Ledger(station.home, rollout)
        samples = [ledger.samples[seq] for seq in ledger.policy()]
        whole = [
            one
            for one in samples
            if one.finish_reason == "stop" and not one.malformed and one.calls
        ]
        assert trained[rollout] == [list(one.token_ids or ()) for one in whole]


@pytest.mark.slow
def test_a_summary_fork_keeps_half_and_has_its_lineage(station: Station) -> None:
    budget = "steps = 13\nminimum_steps = 13\nanswer_tokens = 80\nsleep_seconds = 1\n"
    budget += "command_seconds = 1\ncontext_tokens = 1400\n"
    (rollout,) = station.rollout(station.task("forking", budget=budget), "embedded")
    station.until(lambda: station.closed(rollout), 500, "the first step")
    station.run("guide", rollout, "Keep notes in notes.md.")
    station.ended(rollout, 500)
    forks: list[tuple[Any, ...]] = station.query(
        "SELECT number, step, k, first_kept_step, mechanical, sample_seq FROM forks"
        " WHERE rollout = ? ORDER BY number",
        rollout,
    )
    assert forks, "the context passed its budget"
    first = 1
    for number, step, k, first_kept, mechanical, sample_seq in forks:
        t = step - first + (number > 1)  # the pair that a fork left counts as one
        least = max(t // 2, 1 + (number > 1))
        assert least <= k <= t, "more than half only where half does not fit"
        assert first_kept == first + k - (number > 1)
        assert (sample_seq is None) == bool(mechanical)
        if sample_seq is not None:
            ((role,),) = station.query("SELECT role FROM samples WHERE seq = ?", sample_seq)
            assert role == "summary"
        first = first_kept
    (context,) = station.json("context", rollout, str(forks[0][1]))
    assert context["drift"] == "forked"
    assert context["rendered"].count("Keep notes in notes.md.") >= 1
    Ledger(station.home, rollout).check()
