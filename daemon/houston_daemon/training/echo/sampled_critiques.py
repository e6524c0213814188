"""Samples critiques of attempts with a run's critic, stores them with their token ids and
log-probabilities, and computes the gain of each (ECHO, section 3.2).

A run that resumes after a kill reads the stored critiques again, and so has the same refinements.
It starts no rollouts.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.engines.engine_protocol import EngineSample, SampleRequest
from houston_daemon.review.critic.critique_prompt import (
    AnswerForm,
    Attempt,
    CritiquePrompt,
    CritiqueTemplate,
    critique_prompt,
    critique_request,
    load_critique_template,
    parse_critique,
    read_attempt,
)
from houston_daemon.review.judge.judge_client import JudgeClient
from houston_daemon.training.rl.engine_sampler import (
    EngineSampler,
    SampledPolicy,
    drawn_logprobs,
    read_sampled_policy,
)
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_shared import atomic_file
from houston_shared.config import LoadedConfiguration
from houston_shared.critic_gain import critique_gain, unit_score
from houston_shared.store.store_reader import Reader

CUT = "it was cut at its limit of tokens"


class SampledCritique(msgspec.Struct, frozen=True):
    """One answer of the critic."""

    token_ids: list[int]
    logprobs: list[float] | None
    """As the engine drew them; None where it says something else."""
    text: str
    """What the agent is told; empty where there is nothing to tell."""
    problem: str = ""
    """Why it is no critique; empty where it is one."""
    reason: str = ""
    """What the critic found wrong, which the agent is not told."""


class CriticisedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt and its critiques."""

    rollout: str
    score: float
    """Of the attempt, a share of the full one."""
    critic: str
    """Policy that wrote them; `base` for the engine's own model, or the name of an engine of the
    critic's own."""
    prompt: list[int]
    """That all of them answer; empty from an endpoint that takes no ids."""
    level: int
    """How far the attempt was shortened: place in `critique_prompt.DETAIL_LEVELS`."""
    critiques: tuple[SampledCritique, ...]
    cached_tokens: int
    """Prompt tokens that the engine had in its cache, of all of them together."""
    prompt_tokens: int = 0
    """That the engine counted, of all of them together; 0 where it counted none."""

    @property
    def asked_tokens(self) -> int:
        """Prompt tokens of all critiques together."""
        return self.prompt_tokens or len(self.prompt) * len(self.critiques)

    @property
    def usable(self) -> list[SampledCritique]:
        """Those that say something: each has a refinement, in this order."""
        return [critique for critique in self.critiques if critique.text]

    def gains(self, scores: Sequence[float | None], recipe: RlRecipe) -> list[float]:
        """The gain of each critique. scores: of the refinements, 0 to 100, in order.

        A critique without a refinement gets the lowest of the others' gains, and at most 0: an
        empty critique must never pay.
        """
        tried = iter(
            [
                critique_gain(self.score, unit_score(score), recipe.gain, recipe.gain_smoothing)
                for score in scores
            ]
        )
        gains = [next(tried) if critique.text else None for critique in self.critiques]
        least = min([gain for gain in gains if gain is not None] + [0.0])
        return [least if gain is None else gain for gain in gains]


class CritiqueSampler:
    """Has attempts criticised, a fixed number of times each. Blocks."""

    def __init__(
        self, loaded: LoadedConfiguration, recipe: RlRecipe, sampler: EngineSampler, folder: Path
    ) -> None:
        """folder: where critiques are kept."""
        self._loaded = loaded
        self._recipe = recipe
        self._sampler = sampler
        self._folder = folder

    def criticise(self, name: str, attempts: Sequence[str], critic: str) -> list[CriticisedAttempt]:
        """Ended attempts (whole ids) with their critiques, in order.

        name: of these attempts in the run; critiques stored under it are read, not sampled. critic:
        a policy, `base`, or the name of the critic's own engine. Raises StopRequested, and
        HoustonError where the engine refuses.
        """
        file = self._folder / f"{name}.json"
        if file.is_file():
            return msgspec.json.decode(file.read_bytes(), type=list[CriticisedAttempt])
        with Reader(self._loaded.home) as reader:
            read = [read_attempt(reader, rollout) for rollout in attempts]
            own = critic == self._recipe.critic_engine
            policy = read_sampled_policy(reader, "" if own else critic)
        criticised = self._sample_critiques(read, policy, critic) if read else []
        self._folder.mkdir(exist_ok=True)
        atomic_file.write_atomically(file, msgspec.json.encode(criticised))
        return criticised

    def _sample_critiques(
        self, attempts: Sequence[Attempt], policy: SampledPolicy, critic: str
    ) -> list[CriticisedAttempt]:
        count = self._recipe.group_size
        prompts: list[CritiquePrompt] = []
        sample_requests: list[SampleRequest] = []
        templates: list[CritiqueTemplate] = []

        def requests(client: JudgeClient) -> Sequence[SampleRequest]:
            own = self._recipe.critic_template
            dialect = client.dialect.name if client.dialect else ""
            template = load_critique_template(Path(own) if own else None, dialect)
            templates.append(template)
            for attempt in attempts:
                prompt = critique_prompt(attempt, template, client.tokens, client.token_budget)
                prompts.append(prompt)
                sample_requests.append(critique_request(client, prompt, policy.name, policy.hash))
            return [request for request in sample_requests for _ in range(count)]

        answers = self._sampler.sample(policy, requests)
        form = templates[-1].answer
        return [
            CriticisedAttempt(
                rollout=attempt.trace.rollout,
                score=unit_score(attempt.score),
                critic=critic,
                prompt=list(request.prompt_ids or ()),
                level=prompt.level,
                critiques=tuple(_sampled_critique(answer, form) for answer in own),
                cached_tokens=sum(answer.usage.cached_tokens or 0 for answer in own),
                prompt_tokens=sum(answer.usage.prompt_tokens or 0 for answer in own),
            )
            for attempt, prompt, request, own in zip(
                attempts, prompts, sample_requests, _chunks(answers, count), strict=True
            )
        ]


def _chunks(answers: Sequence[EngineSample], count: int) -> list[Sequence[EngineSample]]:
    return [answers[start : start + count] for start in range(0, len(answers), count)]


def _sampled_critique(answer: EngineSample, form: AnswerForm) -> SampledCritique:
    critique = parse_critique(answer.text, form)
    cut = answer.finish_reason != "stop"
    return SampledCritique(
        token_ids=list(answer.token_ids or ()),
        logprobs=drawn_logprobs(answer),
        text="" if cut else critique.text,
        problem=CUT if cut else critique.problem,
        reason=critique.reason,
    )
