"""What each arm of the ablation in worlds of words learns from, through the real daemon: rollouts
with and without a person, verdicts, rules, and the labels of the rows."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.scripted_endpoint import ScriptedEndpoint, endpoint_engine
from houston_daemon.prompts.words_dialect import ANSWER, END, MARKUP, OBSERVED
from houston_daemon.suites.guided_words import (
    ARMS,
    LEVEL,
    SPLIT,
    SUITE,
    export_words,
    is_wrong_open,
    mask_condemned,
    sampling_agent,
)
from houston_daemon.suites.suite_results import SuiteRun, read_run
from houston_daemon.suites.word_tokenizer import write_word_tokenizer
from houston_daemon.suites.word_worlds import VOCABULARY, word_world
from houston_shared.guidance_tag import OPENING_TAG

WORLDS = 8
WORDS = list(dict.fromkeys((*MARKUP, *VOCABULARY)))
Answers = list[tuple[str, bool, bool]]
"""Of each answer what it says, whether it failed, and whether it is trained."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ExperimentHome]:
    """A daemon with the sampler twice: beside a person, and alone."""
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        ports = {"guided": one.getsockname()[1], "alone": other.getsockname()[1]}
    made = ExperimentHome(tmp_path, {name: endpoint_engine(port) for name, port in ports.items()})
    agents = {name: sampling_agent(made, name == "guided", 0.6, 0.25) for name in ports}
    with (
        ScriptedEndpoint(agents["guided"], ports["guided"]),
        ScriptedEndpoint(agents["alone"], ports["alone"]),
    ):
        made.start()
        yield made
        made.stop()


def sampled(home: ExperimentHome, engine: str) -> SuiteRun:
    words = ("suite", "run", SUITE, "--engine", engine, "--split", SPLIT, "-n", str(WORLDS))
    return read_run(Path(json.loads(home.run(*words, "--json"))["file"]))


def answers(home: ExperimentHome, arm: str, run: SuiteRun) -> dict[int, Answers]:
    """By world, what an arm's rows train."""
    rollouts = {world.attempts[0].rollout: world.index for world in run.worlds}
    tokenizer = write_word_tokenizer(home.folder / "tokenizer", VOCABULARY)
    home.run(*export_words(arm, list(rollouts), tokenizer, home.folder / arm))
    lines = (home.folder / arm / "data.jsonl").read_text().splitlines()
    rows = {rollouts[row["rollout"]]: row for row in map(json.loads, lines)}
    return {index: read_answers(row["input_ids"], row["labels"]) for index, row in rows.items()}


def read_answers(ids: list[int], labels: list[int]) -> Answers:
    """The answers of a row; all tokens of one are trained, or none is."""
    told: Answers = []
    text = [WORDS[id] for id in ids]
    begins = [place + 1 for place, word in enumerate(text) if word == ANSWER]
    for begin in begins:
        end = text.index(END, begin)
        trained = {label >= 0 for label in labels[begin : end + 1]}
        assert len(trained) == 1, text
        seen = text[end + 2 : text.index(ANSWER, end) if ANSWER in text[end:] else None]
        assert text[end + 1 : end + 2] in ([OBSERVED], [])
        told.append((" ".join(text[begin:end]), "unknown" in seen, trained.pop()))
    return told


def test_each_arm_learns_from_what_it_is_for(home: ExperimentHome) -> None:
    guided, alone = sampled(home, "guided"), sampled(home, "alone")
    condemned = mask_condemned(home, guided)
    assert {world.attempts[0].solved for world in guided.worlds} == {True}, "it was obeyed"
    assert {world.attempts[0].solved for world in alone.worlds} == {True, False}
    arms = {arm: answers(home, arm, guided if what.guided else alone) for arm, what in ARMS.items()}
    wrong = failed = 0
    for index in range(WORLDS):
        task = word_world(LEVEL, SPLIT, index)
        for arm, told in arms.items():
            for action, is_failed, trained in told[index]:
                is_wrong = is_wrong_open(task, action)
                kept = {
                    "without-interaction": not is_failed,
                    "without-masking": True,
                    "full": not is_failed and not is_wrong,
                }
                assert trained == kept[arm], (arm, index, action)
                wrong += is_wrong and arm == "full"
                failed += is_failed and arm == "full"
    assert wrong == condemned > 0 and failed > 0
    heard = [
        message for world in guided.worlds for message in home.guidance(world.attempts[0].rollout)
    ]
    assert [message.state for message in heard] == ["delivered"] * condemned
    ids = (home.folder / "full" / "data.jsonl").read_text()
    assert f",{WORDS.index(OPENING_TAG)}," in ids, "people's words stand in the rows"
    assert not [m for world in alone.worlds for m in home.guidance(world.attempts[0].rollout)]
