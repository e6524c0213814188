"""What each arm of the ablation learns from, through the real daemon: rollouts with and without a
person, verdicts, rules, and the labels of the rows."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench.guided_samplers.guided_files import GUIDED_FILES
from bench.guided_samplers.guided_sampling import (
    ARMS,
    SPLIT,
    GuidedSuite,
    export_words,
    mask_condemned,
    sampling_agent,
)
from bench.guided_samplers.guided_words import GUIDED_WORDS
from tokenizers import Tokenizer

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.scripted_endpoint import (
    ScriptedEndpoint,
    ScriptedTurn,
    endpoint_engine,
)
from houston_daemon.prompts.words_dialect import ANSWER, END
from houston_daemon.suites.imperfect_agents import AgentHabits
from houston_daemon.suites.suite_results import SuiteRun, read_run
from houston_daemon.suites.word_tokenizer import write_word_tokenizer
from houston_daemon.suites.word_worlds import VOCABULARY
from houston_shared.guidance_tag import OPENING_TAG
from tests.faults.engine_proxy import free_port
from tests.support.small_tokenizer import small_tokenizer

WORLDS = 8
HABITS = AgentHabits(wrong=0.6, errors=0.25)


class Answer(NamedTuple):
    """One answer of a row."""

    call: ScriptedTurn
    failed: bool
    trained: bool


class Reading(NamedTuple):
    """How the rows of a suite are read."""

    suite: GuidedSuite[Any]
    opening: str
    """Before an answer."""
    closing: str
    failed: str
    """In the observation of a call that failed."""


def word_call(text: str) -> ScriptedTurn:
    """`open red`."""
    name, *words = text.split()
    return ScriptedTurn("", name, {"words": " ".join(words)} if words else {})


def python_call(text: str) -> ScriptedTurn:
    """`write("a.txt", "7")`."""
    (statement,) = ast.parse(text).body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    values = {word.arg: ast.literal_eval(word.value) for word in statement.value.keywords}
    said = (ast.literal_eval(value) for value in statement.value.args)
    return ScriptedTurn(
        "",
        ast.unparse(statement.value.func),
        {**dict(zip(("path", "text"), said, strict=False)), **values},
    )


READINGS = {
    "word-worlds": Reading(GUIDED_WORDS, ANSWER, END, "unknown"),
    "small-workstation": Reading(GUIDED_FILES, "<|im_start|>assistant\n", "<|im_end|>", "Error: "),
}


@pytest.fixture(params=list(READINGS))
def reading(request: pytest.FixtureRequest) -> Reading:
    return READINGS[request.param]


@pytest.fixture
def home(tmp_path: Path, reading: Reading) -> Iterator[ExperimentHome]:
    """A daemon with the sampler twice: beside a person, and alone."""
    ports = {"guided": free_port(), "alone": free_port()}
    made = ExperimentHome(tmp_path, {name: endpoint_engine(port) for name, port in ports.items()})
    agents = {name: sampling_agent(made, reading.suite, name == "guided", HABITS) for name in ports}
    with (
        ScriptedEndpoint(agents["guided"], ports["guided"]),
        ScriptedEndpoint(agents["alone"], ports["alone"]),
    ):
        made.start()
        yield made
        made.stop()


def sampled(home: ExperimentHome, suite: str, engine: str) -> SuiteRun:
    words = ("suite", "run", suite, "--engine", engine, "--split", SPLIT, "-n", str(WORLDS))
    return read_run(Path(json.loads(home.run(*words, "--json"))["file"]))


def answers(
    home: ExperimentHome, reading: Reading, arm: str, run: SuiteRun
) -> dict[int, list[Answer]]:
    """By world, what an arm's rows train."""
    rollouts = {world.attempts[0].rollout: world.index for world in run.worlds}
    file = tokenizer_of(home.folder / "tokenizer", reading)
    suite = reading.suite.name
    home.run(*export_words(arm, suite, list(rollouts), file, home.folder / arm))
    lines = (home.folder / arm / "data.jsonl").read_text().splitlines()
    rows = {rollouts[row["rollout"]]: row for row in map(json.loads, lines)}
    tokenizer = Tokenizer.from_file(str(file))
    return {
        index: read_answers(reading, tokenizer, row["input_ids"], row["labels"])
        for index, row in rows.items()
    }


def tokenizer_of(folder: Path, reading: Reading) -> Path:
    """The tokenizer that the rows of a suite are made with."""
    if reading.suite is GUIDED_WORDS:
        return write_word_tokenizer(folder, VOCABULARY)
    folder.mkdir(exist_ok=True)
    return Path(small_tokenizer(folder))


def read_answers(
    reading: Reading, tokenizer: Tokenizer, ids: list[int], labels: list[int]
) -> list[Answer]:
    """The answers of a row; all tokens of one are trained, or none is."""
    opening = tokenizer.encode(reading.opening, add_special_tokens=False).ids
    (closing,) = tokenizer.encode(reading.closing, add_special_tokens=False).ids
    begins = [
        place + len(opening)
        for place in range(len(ids))
        if ids[place : place + len(opening)] == opening
    ]
    told: list[Answer] = []
    for begin, behind in zip(begins, [*begins[1:], len(ids)], strict=True):
        end = ids.index(closing, begin)
        text = tokenizer.decode(ids[begin:end], skip_special_tokens=False)
        (trained,) = {label >= 0 for label in labels[begin : end + 1]}
        seen = tokenizer.decode(ids[end:behind], skip_special_tokens=False)
        call = word_call(text) if reading.suite is GUIDED_WORDS else python_call(text)
        told.append(Answer(call, reading.failed in seen, trained))
    return told


def test_each_arm_learns_from_what_it_is_for(home: ExperimentHome, reading: Reading) -> None:
    suite = reading.suite
    guided, alone = sampled(home, suite.name, "guided"), sampled(home, suite.name, "alone")
    condemned = mask_condemned(home, suite, guided)
    assert {world.attempts[0].solved for world in guided.worlds} == {True}, "it was obeyed"
    assert {world.attempts[0].solved for world in alone.worlds} == {True, False}
    arms = {
        arm: answers(home, reading, arm, guided if what.guided else alone)
        for arm, what in ARMS.items()
    }
    wrong = failed = 0
    for index in range(WORLDS):
        task = suite.task(index)
        for arm, told in arms.items():
            for answer in told[index]:
                is_wrong = suite.condemns(task, answer.call)
                kept = {
                    "without-interaction": not answer.failed,
                    "without-masking": True,
                    "full": not answer.failed and not is_wrong,
                }
                assert answer.trained == kept[arm], (arm, index, answer)
                wrong += is_wrong and arm == "full"
                failed += answer.failed and arm == "full"
    assert wrong == condemned > 0 and failed > 0
    heard = [
        message for world in guided.worlds for message in home.guidance(world.attempts[0].rollout)
    ]
    assert [message.state for message in heard] == ["delivered"] * condemned
    assert not [m for world in alone.worlds for m in home.guidance(world.attempts[0].rollout)]
    rows = (home.folder / "full" / "data.jsonl").read_text().splitlines()
    texts = [read_text(home, json.loads(row)["input_ids"]) for row in rows]
    assert any(OPENING_TAG in text for text in texts), "people's words stand in the rows"


def read_text(home: ExperimentHome, ids: list[int]) -> str:
    tokenizer = Tokenizer.from_file(str(home.folder / "tokenizer" / "tokenizer.json"))
    return tokenizer.decode(ids, skip_special_tokens=False)
