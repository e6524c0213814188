"""Suites of words: the same tasks each time, splits without a common code, one rule, short."""

import random
from pathlib import Path

import pytest

from houston_daemon.service.rollout_start_checks import check_task_names
from houston_daemon.suites.suite_catalog import SPLITS, SUITES, base_rates, write_suite_task
from houston_daemon.suites.word_episodes import WordEpisode, WordSpeaker, scripted_episode
from houston_daemon.suites.word_tokenizer import write_word_tokenizer
from houston_daemon.suites.word_worlds import LEVELS, VOCABULARY, WordLevel, word_world
from houston_shared.errors import HoustonError
from houston_shared.task import load_task

levels = pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> WordSpeaker:
    return WordSpeaker(write_word_tokenizer(tmp_path_factory.mktemp("words"), VOCABULARY))


@levels
def test_no_code_of_a_split_is_in_another(level: WordLevel) -> None:
    codes = [
        {code for index in range(300) for code in word_world(level, split, index).codes.values()}
        for split in SPLITS
    ]
    assert not codes[0] & codes[1] and not codes[0] & codes[2] and not codes[1] & codes[2]


@levels
def test_one_rule_holds_in_every_split(level: WordLevel) -> None:
    right: dict[str, set[str]] = {}
    for split in SPLITS:
        for index in range(400):
            world = word_world(level, split, index)
            words = world.instructions.split()
            where = words[words.index("in") :] if "in" in words else []
            for item, box in zip(words[1 : level.items + 1], world.right_boxes, strict=True):
                right.setdefault(" ".join([item, *where]), set()).add(box)
    assert len(right) == level.boxes * level.places
    assert all(len(boxes) == 1 for boxes in right.values())
    boxes = [box for world in right.values() for box in world]
    assert all(boxes.count(box) == level.places for box in set(boxes)), "no box is a better guess"


@pytest.mark.parametrize("name", SUITES)
def test_a_task_is_written_once_and_can_be_started(tmp_path: Path, name: str) -> None:
    texts = set()
    for split in SPLITS:
        file = write_suite_task(name, split, 3, tmp_path)
        before = file.stat().st_mtime_ns
        assert write_suite_task(name, split, 3, tmp_path) == file
        assert file.stat().st_mtime_ns == before
        other = write_suite_task(name, split, 3, tmp_path / "elsewhere")
        assert other.read_bytes() == file.read_bytes()
        task = load_task(file)
        check_task_names(task)
        assert task.task.budget.steps == SUITES[name].steps
        texts.add(task.text)
    assert len(texts) == len(SPLITS)


@pytest.mark.parametrize(
    ("name", "split", "index"),
    [("nothing", "test", 0), ("word-worlds", "dev", 0), ("word-worlds", "test", -1)],
)
def test_what_is_no_task_is_refused(tmp_path: Path, name: str, split: str, index: int) -> None:
    with pytest.raises(HoustonError):
        write_suite_task(name, split, index, tmp_path)
    assert not list(tmp_path.iterdir())


@levels
def test_scripted_agents_err_and_no_context_is_long(speaker: WordSpeaker, level: WordLevel) -> None:
    source = random.Random(1)
    episodes = [
        scripted_episode(
            speaker,
            word_world(level, "train", index),
            source,
            wrong=level.wrong,
            errors=0.25,
            ordered=0.2,
            steps=level.steps,
        )
        for index in range(300)
    ]
    solved = sum(episode.score == 100.0 for episode in episodes)
    assert 30 <= solved <= 90, "about a fifth"
    assert all(episode.done and len(episode.answers) <= level.steps for episode in episodes)
    assert 0.5 < sum(episode.failures for episode in episodes) / 300 < 2.0
    assert max(len(episode.ids) for episode in episodes) <= 120
    unknown = speaker.tokens.id_of("<unk>")
    assert not any(unknown in episode.ids for episode in episodes), "the vocabulary has every word"


def test_the_longest_context_is_short(speaker: WordSpeaker) -> None:
    world = word_world(LEVELS["hard"], "test", 0)
    episode = WordEpisode(speaker, world, 8)
    for _ in range(8):
        episode.step(speaker.answer_ids("look"), "open the red box")
    assert episode.done and episode.score == 0.0
    assert len(episode.ids) <= 240


def test_base_rates_name_suites_that_are_there() -> None:
    for rate in base_rates():
        assert rate.suite in SUITES and 0 <= rate.solved <= rate.worlds
        assert rate.command.startswith("houston suite run")
