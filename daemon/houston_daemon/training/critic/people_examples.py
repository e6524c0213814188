"""Reads from the journal what people said to agents, as examples for a critic.

An example is a rollout as it stood when a person spoke, their message, and its gain: from the
scores before and after, or else from process rewards. If a person rejected or reworded a critic's
draft, draft and message form a pair, in which the person's words are preferred. It imports no torch
and makes no tokens.
"""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from houston_daemon.review.critic.critique_prompt import Attempt
from houston_daemon.review.rollout_trace import RolloutTrace, TextsUnavailable, read_trace
from houston_shared.critic_gain import critique_gain, unit_score
from houston_shared.errors import HoustonError
from houston_shared.records import Guidance
from houston_shared.store import (
    annotation_queries,
    draft_queries,
    process_reward_queries,
    rollout_queries,
)
from houston_shared.store.draft_queries import CriticDraft
from houston_shared.store.event_bodies import AUTOPILOT
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.store_reader import Reader

REWARD_WINDOW = 5
"""Steps before and after a message whose process rewards are compared."""
ANSWER_STEPS = 8
"""Steps after a draft within which words are about the same as it."""


class PeopleExample(NamedTuple):
    """One message of a person."""

    rollout: str
    attempt: Attempt
    """The rollout as it stood before they spoke."""
    said: str
    author: str
    critic: str
    """Whose draft it began as; empty for their own words."""
    gain: float | None
    """None where nothing scored the rollout since."""
    reason: str = ""
    """Of the draft."""


class DraftPair(NamedTuple):
    """A draft that a person did not send, and what they said instead."""

    rollout: str
    draft: str
    """Its id."""
    attempt: Attempt
    """As the critic read it."""
    drafted: str
    preferred: str


class PeopleExamples(NamedTuple):
    """All that people teach a critic."""

    said: list[PeopleExample]
    pairs: list[DraftPair]
    unpaired: int
    """Drafts that were turned down without another word soon after: nothing is preferred to
    them."""
    gone: int
    """Rollouts whose texts are gone."""


def rollouts_with_words(reader: Reader) -> list[str]:
    """Every rollout to which a person said something, in the order of starts."""

    def plan() -> ReadPlan[list[str]]:
        rows = yield RunSql(
            "SELECT id FROM rollouts r WHERE EXISTS (SELECT 1 FROM guidance g WHERE"
            " g.rollout = r.id AND g.state = 'delivered') ORDER BY spec_seq"
        )
        return [rollout for (rollout,) in rows]

    return reader.run(plan())


def read_people_examples(reader: Reader, rollouts: Sequence[str]) -> PeopleExamples:
    """Of some rollouts (whole ids). Rollouts whose texts are gone are counted and left out."""
    examples = PeopleExamples([], [], 0, 0)
    for rollout in rollouts:
        try:
            trace = read_trace(reader, rollout)
        except TextsUnavailable:
            examples = examples._replace(gone=examples.gone + 1)
            continue
        messages = [
            message
            for message in reader.run(annotation_queries.list_guidance(rollout))
            if message.state == "delivered"
        ]
        drafts = reader.run(draft_queries.list_drafts(rollout))
        examples.said.extend(_guidance_examples(reader, trace, messages, drafts))
        pairs = list(_pairs(trace, messages, drafts))
        examples.pairs.extend(pairs)
        paired = {pair.draft for pair in pairs}
        lost = [draft for draft in drafts if draft.state == "rejected" and draft.id not in paired]
        examples = examples._replace(unpaired=examples.unpaired + len(lost))
    return examples


def _guidance_examples(
    reader: Reader, trace: RolloutTrace, messages: Sequence[Guidance], drafts: Sequence[CriticDraft]
) -> Iterator[PeopleExample]:
    """What people said; not what a critic said by itself."""
    by_guidance = {draft.guidance: draft for draft in drafts if draft.guidance}
    rewards = {
        reward.step: reward.score
        for reward in reader.run(process_reward_queries.list_step_rewards(trace.rollout))
    }
    for message in messages:
        draft = by_guidance.get(message.id)
        if message.step is None or (draft is not None and draft.by == AUTOPILOT):
            continue
        last = draft.step if draft is not None else message.step - 1
        attempt = attempt_until(trace, last)
        if attempt.trace.steps:
            scores = reader.run(rollout_queries.scores_around(trace.rollout, message.step))
            yield PeopleExample(
                rollout=trace.rollout,
                attempt=attempt,
                said=message.text,
                author=message.author,
                critic=message.critic,
                gain=gain_of_words(*scores, rewards, message.step),
                reason=draft.reason if draft is not None else "",
            )


def _pairs(
    trace: RolloutTrace, messages: Sequence[Guidance], drafts: Sequence[CriticDraft]
) -> Iterator[DraftPair]:
    by_id = {message.id: message for message in messages}
    for draft, following in zip_longest(drafts, drafts[1:]):
        preferred = ""
        if draft.state == "edited" and draft.guidance in by_id:
            preferred = by_id[draft.guidance].text
        elif draft.state == "rejected":
            preferred = _preferred_text(messages, draft, following.at if following else None)
        if preferred and preferred.strip() != draft.text.strip():
            attempt = attempt_until(trace, draft.step)
            if attempt.trace.steps:
                yield DraftPair(trace.rollout, draft.id, attempt, draft.text, preferred)


def _preferred_text(
    messages: Sequence[Guidance], draft: CriticDraft, next_draft_at: str | None
) -> str:
    """The first of a person's own words that may answer a draft; empty where there are none."""
    for message in messages:
        is_between = draft.at < message.queued_at <= (next_draft_at or message.queued_at)
        is_soon = message.step is not None and message.step <= draft.step + ANSWER_STEPS
        if is_between and is_soon and not message.critic:
            return message.text
    return ""


def attempt_until(trace: RolloutTrace, last: int) -> Attempt:
    """A rollout as it stood after step `last`: with the score that it had then."""
    steps = tuple(step for step in trace.steps if step.step <= last)
    scores = [scored.score for scored in trace.scores if scored.step <= last]
    then = dataclasses.replace(trace, steps=steps, forks=(), ended=False)
    return Attempt(then, scores[-1] if scores else None)


def gain_of_words(
    before: float | None, after: float | None, rewards: Mapping[int, float], heard: int
) -> float | None:
    """The gain of guidance that was heard at step `heard`. before, after: scores, 0 to 100.

    Without a later score, the gain is from the mean process reward of the last steps before the
    guidance to that of the first steps after it. None where either side has none.
    """
    if after is not None:
        return critique_gain(unit_score(before), unit_score(after))
    earlier = [rewards[step] for step in sorted(rewards) if step <= heard][-REWARD_WINDOW:]
    later = [rewards[step] for step in sorted(rewards) if step > heard][:REWARD_WINDOW]
    if not earlier or not later:
        return None
    return critique_gain(statistics.fmean(earlier), statistics.fmean(later))


def require_examples(examples: PeopleExamples) -> None:
    """Raise HoustonError where people teach nothing."""
    if not examples.said and not examples.pairs:
        raise HoustonError(
            "No person said anything to these rollouts after their first step.",
            "Nothing was trained.",
            "houston guide R TEXT, while rollouts run",
        )
