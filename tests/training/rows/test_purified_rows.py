"""Rows of purified rollouts: no failed call and no traceback is in them, and what was sampled can
still be had. Played on the real loop with token ids, in every dialect."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from houston_daemon.engines.engine_protocol import EngineSample, SampleRequest
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow
from houston_daemon.training.rl.group_credit import RAW_OPTIONS, ROW_OPTIONS
from houston_daemon.training.rl.purification_gate import PurificationGate
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from tests.training.rows.played_rollouts import Acting, Family, Played, SampledText, Stage, Turn

RETRIES = 2
FAMILIES = ("chatml-json", "hermes", "qwen3", "glm45")


class Try(NamedTuple):
    """One attempt at a step."""

    name: str
    """`noop` comes right, `nop` is no tool, empty is no action."""
    text: str
    thought: str


@dataclass
class Erring(Acting):
    """Says one attempt after the other."""

    tries: Sequence[Sequence[Try]] = ()
    by_attempt: dict[tuple[int, int], SampledText] = field(default_factory=dict)
    """By step and attempt."""

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        step, attempt = request.step, request.attempt
        if step > len(self.tries):
            return await super().sample(request, stop)
        action = self.tries[step - 1][attempt - 1]
        call = ToolCall(id="", name=action.name, arguments={"text": action.text})
        calls = [call] if action.name else []
        pieces = choose_dialect(self.family.name).assistant(action.thought, calls)[:-1]
        acting = replace(request, role="policy")
        sample = self._sampled(acting, pieces, "stop" if calls else "malformed")
        self.by_attempt[step, attempt] = self.answers["policy", step]
        return sample


def play(
    stage: Stage, family: Family, tries: Sequence[Sequence[Try]], share: float = 1.0
) -> Played:
    stage._number += 1
    engine = {"kind": "token", "url": "http://nobody", "tokenizer": family.tokenizer}
    rollout = stage.rig.rollout(
        settings={**engine, "dialect": family.name},
        task=f"[budget]\nsteps = {len(tries) + 1}\nanswer_tokens = 64\n",
        name=f"t{stage._number}",
        files={"README.md": f"Hello {stage._number}.\n"},
        purify={"enabled": True, "share": share, "retries": RETRIES},
    )
    turns = [Turn("", ())] * len(tries)
    played = Played(rollout, Erring(stage.rig, family, turns, rollout, tries=tries))
    stage.go_on(played)
    return played


def written(family: dict[str, Family], name: str) -> Family:
    """A dialect of any name, with the tokenizer of the module."""
    return Family(name, family["chatml"].tokenizer)


WORDS = st.text("abc xyz", min_size=1, max_size=12).map(lambda text: f"w{text}w")


@st.composite
def scripts(draw: st.DrawFn) -> list[list[Try]]:
    """Steps of one to three attempts; every text has the mark of its step and attempt."""
    steps = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        failures = draw(st.sampled_from([0, 0, 1, 1, 2, RETRIES + 1]))
        names = [draw(st.sampled_from(["nop", "nop", ""])) for _ in range(failures)]
        names += ["noop"] if failures <= RETRIES else []
        same = draw(WORDS)
        steps.append(
            [
                Try(
                    name,
                    f"{'F' if name != 'noop' else 'C'}{number}.{at}f {draw(st.just(same) | WORDS)}",
                    f"T{number}.{at}t {draw(WORDS)}",
                )
                for at, name in enumerate(names, 1)
            ]
        )
    return steps


def purified(step: Sequence[Try]) -> bool:
    return len(step) > 1 and step[-1].name == "noop"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tries=scripts(), name=st.sampled_from(FAMILIES))
def test_purified_rows_hold_no_failed_call_and_no_traceback(
    stage: Stage, family: dict[str, Family], tries: list[list[Try]], name: str
) -> None:
    played = play(stage, written(family, name), tries)
    tokens = PromptTokenizer(written(family, name).tokenizer)
    (row,) = stage.rows(played)
    text = tokens.decode(row.token_ids.tolist())
    for number, step in enumerate(tries, 1):
        for at, attempt in enumerate(step, 1):
            if not purified(step):
                continue
            failed = attempt.name != "noop"
            if failed and attempt.name:
                assert attempt.text not in text, "the failed call"
            assert f"O{number}.0o error" not in text, "what came back of it"
            assert not failed or f"O{number}.0.{at}o error" not in text
    spans = {span.step: span for span in row.spans}
    for number, step in enumerate(tries, 1):
        span = spans[number]
        answer = tokens.decode(row.token_ids[span.start : span.end].tolist())
        assert (span.attempt > 1) == purified(step)
        if purified(step):
            assert step[-1].text in answer
            ids, said = row.token_ids[span.start : span.end].tolist(), played.engine.by_attempt  # type: ignore[attr-defined]
            kept = len(ids) - span.corrected
            first, corrected = (said[number, at].ids for at in (1, len(step)))
            assert ids == [*first[:kept], *corrected[len(corrected) - span.corrected :]]
            assert (step[0].thought in answer) or (step[-1].thought in answer)
            assert span.logprob_kind == "none", "nobody sampled it in this context"
            assert answer.endswith(written(family, name).stop)
            dialect = choose_dialect(name)
            action = dialect.parse(answer.removesuffix(written(family, name).stop), number, {})
            assert [call.arguments for call in action.calls] == [{"text": step[-1].text}]


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tries=scripts(), name=st.sampled_from(FAMILIES))
def test_raw_rows_hold_all_that_was_sampled_once(
    stage: Stage, family: dict[str, Family], tries: list[list[Try]], name: str
) -> None:
    played = play(stage, written(family, name), tries)
    rows = stage.rows(played, RowOptions(attempts="raw", masking=False))
    trained: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        for index, span in enumerate(row.spans):
            if not span.weight or span.step > len(tries):
                continue
            assert (span.step, span.attempt) not in trained, "once"
            trained[span.step, span.attempt] = row.token_ids[span.start : span.end].tolist()
            sampled = played.engine.by_attempt[span.step, span.attempt]  # type: ignore[attr-defined]
            assert row.token_ids[: span.start].tolist() == list(sampled.prompt), "where it was said"
            assert len(row.logprobs[index]) == span.end - span.start
            assert span.role == ("policy" if span.attempt == 1 else "lookahead")
    expected = {key: list(text.ids) for key, text in played.engine.by_attempt.items()}  # type: ignore[attr-defined]
    assert trained == expected


@pytest.mark.parametrize(("least", "raw_steps"), [(0.5, []), (1.5, [1, 3])])
def test_the_gate_trains_purified_steps_or_what_was_sampled_there(
    stage: Stage, family: dict[str, Family], least: float, raw_steps: list[int]
) -> None:
    """A policy that says what the engine said: every ratio is 1, but for rounding."""
    failed, right = Try("nop", "F1f", "T1t"), Try("noop", "C1f", "T2t")
    other = Try("noop", "quite another thing", "T3t")
    tries = [[failed, right], [right], [Try("", "", "T4t"), failed, other]]
    played = play(stage, written(family, "hermes"), tries)

    def logprobs(rows: Sequence[PolicyGradientRow]) -> list[list[float]]:
        return [[-0.03] * len(row.completion) for row in rows]

    gate = PurificationGate(least, logprobs)
    rows, raw = (stage.rows(played, one) for one in (ROW_OPTIONS, RAW_OPTIONS))
    trained = gate.decide(rows, raw)
    assert (gate.figures.checked, gate.figures.kept_raw) == (2, len(raw_steps))
    attempts = [(one.step, one.attempt) for row in trained for one in row.spans if one.weight]
    unchanged = [(2, 1), (4, 1)]
    purified = [(1, 3), (3, 4)]
    sampled = [(1, 1), (1, 2), (3, 1), (3, 2), (3, 3)]
    assert sorted(attempts) == sorted(unchanged + (sampled if raw_steps else purified))


def test_a_rollout_that_was_not_drawn_is_as_it_was(stage: Stage, family: dict[str, Family]) -> None:
    tries = [[Try("nop", "F1.1f", "T1.1t")]]
    played = play(stage, written(family, "hermes"), tries, share=0.0)
    (row,) = stage.rows(played)
    assert [span.attempt for span in row.spans] == [1, 1]


def test_raw_attempts_are_never_rendered(stage: Stage, family: dict[str, Family]) -> None:
    played = play(stage, written(family, "hermes"), [[Try("nop", "F", "a"), Try("noop", "C", "b")]])
    with pytest.raises(ConfigurationError, match="was purified"):
        stage.rows(played, RowOptions(attempts="raw", dialect="glm45"))


UNREPAIRED = [Try("noop", f"fails {at}", f"T{at}t") for at in range(1, RETRIES + 2)]
REPAIRED = [*UNREPAIRED[:2], Try("noop", "comes right", "T3t")]
JUDGED_RAW = {
    "nobody judged it": (REPAIRED, None, RowOptions(), [3]),
    "a person masks it": (REPAIRED, ("human", "mask"), RowOptions(), []),
    "a judge masks it": (REPAIRED, ("judge", "mask"), RowOptions(), []),
    "a rule masks it": (REPAIRED, ("rule", "mask"), RowOptions(), []),
    "a person keeps it, and the unjudged are masked": (
        REPAIRED, ("human", "keep"), RowOptions(unjudged="mask"), [3],
    ),
    "nobody judged it, and the unjudged are masked": (
        REPAIRED, None, RowOptions(unjudged="mask"), [],
    ),
    "masked, without masking": (REPAIRED, ("human", "mask"), RowOptions(masking=False), [1, 2, 3]),
    "a person masks it, in reinforcement learning": (REPAIRED, ("human", "mask"), RAW_OPTIONS, []),
    "a judge masks it, in reinforcement learning": (
        REPAIRED,
        ("judge", "mask"),
        RAW_OPTIONS,
        [1, 2, 3],
    ),
    "never repaired": (UNREPAIRED, None, RowOptions(), [1]),
    "never repaired, and a rule masks it": (UNREPAIRED, ("rule", "mask"), RowOptions(), []),
    "never repaired, and a person keeps it": (UNREPAIRED, ("human", "keep"), RowOptions(), [1]),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED_RAW)
def test_a_verdict_on_a_step_holds_for_what_was_sampled_there(
    stage: Stage, family: dict[str, Family], name: str
) -> None:
    """Where it was never repaired the first attempt counts, whatever rules say of its error."""
    tries, verdict, options, trained = JUDGED_RAW[name]
    played = play(stage, written(family, "hermes"), [tries])
    if verdict:
        stage.judge(played.id, 1, verdict[1], verdict[0])
    rows = stage.rows(played, replace(options, attempts="raw"))
    spans = [span for row in rows for span in row.spans if span.step == 1]
    assert sorted(span.attempt for span in spans if span.weight) == trained
