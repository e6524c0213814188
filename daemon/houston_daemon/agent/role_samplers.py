"""What each role of a rollout samples with: engine, settings, and the context in its own form.

The policy's sampler exists from the start; one with settings of its own (`[agent.summary]` of the
task) is made when it is first needed. An engine of its own has its own dialect, tokenizer and
window: the context is rendered anew for it from the same messages, and its samples are not
ancestors of the policy's prompts. The prompts of a role are made where it is used
(`context_compression`).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from houston_daemon.agent.sample_requests import PolicySampler, SampleRequestBuilder
from houston_daemon.engines.engine_protocol import Engine
from houston_daemon.prompts.context_ledger import Context, PromptAnchor
from houston_daemon.prompts.prompt_renderer import PromptRenderer, head_messages
from houston_daemon.prompts.token_limits import TokenLimits
from houston_shared.records import ContextHead
from houston_shared.sample_roles import SampleRole
from houston_shared.task import SamplingSettings, Task

OpenRoleEngine = Callable[[SampleRole], Awaitable[tuple[Engine, Mapping[str, Any]]]]
"""The engine of a role that has one of its own, once it answers, and its settings."""


@dataclass(frozen=True, slots=True)
class RoleSampler:
    """What one role samples with."""

    sampler: PolicySampler
    renderer: PromptRenderer
    limits: TokenLimits
    request_builder: SampleRequestBuilder
    most_tokens: int = 0
    """Of an answer, as the task says; 0: as many as there is room for."""
    own_head: ContextHead | None = None
    """The head in the dialect of its own engine; None where it has the policy's engine."""
    tokenizer: str = ""
    """See `SampleBody.tokenizer`."""

    def render_context(self, context: Context) -> Context:
        """A context of the policy in the form that this role's engine reads."""
        head = self.own_head
        if head is None:
            return context
        size = self.renderer.head_size(head)
        role_context = Context(head_messages(head), head.token_ids, size, PromptAnchor())
        for entry in context.entries:
            role_context.add(self.renderer.rerender(entry))
        return role_context

    def room(self, prompt: int, wanted: int) -> int:
        """Most tokens of an answer after `prompt` tokens; `wanted` at most."""
        return self.limits.answer_room(prompt, min(wanted, self.most_tokens or wanted))


class RoleSamplers:
    """Samplers by role, each made when it is first needed."""

    def __init__(
        self,
        policy: RoleSampler,
        task: Task,
        make_own: Callable[[SampleRole], Awaitable[RoleSampler]],
        own_engines: Mapping[str, object],
    ) -> None:
        """make_own: for a role in `own_engines`, what it samples with before its other settings."""
        self._task = task
        self._make_own = make_own
        self._own_engines = own_engines
        self._made: dict[SampleRole, RoleSampler] = {"policy": policy}

    def has_own_engine(self, role: SampleRole) -> bool:
        """Whether it has its own engine: its samples are then not the policy's."""
        return role in self._own_engines

    async def get(self, role: SampleRole) -> RoleSampler:
        """What a role samples with. Raises WorkerExit, and HoustonError where its engine does not
        fit."""
        if role not in self._made:
            own = self.has_own_engine(role)
            base = await self._make_own(role) if own else self._made["policy"]
            self._made[role] = self._with_settings(role, base)
        return self._made[role]

    def _with_settings(self, role: SampleRole, base: RoleSampler) -> RoleSampler:
        tokens = self._task.role(role).answer_tokens
        builder = replace(
            base.request_builder,
            sampling=role_sampling(self._task, role),
            is_max_tokens_set=tokens > 0,
            role=role,
        )
        return replace(base, request_builder=builder, most_tokens=tokens)


def role_sampling(task: Task, role: SampleRole) -> SamplingSettings:
    """A role's sampling settings: its own values over `[sampling]`."""
    own, sampling = task.role(role), task.sampling
    return SamplingSettings(
        temperature=sampling.temperature if own.temperature is None else own.temperature,
        top_p=sampling.top_p if own.top_p is None else own.top_p,
        guided=sampling.guided,
        reasoning=sampling.reasoning,
        thoughts=sampling.thoughts,
    )
