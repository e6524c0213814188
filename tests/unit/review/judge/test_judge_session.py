"""How a judge is asked: bounded, once for the same question, and until the answer can be used."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from houston_daemon.engines.engine_protocol import EngineSample, EngineUnavailable, SampleRequest
from houston_daemon.prompts.prompt_tokenizer import TokenEstimator
from houston_daemon.review import verdict_updates
from houston_daemon.review.judge import judge_session, judge_template, judge_verdicts
from houston_daemon.review.judge.judge_cache import JudgeCache
from houston_daemon.review.judge.judge_client import JudgeClient, JudgeCost, WindowJudge
from houston_daemon.review.judge.judge_session import JudgeRequest, JudgeSession, lock_rollout
from houston_daemon.review.judge.judge_verdicts import JudgeOutcome, JudgeVerdicts
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import JudgeSettings
from houston_shared.home import Home
from houston_shared.records import ToolCall
from tests.support.judged_rollouts import step, trace

WHOLE = trace([step(number, "x" * 20_000) for number in range(1, 13)])


class Voice:
    """An engine that answers as it is told, and knows how many ask it at once."""

    name, token_ids, window = "voice", False, 16_000

    def __init__(self, answer: Callable[[int, list[int]], str], pause: float = 0.0) -> None:
        """answer: from the number of the request and the steps that it asks about."""
        self.asked: list[SampleRequest] = []
        self.at_once = self.most = 0
        self._answer = answer
        self._pause = pause

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        self.asked.append(request)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self._pause)
        self.at_once -= 1
        steps = [int(name) for name in request.tools[0]["parameters"]["required"]]
        text = self._answer(len(self.asked), steps)
        return EngineSample(text=text, finish_reason="stop", calls=())

    async def ready(self) -> None: ...
    async def close(self) -> None: ...


def masks(_: int, steps: list[int]) -> str:
    return json.dumps({str(number): {"reason": "because", "verdict": "mask"} for number in steps})


def client(engine: Voice) -> JudgeClient:
    return JudgeClient("voice", engine, "m", engine.window, TokenEstimator(), None)


async def judged(
    engine: Voice, folder: Path, at_once: int = 4, settings: JudgeSettings | None = None
) -> tuple[JudgeVerdicts, JudgeCost]:
    cost, words = JudgeCost(), judge_template.load_template()
    judge = WindowJudge(
        client(engine), words, settings or JudgeSettings(), JudgeCache(Home(folder)), cost
    )
    windows = judge_verdicts.plan_windows(WHOLE, words, judge.client)
    turn = asyncio.Semaphore(at_once)
    return await judge_verdicts.judge_rollout(
        WHOLE, windows, judge, turn, {3: "e"}, lambda _: None
    ), cost


@pytest.mark.parametrize("at_once", [1, 3])
async def test_no_more_windows_at_once_than_were_allowed(tmp_path: Path, at_once: int) -> None:
    engine = Voice(masks, 0.01)
    verdicts, cost = await judged(engine, tmp_path, at_once)
    assert cost.questions > 3 and engine.most == at_once
    assert list(verdicts.steps) == list(range(1, 13))


async def test_what_was_asked_before_a_failure_is_not_asked_again(tmp_path: Path) -> None:
    def fails(number: int, steps: list[int]) -> str:
        if number == 3:
            raise EngineUnavailable("The engine has gone.")
        return masks(number, steps)

    engine = Voice(fails)
    with pytest.raises(EngineUnavailable):
        await judged(engine, tmp_path, 1)
    assert len(engine.asked) <= 4, "one may have begun by then"
    engine = Voice(masks)
    _, cost = await judged(engine, tmp_path, 1)
    assert cost.cached >= 2 and len(engine.asked) == cost.questions - cost.cached


async def test_the_rule_on_errors_wins_over_a_keep(tmp_path: Path) -> None:
    keeps = Voice(lambda number, steps: masks(number, steps).replace("mask", "keep"))
    verdicts, _ = await judged(keeps, tmp_path)
    assert verdicts.overruled == 1
    assert [number for number, step in verdicts.steps.items() if step.verdict == "mask"] == [3]
    assert verdicts.steps[3].reason == "e; the judge would keep it"


async def test_a_rollout_that_another_judge_is_at_does_not_keep_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_: JudgeSession, rollout: str, turn: asyncio.Semaphore) -> JudgeOutcome:
        return JudgeOutcome(rollout, 0)

    monkeypatch.setattr(JudgeSession, "_rollout", at_once)
    home = Home(tmp_path)
    done: list[str] = []
    notes: list[str] = []
    home.run.mkdir(parents=True)
    session = JudgeSession(
        LoadedConfiguration(Configuration(), home, "defaults"),
        JudgeSettings(), JudgeRequest(), judge_template.load_template(), client(Voice(masks)),
        notes.append, lambda outcome: done.append(outcome.rollout),
    )  # fmt: skip
    with lock_rollout(home, "r-2"):
        await session.run(["r-1", "r-2", "r-3"])
    assert (done, session.busy) == (["r-1", "r-3"], ["r-2"])
    assert len(notes) == 1 and notes[0].startswith("r-2 is already being judged")


@pytest.mark.parametrize("tries", [1, 2, 4])
async def test_an_answer_is_asked_for_again_as_often_as_is_configured(
    tmp_path: Path, tries: int
) -> None:
    engine = Voice(lambda *_: "no")
    verdicts, cost = await judged(engine, tmp_path, 1, replace(JudgeSettings(), tries=tries))
    assert cost.requests == cost.unusable == tries * cost.questions == len(engine.asked)
    assert not verdicts.steps and list(verdicts.undecided) == list(range(1, 13))
    assert "no JSON object" in verdicts.undecided[1]
    again, second = await judged(engine, tmp_path, 1, replace(JudgeSettings(), tries=tries))
    assert second.cached == 0 and again == verdicts, "what cannot be used is not kept"


async def test_that_answers_cannot_be_kept_is_said_and_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "judge").write_text("no folder")
    verdicts, cost = await judged(Voice(masks), tmp_path)
    assert len(verdicts.steps) == 12
    assert cost.unkept and f"answers were not kept: {cost.unkept}" in cost.words(JudgeSettings())


async def test_another_question_has_another_answer(tmp_path: Path) -> None:
    """Engine, model, policy, temperature and words are part of the question."""
    words = judge_template.load_template()
    (window,) = judge_verdicts.plan_windows(trace([step(1)]), words, client(Voice(masks)))
    usual = client(Voice(masks))
    other = judge_template.parse_template(judge_template.JUDGE_FORM.read(None) + "\n", "other")
    ways = [
        (usual, words, JudgeSettings()),
        (
            JudgeClient("voice", usual.engine, "n", 16_000, TokenEstimator(), None),
            words,
            JudgeSettings(),
        ),
        (
            JudgeClient("other", usual.engine, "m", 16_000, TokenEstimator(), None),
            words,
            JudgeSettings(),
        ),
        (
            JudgeClient("voice", usual.engine, "m", 16_000, TokenEstimator(), None, "policy@2"),
            words,
            JudgeSettings(),
        ),
        (usual, words, replace(JudgeSettings(), temperature=0.7)),
        (usual, other, JudgeSettings()),
    ]
    for judge_client, text, settings in ways:
        judge = WindowJudge(judge_client, text, settings, JudgeCache(Home(tmp_path)), JudgeCost())
        assert not judge.is_cached(window)
        await judge.judge_window(window)
        assert judge.is_cached(window)


async def test_a_call_of_another_tool_is_no_answer(tmp_path: Path) -> None:
    class Caller(Voice):
        async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
            sampled = await super().sample(request, stop)
            call = ToolCall(id="1", name="run_command", arguments=json.loads(sampled.text))
            return EngineSample(text="", finish_reason="stop", calls=(call,))

    verdicts, _ = await judged(Caller(masks), tmp_path)
    assert not verdicts.steps


def test_steps_that_a_branch_shares_are_its_parents() -> None:
    steps = [replace(step(1), inherited="r-0"), step(2)]
    rollout = trace(steps)
    assert verdict_updates.own_steps(rollout) == [2]
    (window,) = judge_verdicts.plan_windows(
        rollout, judge_template.load_template(), client(Voice(masks))
    )
    assert window.judged == (2,) and "step 1 begins, context only]" in window.message


def test_kept_answers_can_be_forgotten(tmp_path: Path) -> None:
    cache = JudgeCache(Home(tmp_path))
    cache.forget()
    asyncio.run(judged(Voice(masks), tmp_path))
    assert list((tmp_path / "judge").rglob("*.json"))
    cache.forget()
    assert not list(tmp_path.rglob("*"))


async def test_a_judge_that_takes_long_is_heard_of_before_it_answers(tmp_path: Path) -> None:
    heard = asyncio.Event()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        heard.set()

    async with judge_session.report_progress("r-1", 1, note, interval=0.01) as count_window:
        await asyncio.wait_for(heard.wait(), 20)
        count_window(None)  # type: ignore[arg-type]  # only that it is done counts
    assert notes[0].startswith("r-1: judge, 0 of 1 window after ")
    count = len(notes)
    await asyncio.sleep(0.05)
    assert len(notes) == count, "nothing is said of what is over"
