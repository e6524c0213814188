"""What is told of an engine that is away while a trainer has it sample, and what is refused of what
it answered."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from houston_daemon.engines.engine_protocol import (
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_daemon.training.rl import engine_sampler
from houston_daemon.training.rl.engine_sampler import EngineSampler, SampledPolicy
from houston_shared.backoff import RetryPolicy
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import HoustonError
from houston_shared.home import Home


class AwayEngine:
    """Answers only after so many failed requests."""

    def __init__(
        self, away: int, seen: tuple[int, ...] = (1, 2), drawn: dict[str, Any] | None = None
    ) -> None:
        """seen: the prompt that it says it answered. drawn: the parameters that it drew with."""
        self._away = away
        self._seen = seen
        self._drawn = {"temperature": 1.0} if drawn is None else drawn

    async def ready(self) -> None:
        """It is up."""

    async def sample(self, request: SampleRequest, cancelled: asyncio.Event) -> EngineSample:
        """Its answer."""
        if self._away:
            self._away -= 1
            raise EngineUnavailable("it is away")
        return EngineSample("red it is", "stop", prompt_ids=self._seen, parameters=self._drawn)

    async def close(self) -> None:
        """Nothing is open."""


def asked(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: AwayEngine,
    tell: Callable[[str], None],
    trained: bool,
) -> list[str]:
    """The texts that a sampler gets from an engine for one request."""
    engines = {"far": EngineSettings(kind="openai", url="http://127.0.0.1:9", model="m")}
    loaded = LoadedConfiguration(Configuration(engines=engines), Home(folder), "defaults")
    monkeypatch.setattr(engine_sampler, "choose_engine", lambda *_: engine)
    monkeypatch.setattr(engine_sampler, "make_judge_client", lambda *_: SimpleNamespace())
    monkeypatch.setattr(engine_sampler, "_RETRIES", RetryPolicy(first_wait=0.001))
    sampler = EngineSampler(loaded, "far", lambda: False, tell, trained)
    request = SampleRequest(
        prompt_ids=(1, 2), messages=(), tools=(), max_tokens=9, role="planner", step=1
    )
    answers = sampler.sample(SampledPolicy("", "", {}), lambda client: [request])
    return [answer.text for answer in answers]


def test_an_unknown_tokenizer_is_refused_without_a_word_of_rollouts(tmp_path: Path) -> None:
    engines = {"far": EngineSettings(kind="token", url="http://127.0.0.1:9", model="m")}
    loaded = LoadedConfiguration(Configuration(engines=engines), Home(tmp_path), "defaults")
    sampler = EngineSampler(loaded, "far", lambda: False, lambda line: None)
    with pytest.raises(HoustonError, match="its tokenizer is not known") as refused:
        _ = sampler.tokenizer
    assert "rollout" not in str(refused.value)


@pytest.mark.parametrize(
    ("away", "told"),
    [
        pytest.param(0, [], id="it answers"),
        pytest.param(1, ["it is away", ""], id="away once"),
        pytest.param(2, ["it is away", "it is away", ""], id="away for longer"),
    ],
)
def test_an_engine_that_answers_again_is_no_longer_said_to_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: int, told: list[str]
) -> None:
    lines: list[str] = []
    answers = asked(tmp_path, monkeypatch, AwayEngine(away), lines.append, trained=False)
    assert (answers, lines) == (["red it is"], told)


REFUSED = {
    "at a temperature of its own": ((1, 2), {"temperature": 0.3, "top_k": 20}, "temperature = 0.3"),
    "at a temperature that nobody knows": ((1, 2), {"top_p": 1.0}, "temperature = unknown"),
    "after another prompt": ((9, 9, 9), {"temperature": 1.0}, "a prompt of 3 tokens, not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_answers_that_would_be_trained_and_are_not_the_policys_own_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen, drawn, cause = REFUSED[name]
    with pytest.raises(HoustonError, match=cause):
        asked(tmp_path, monkeypatch, AwayEngine(0, seen, drawn), print, trained=True)


def test_a_frozen_critic_may_answer_at_any_temperature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = AwayEngine(0, drawn={"temperature": 0.3})
    assert asked(tmp_path, monkeypatch, engine, print, trained=False) == ["red it is"]
