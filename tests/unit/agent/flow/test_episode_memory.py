"""Memory across rollouts: what is recalled, by whom, and what a file that fails costs."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from houston_daemon.agent.flow import episode_memory
from houston_daemon.agent.flow.episode_memory import (
    HEADING,
    Episode,
    EpisodeMemory,
    EpisodeStore,
    check_packages,
    embed,
)
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall, ToolResult

VENUS = "How hot is the surface of Venus?"
QUESTIONS = (
    VENUS,
    "Who built the ship Morning Heron?",
    "In which year was Ivers Quay founded?",
    "What is 17 factorial?",
)


def kept(number: int, question: str, task: str = "ask") -> Episode:
    return Episode(f"r{number}", task, question, "[tried: 1 search x]", f"a{number}", True)


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    made = EpisodeStore(tmp_path / "memory" / "episodes.db")
    for number, question in enumerate(QUESTIONS):
        made.keep(kept(number, question))
    return made


@pytest.mark.parametrize(
    ("question", "rollouts"),
    [
        ("What temperature has the planet Venus on its surface?", ["r0"]),
        ("Which shipwright made the Morning Heron?", ["r1"]),
        ("When was the town of Ivers Quay founded?", ["r2"]),
        ("Compute the factorial of 17", ["r3"]),
        ("How do I bake bread?", []),
        ("", []),
    ],
)
def test_a_question_recalls_those_like_it(
    store: EpisodeStore, question: str, rollouts: list[str]
) -> None:
    assert [episode.rollout for episode in store.recall("ask", question, 3)] == rollouts


def test_what_makes_vectors_has_nothing_else_printed() -> None:
    """WordLlama sets up logging for a whole process: each request of httpx became a line."""
    code = (
        "import logging; from houston_daemon.agent.flow.episode_memory import embed;"
        " embed('x'); logging.getLogger('httpx').info('HTTP Request')"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HTTP Request" not in told.stderr + told.stdout


def test_only_the_same_task_recalls(store: EpisodeStore) -> None:
    assert store.recall("other", VENUS, 3) == []


def test_a_rollout_that_ends_twice_is_kept_once(store: EpisodeStore) -> None:
    store.keep(kept(0, VENUS)._replace(answer="464"))
    assert [episode.answer for episode in store.recall("ask", VENUS, 3)] == ["464"]


def test_the_oldest_go(store: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_memory, "MAX_EPISODES", 2)
    store.keep(kept(9, "Which bird is grey?"))
    assert store.recall("ask", VENUS, 3) == []
    assert [each.rollout for each in store.recall("ask", "the grey bird", 3)] == ["r9"]
    assert [each.rollout for each in store.recall("ask", "17 factorial", 3)] == ["r3"]


def test_many_write_at_once(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path / "episodes.db")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.keep(kept(n, f"{VENUS} ({n})")), range(24)))
    assert len(store.recall("ask", VENUS, 50)) == 24


def test_a_file_that_fails_costs_the_memory_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "episodes.db"
    file.write_bytes(b"this is no database, and never was one" * 40)
    store = EpisodeStore(file)
    store.keep(kept(1, VENUS))
    assert store.recall("ask", VENUS, 3) == []
    assert "is not used" in caplog.text


async def test_memory_leaves_what_was_tried_and_tells_it_once(store: EpisodeStore) -> None:
    first = EpisodeMemory(store, "r10", "ask", 2)
    call = ToolCall(id="1.0", name="search", arguments={"query": "heat of Venus"})
    first.note(1, [ToolResult(call=call, kind="search", success=True, text="464 degrees")])
    await first.keep("What is the heat on Venus?", "464", verified=True)
    told = await EpisodeMemory(store, "r11", "ask", 2).recall(VENUS)
    assert told.startswith(HEADING) and told.endswith("]")
    assert '1 search "heat of Venus": 464 degrees' in told
    assert 'answered "464", which a verifier took for answered' in told
    assert told.count("- asked: ") == 2, "no more than the task says"
    again = await EpisodeMemory(store, "r10", "ask", 2).recall(VENUS)
    assert "heat of Venus" not in again, "a rollout does not recall itself"


def test_vectors_are_of_one_length_and_come_without_a_download(tmp_path: Path) -> None:
    vector = embed(VENUS)
    assert len(vector) == 256 * 4
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('it reached for the network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from houston_daemon.agent.flow.episode_memory import embed\n"
        "import sys\n"
        f"assert len(embed({VENUS!r})) == 1024\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    check_packages()
    monkeypatch.setattr(episode_memory, "PACKAGES", ("apsw", "no_such_package"))
    with pytest.raises(ConfigurationError, match="needs the package no_such_package") as refused:
        check_packages()
    assert refused.value.next == "pip install 'houston-agents[memory]'"
