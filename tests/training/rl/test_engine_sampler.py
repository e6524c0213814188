"""What is told of an engine that is away while a trainer has it sample."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from houston_daemon.engines.engine_protocol import EngineUnavailable
from houston_daemon.training.rl import engine_sampler
from houston_daemon.training.rl.engine_sampler import EngineSampler, SampledPolicy
from houston_shared.backoff import RetryPolicy
from houston_shared.config import Configuration, EngineSettings, LoadedConfiguration
from houston_shared.home import Home


class AwayEngine:
    """Answers only after so many failed requests."""

    def __init__(self, away: int) -> None:
        self._away = away

    async def ready(self) -> None:
        """It is up."""

    async def sample(self, request: str, cancelled: asyncio.Event) -> str:
        """Its answer."""
        if self._away:
            self._away -= 1
            raise EngineUnavailable("it is away")
        return f"{request} it is"

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("away", "told"),
    [
        pytest.param(0, [], id="it answers"),
        pytest.param(1, ["it is away", ""], id="away once"),
        pytest.param(2, ["it is away", "it is away", ""], id="away for longer"),
    ],
)
def test_an_engine_that_answers_again_is_no_longer_said_to_be_away(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, away: int, told: list[str]
) -> None:
    engines = {"far": EngineSettings(kind="openai", url="http://127.0.0.1:9", model="m")}
    loaded = LoadedConfiguration(Configuration(engines=engines), Home(tmp_path), "defaults")
    monkeypatch.setattr(engine_sampler, "choose_engine", lambda *_: AwayEngine(away))
    monkeypatch.setattr(engine_sampler, "make_judge_client", lambda *_: SimpleNamespace())
    monkeypatch.setattr(engine_sampler, "_RETRIES", RetryPolicy(first_wait=0.001))
    lines: list[str] = []
    sampler = EngineSampler(loaded, "far", lambda: False, lines.append)
    answers = sampler.sample(SampledPolicy("", "", {}), lambda client: ["red"])  # type: ignore[list-item]
    assert (answers, lines) == (["red it is"], told)
