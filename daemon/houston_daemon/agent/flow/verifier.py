"""The verifier of a flow: after a step it judges whether the findings answer the question.

It reads the context with the step's results and a request after them, so an engine that has the
planner's prompt in its cache reads only what is new. With an engine of its own, the same is
rendered anew for it. Its samples are stored like those of summaries and do not enter the planner's
context. An answer that cannot be read counts as no, with a note that says so: the flow continues.
"""

import json
import logging
from collections.abc import Sequence

from msgspec.structs import replace

from houston_daemon.agent.purification import StepAttempt
from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.role_samplers import RoleSampler, RoleSamplers
from houston_daemon.agent.sample_requests import build_ledger_entry, replace_surrogates
from houston_daemon.engines.engine_protocol import ContextOverflow, SampleRequest
from houston_daemon.prompts.answer_grammar import verdict_schema
from houston_daemon.prompts.context_ledger import Context, link_prompt
from houston_daemon.prompts.token_limits import MIN_ANSWER_TOKENS
from houston_shared import wire
from houston_shared.faults import point
from houston_shared.records import ObservationBody, Verification

log = logging.getLogger(__name__)
VERIFIER_PART = "verifier.1"
VERDICT_TOKENS = 160
"""Room for an answer: a word and a sentence."""
VERIFIER_REQUEST = (
    "[Do not plan now: verify. Is what was found above enough to answer the question of the task "
    'correctly? Answer with one JSON object and nothing else: {"answered": true or false, '
    '"reason": "…"}, the reason in one sentence. Say true only where the answer itself was found '
    "or computed.]"
)


def parse_verification(text: str, finish_reason: str = "stop") -> Verification:
    """The verifier's verdict; an answer that is not the requested object is a no.

    finish_reason: that of the sample. Never raises.
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        answer = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        answer = None
    if finish_reason == "interrupted":
        return Verification(unreadable="a person interrupted it")
    if not isinstance(answer, dict):
        return Verification(unreadable="it is no JSON object")
    if not isinstance(answer.get("answered"), bool):
        return Verification(unreadable="`answered` is neither true nor false")
    reason = answer.get("reason", "")
    return Verification(
        answer["answered"], " ".join(reason.split()) if isinstance(reason, str) else ""
    )


class Verifier:
    """Samples its verdicts."""

    def __init__(self, line: RecorderClient, roles: RoleSamplers) -> None:
        self._line = line
        self._roles = roles

    async def ask(
        self, opened: StepAttempt, context: Context, stored: Sequence[wire.SideSample]
    ) -> Verification:
        """Whether the question is answered after a step. Raises WorkerExit.

        context: the step's context, without the step. stored: the step's other samples in the
        journal: a verifier that has answered is not asked again.
        """
        for side in stored:
            if side.part == VERIFIER_PART:
                return parse_verification(side.sample.thought, side.sample.finish_reason)
        role = await self._roles.get("verifier")
        request = self._request(role, opened, role.render_context(context))
        if request.max_tokens < MIN_ANSWER_TOKENS:
            return Verification(unreadable="the engine's window has no room for it")
        try:
            return await self._sample(role, opened, context, request)
        except ContextOverflow as problem:
            log.warning("the verifier is not asked: %s", problem)
            return Verification(unreadable="the engine's window has no room for it")

    async def _sample(
        self, role: RoleSampler, opened: StepAttempt, context: Context, request: SampleRequest
    ) -> Verification:
        point("worker.verifier.before")
        sampled = await role.sampler.sample(request)
        anchor = role.render_context(context).anchor
        link = link_prompt(
            anchor,
            request.prompt_ids,
            fresh=role.own_head is not None,
            stripped=context.last_is_stripped,
        )
        text = replace_surrogates(sampled.text or sampled.thought or "")
        verification = parse_verification(text, sampled.finish_reason)
        entry = build_ledger_entry(
            request,
            sampled,
            link,
            role.sampler.engine.name,
            thought=text,
            malformed=verification.unreadable,
            tokenizer=role.tokenizer,
        )
        await self._line.store(
            wire.StoreSample, step=opened.step, attempt=1, part=VERIFIER_PART, sample=entry
        )
        point("worker.verifier.after")
        return verification

    def _request(
        self, role: RoleSampler, opened: StepAttempt, role_context: Context
    ) -> SampleRequest:
        """The context, the step with its results, and the request as the end of its observation."""
        own = role.own_head is not None
        sample = replace(opened.sample, token_ids=None) if own else opened.sample
        observed = ObservationBody(tail=VERIFIER_REQUEST)
        entry = role.renderer.render_step(opened.step, sample, opened.results, observed, ())
        ids = role_context.prompt_ids
        size = role_context.size + entry.size
        return role.request_builder.request(
            None if ids is None else (*ids, *entry.ids),
            (*role_context.messages, *entry.messages),
            step=opened.step,
            max_tokens=role.room(size, VERDICT_TOKENS),
            role="verifier",
            grammar=verdict_schema(VERDICT_TOKENS),
        )
