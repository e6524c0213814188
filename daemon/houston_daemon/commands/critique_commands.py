"""`houston critique`: what a critic would have an agent do differently, given a rollout and its
score.

It asks an engine and prints; with `--refine` each critique is tried in a separate rollout. Nothing
is sent to a running agent. Prompts, answers and refinements are in the package `review.critic`.
"""

import argparse
import asyncio
import contextlib
import secrets
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.agent.sample_requests import count_tokens, with_cost
from houston_daemon.engines.engine_protocol import Engine, EngineSample, SampleRequest
from houston_daemon.review.critic.critique_prompt import (
    CRITIQUE_FORM,
    DETAIL_LEVELS,
    FULL_SCORE,
    NOTHING_CRITICISED,
    Attempt,
    Critique,
    CritiqueTemplate,
    critique_prompt,
    critique_request,
    load_critique_template,
    parse_critique,
    read_attempt,
)
from houston_daemon.review.critic.refinements import RefinementText, refinement_specs, require_ended
from houston_daemon.review.judge.judge_engine import (
    JudgeEnginePlace,
    choose_judge_place,
    open_judge_client,
)
from houston_daemon.review.verdict_updates import record_review_cost
from houston_daemon.service.rollout_end_wait import wait_until_ended
from houston_daemon.training.rl.engine_sampler import SampledPolicy, read_sampled_policy
from houston_shared import command_output, secret_redaction
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import require_daemon, send_with_retry
from houston_shared.control_messages import StartRollouts, StoreDraft, StoreReviewCost
from houston_shared.critic_gain import critique_gain, unit_score
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.records import ENDED_STATES
from houston_shared.store import rollout_queries, store_reader
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import pluralize


def add_critique_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, which critic, how many critiques, its words."""
    parser.add_argument("rollout", nargs="?", metavar="R", help="rollout, or the start of its id")
    parser.add_argument(
        "-n", dest="count", type=whole_number(1), default=1, metavar="N",
        help="independent critiques (1)",
    )  # fmt: skip
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        default="",
        help="engine of the critic; default: [review] critic_engine, then [judge] engine",
    )
    parser.add_argument(
        "--policy",
        default="",
        metavar="POLICY",
        help="policy of the critic; default: [review] critic",
    )
    parser.add_argument(
        "--template", type=Path, metavar="FILE", help="the critic's prompt template"
    )
    parser.add_argument(
        "--print-template", action="store_true", help="print the packaged template, to edit it"
    )
    parser.add_argument(
        "--print-prompt", action="store_true", help="print what the critic would be shown"
    )
    use = parser.add_mutually_exclusive_group()
    use.add_argument(
        "--refine",
        action="store_true",
        help="try each critique in a new rollout of the same task and seed that receives it",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="with --refine: wait until they end, and show their gains",
    )
    use.add_argument(
        "--draft",
        action="store_true",
        help="for a rollout that has not ended: store it, for somebody to send, edit or turn down",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_critique(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Ask and print; exit code 1 where no answer could be used."""
    secret_redaction.install_secrets(loaded.config)
    if arguments.print_template:
        command_output.print_line(CRITIQUE_FORM.read(None).rstrip("\n"))
        return int(ExitCode.DONE)
    attempt = _read(arguments, loaded)
    if (attempt.score or 0.0) >= FULL_SCORE and not arguments.print_prompt:
        return _print_full_score(arguments, attempt)
    if (arguments.refine or arguments.draft) and not arguments.print_prompt:
        require_daemon(loaded.home)  # before a critic is asked for nothing
    review = loaded.config.review
    policy = _critic_policy(loaded, arguments.policy or review.critic)
    with choose_judge_place(
        loaded,
        command_output.print_note,
        *(arguments.engine, review.critic_engine),
        effect=NOTHING_CRITICISED,
    ) as place:
        place.settings |= policy.settings
        return asyncio.run(_ask(arguments, loaded, place, policy, attempt))


def _critic_policy(loaded: LoadedConfiguration, name: str) -> SampledPolicy:
    """As the engine's client needs it. Raises HoustonError for one that there is not."""
    if not name or not store_reader.has_database(loaded.home):
        return SampledPolicy("", "", {})
    with contextlib.closing(Reader(loaded.home)) as reader:
        return read_sampled_policy(reader, name)


def _read(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> Attempt:
    if not arguments.rollout:
        raise UsageError(
            "No rollout is named.", NOTHING_CRITICISED, "houston rollout list; houston critique R"
        )
    store_reader.require_database(loaded.home)
    with contextlib.closing(Reader(loaded.home)) as reader:
        rollout = reader.run(rollout_queries.resolve_rollout_id(arguments.rollout))
        if arguments.refine:
            reader.run(require_ended(rollout))
        if arguments.draft:
            reader.run(_require_going_on(rollout))
        attempt = read_attempt(reader, rollout)
    if not attempt.trace.steps:
        raise HoustonError(
            f"No step of {attempt.trace.rollout} has closed yet.",
            NOTHING_CRITICISED,
            f"houston tail {attempt.trace.rollout} -f",
        )
    return attempt


def _require_going_on(rollout: str) -> ReadPlan[None]:
    """Raise HoustonError for a rollout whose agent would hear nothing more."""
    row = yield from rollout_queries.find_rollout(rollout)
    if row.state in ENDED_STATES:
        raise HoustonError(
            f"{rollout} has ended ({row.state}); nobody would hear what a critic drafts.",
            NOTHING_CRITICISED,
            f"houston critique {rollout} --refine",
        )


def _print_full_score(arguments: argparse.Namespace, attempt: Attempt) -> int:
    rollout = attempt.trace.rollout
    if arguments.json:
        command_output.print_json_line(_as_json(attempt, None, [], [], []))
    else:
        command_output.print_line(f"{rollout} has the full score: there is nothing to criticise.")
    return int(ExitCode.DONE)


async def _ask(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    place: JudgeEnginePlace,
    policy: SampledPolicy,
    attempt: Attempt,
) -> int:
    ask = not arguments.print_prompt
    async with open_judge_client(place, policy.name, loaded.config.judge.window, ask) as client:
        dialect = client.dialect.name if client.dialect else ""
        template = load_critique_template(arguments.template, dialect)
        prompt = critique_prompt(attempt, template, client.tokens, client.token_budget)
        if arguments.print_prompt:
            command_output.print_line(f"{prompt.system}\n\n{prompt.message}")
            return int(ExitCode.DONE)
        if prompt.level:
            level = DETAIL_LEVELS[prompt.level]
            extent = "all steps" if level.last is None else f"the last {level.last} steps"
            command_output.print_note(
                f"the attempt is long: {extent} shown, each with at most {level.step_tokens} tokens"
            )
        request = critique_request(client, prompt, policy.name, policy.hash)
        answers = await _sample_critiques(client.engine, request, arguments.count)
        costs = [with_cost(request, each, client.price) for each in answers if client.price]
        await asyncio.to_thread(
            _record_cost, loaded, attempt, policy.name or place.name, request, costs or answers
        )
    critiques = [parse_critique(answer.text, template.answer) for answer in answers]
    critic, tried = policy.name or place.name, list[Tried]()
    if arguments.refine:
        tried = await asyncio.to_thread(_refine, loaded, attempt, critiques, critic, arguments.wait)
    if arguments.draft:
        await asyncio.to_thread(_store_drafts, loaded, attempt, critiques, critic, template.digest)
    return _print(arguments, attempt, template, answers, critiques, tried)


async def _sample_critiques(
    engine: Engine, request: SampleRequest, count: int
) -> list[EngineSample]:
    """The answers that came; a note says how many did not. Raises HoustonError where none did."""
    outcomes = await asyncio.gather(
        *(engine.sample(request, asyncio.Event()) for _ in range(count)), return_exceptions=True
    )
    answers = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    problems = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for problem in problems:
        if not (answers and isinstance(problem, HoustonError)):
            raise problem
    if problems:
        command_output.print_note(f"{len(problems)} of {count} were not answered: {problems[0]}")
    return answers


def _record_cost(
    loaded: LoadedConfiguration,
    attempt: Attempt,
    critic: str,
    request: SampleRequest,
    answers: Sequence[EngineSample],
) -> None:
    """Add what the critic took to the rollout that it read."""
    used = [count_tokens(request, answer) for answer in answers]
    costs = [answer.usage.cost for answer in answers if answer.usage.cost is not None]
    message = StoreReviewCost(
        request=uuid.uuid4().hex,
        rollout=attempt.trace.rollout,
        reviewer=f"critic:{critic}",
        requests=len(answers),
        prompt_tokens=sum(each.prompt for each in used),
        sampled_tokens=sum(each.sampled for each in used),
        reckoned=any(each.reckoned for each in used),
        cost=sum(costs) if costs else None,
    )
    record_review_cost(loaded.home, message, command_output.print_note)


def _store_drafts(
    loaded: LoadedConfiguration,
    attempt: Attempt,
    critiques: list[Critique],
    critic: str,
    template: str,
) -> None:
    """Have the daemon keep what is usable, for people. Raises HoustonError."""
    for critique in critiques:
        if critique.text:
            message = StoreDraft(
                id=f"d-{secrets.token_hex(6)}",
                rollout=attempt.trace.rollout,
                step=attempt.trace.steps[-1].step,
                critic=critic,
                text=critique.text,
                reason=critique.reason,
                template=template,
            )
            look = f"houston guidance {message.rollout} --drafts"
            send_with_retry(loaded.home, message, "It may have been stored.", look)


class Tried(NamedTuple):
    """A critique that was tried."""

    rollout: str
    """The refinement."""
    critique: str
    state: str
    score: float | None
    """0 to 100; None where nothing was scored, or it has not ended."""
    gain: float | None
    """`critic_gain.critique_gain`; None before it has ended."""


def _refine(
    loaded: LoadedConfiguration,
    attempt: Attempt,
    critiques: list[Critique],
    critic: str,
    wait: bool,
) -> list[Tried]:
    """Start a refinement for each usable critique. Raises HoustonError."""
    texts = [critique.text for critique in critiques if critique.text]
    if not texts:
        return []
    rollout = attempt.trace.rollout
    critiqued_texts = [RefinementText(text, critic) for text in texts]
    with contextlib.closing(Reader(loaded.home)) as reader:
        specs = reader.run(refinement_specs(rollout, critiqued_texts))
    answer = send_with_retry(
        loaded.home,
        StartRollouts(request=uuid.uuid4().hex, specs=specs),
        "They may have been queued.",
        f"houston rollout show {rollout}",
    )
    pairs = list(zip(answer.rollouts, texts, strict=True))
    if not wait:
        return [Tried(started, text, "queued", None, None) for started, text in pairs]
    rows = wait_until_ended(loaded.home, answer.rollouts, lambda rows: None)
    before = unit_score(attempt.score)
    return [
        Tried(
            started,
            text,
            rows[started].state,
            rows[started].last_score,
            round(critique_gain(before, unit_score(rows[started].last_score)), 4)
            if rows[started].state == "finished"
            else None,
        )
        for started, text in pairs
    ]


def _print(
    arguments: argparse.Namespace,
    attempt: Attempt,
    template: CritiqueTemplate,
    answers: list[EngineSample],
    critiques: list[Critique],
    tried: list[Tried],
) -> int:
    usable = [critique for critique in critiques if not critique.problem]
    if arguments.json:
        command_output.print_json_line(_as_json(attempt, template, answers, critiques, tried))
        return int(ExitCode.DONE if usable else ExitCode.FAILED)
    score = "nothing was scored" if attempt.score is None else f"score {attempt.score:g}"
    command_output.print_line(f"{attempt.trace.rollout}, {score}")
    for critique in usable:
        command_output.print_line(f"- {critique.text or 'none: nothing to change'}")
        if critique.reason:
            command_output.print_note(f"  why: {critique.reason}")
    if unusable := [critique.problem for critique in critiques if critique.problem]:
        command_output.print_note(
            f"{pluralize(len(unusable), 'unusable answer')}: {'; '.join(dict.fromkeys(unusable))}"
        )
    for each in tried:
        command_output.print_line(_tried_line(each))
    command_output.print_note(f"next: {_next_command(arguments, attempt, bool(tried))}")
    return int(ExitCode.DONE if usable else ExitCode.FAILED)


def _next_command(arguments: argparse.Namespace, attempt: Attempt, tried: bool) -> str:
    rollout = attempt.trace.rollout
    if arguments.draft:
        return f"houston guidance {rollout} --drafts"
    if not attempt.trace.ended:
        return f"houston guide {rollout} TEXT"
    return f"houston rollout show {rollout}" if tried else f"houston critique {rollout} --refine"


def _tried_line(tried: Tried) -> str:
    if tried.gain is None:
        return f"{tried.rollout} {tried.state}: {tried.critique}"
    score = "nothing was scored" if tried.score is None else f"score {tried.score:g}"
    return f"{tried.rollout} {score}, gain {tried.gain:+.2f}: {tried.critique}"


def _as_json(
    attempt: Attempt,
    template: CritiqueTemplate | None,
    answers: list[EngineSample],
    critiques: list[Critique],
    tried: list[Tried],
) -> dict[str, Any]:
    return {
        "rollout": attempt.trace.rollout,
        "score": attempt.score,
        "template": template.digest if template else None,
        "critiques": [
            critique._asdict() | {"answer": answer.text}
            for critique, answer in zip(critiques, answers, strict=True)
        ],
        "refinements": [each._asdict() for each in tried],
        "unusable": sum(bool(critique.problem) for critique in critiques),
    }
