"""States of recorded rollouts at which new decisions are sampled: lists them and reads the prompt
of each one.

A state is a step of a rollout as the policy or planner was asked to decide it: the ledger's prompt,
with the task and all earlier decisions. No environment is replayed. It samples nothing.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from houston_daemon.agent.flow.flow_agent import FlowAgent
from houston_daemon.agent.flow.task_memory import TaskMemory
from houston_daemon.agent.sample_requests import parse_action
from houston_daemon.engines.engine_protocol import EngineSample, SampleRequest
from houston_daemon.prompts.decision_text import (
    Decision,
    decision_of,
    decision_of_action,
    decision_text,
)
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.suites.suite_results import kept_runs, rollouts_of_run
from houston_daemon.training.prm.recorded_decisions import RecordedDecision
from houston_daemon.training.rows.rendered_rows import tools_of_head
from houston_daemon.training.rows.rollout_plan import may_reason
from houston_daemon.training.rows.row_builder import is_same_file
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared.errors import ConfigurationError
from houston_shared.records import ContextHead, RolloutSpec, SampleBody, StepRecord
from houston_shared.sample_roles import SAMPLE_ROLES, SampleRole
from houston_shared.store import rollout_queries, step_context, step_queries
from houston_shared.store.store_reader import Reader
from houston_shared.task import parse_task_record


class StateKey(NamedTuple):
    """Which state."""

    rollout: str
    step: int


class RecordedState(NamedTuple):
    """A state at which decisions can be sampled."""

    key: StateKey
    prompt: list[int]
    """Ids of the whole prompt."""
    asked: SampleBody
    """What was sampled there; its parameters say how long an answer may be, and what ends it."""
    head: ContextHead
    reasoning: bool
    """Whether the model may write reasoning tokens."""
    earlier: tuple[Decision, ...]
    flow: FlowAgent | None = None
    """As it was before the step, where a flow decides; None where whatever can be read is taken."""

    def request(self, policy: str, policy_hash: str, role: SampleRole) -> SampleRequest:
        """A request for one decision, drawn as the policy says: at temperature 1, no grammar."""
        sent = self.asked.parameters
        return SampleRequest(
            prompt_ids=self.prompt,
            messages=(),
            tools=(),
            max_tokens=int(sent["max_tokens"]),
            stop_token_ids=tuple(sent.get("stop_token_ids", ())),
            temperature=1.0,
            top_p=1.0,
            policy=policy,
            policy_hash=policy_hash,
            cache_salt=policy,
            role=role,
            step=self.key.step,
        )

    def decision(self, sampled: EngineSample) -> RecordedDecision:
        """What an answer decides here, as it is scored."""
        tools = tools_of_head(self.head)
        dialect = choose_dialect(self.head.dialect, self.reasoning)
        action = parse_action(sampled, self.key.step, dialect, tools)
        if self.flow is not None:
            action = self.flow.check(action, self.key.step)
        decision = decision_of_action(action)
        text = decision_text(self.head.task, self.earlier, decision)
        return RecordedDecision(self.key.step, text, decision.sound)


def list_states(
    reader: Reader, sources: Sequence[str], suites: Path, tokenizer: Path
) -> list[StateKey]:
    """Every state of some rollouts at which an acting role was asked for token ids, in order.

    sources: ids of rollouts, and names of runs of `houston suite run`. suites: the folder of those.
    tokenizer: file of the engine that samples there. Raises HoustonError for a name that is
    neither, and ConfigurationError where there is no state, or one in another tokenizer's ids.
    """
    rollouts = [
        rollout for source in sources for rollout in rollouts_of_source(reader, source, suites)
    ]
    states: list[StateKey] = []
    for rollout in dict.fromkeys(rollouts):
        records = [
            record
            for record in reader.run(step_queries.read_steps(rollout))
            if record.observation is not None
            and record.sample.token_ids is not None
            and SAMPLE_ROLES[record.sample.role].acts
        ]
        _require_tokenizer(reader, rollout, records, tokenizer)
        states += [StateKey(rollout, record.step) for record in records]
    if not states:
        raise ConfigurationError(
            f"No step of {', '.join(sources)} was sampled by an engine that takes token ids.",
            NOTHING_TRAINED_MESSAGE,
            "Name rollouts that the trained engine sampled.",
        )
    return states


def _require_tokenizer(
    reader: Reader, rollout: str, asked: Sequence[StepRecord], tokenizer: Path
) -> None:
    """Raise ConfigurationError for ids that are not of that tokenizer: to the model that is trained
    they would be other words."""
    head = reader.run(
        rollout_queries.read_rollout_head(reader.run(rollout_queries.find_rollout(rollout)))
    )
    own = head.tokenizer if head else ""
    for file in dict.fromkeys(record.sample.tokenizer or own for record in asked):
        if not is_same_file(tokenizer, Path(file)):
            raise ConfigurationError(
                f"The steps of {rollout} are ids of the tokenizer {file or '(unknown)'}, which is"
                f" not that of the engine that is trained: {tokenizer}.",
                NOTHING_TRAINED_MESSAGE,
                "Name rollouts of that engine: houston suite run SUITE --split train --engine E",
            )


def rollouts_of_source(reader: Reader, source: str, suites: Path) -> list[str]:
    """The rollouts of a suite's run, `NAME` or `SUITE/NAME`, or the one of this id. Raises
    HoustonError as `rollouts_of_run`, and for an id that there is not."""
    if kept_runs(suites, source):
        return rollouts_of_run(suites, source)
    return [reader.run(rollout_queries.resolve_rollout_id(source))]


def read_state(reader: Reader, key: StateKey) -> RecordedState:
    """One state with its prompt. Raises HoustonError for a damaged or erased ledger."""
    records = reader.run(step_queries.read_steps(key.rollout, last=key.step))
    row = reader.run(rollout_queries.find_rollout(key.rollout))
    head = reader.run(rollout_queries.read_rollout_head(row))
    last_record = records[-1]
    prompt = reader.run(step_context.read_prompt_ids(last_record.sample_seq))
    assert head is not None and prompt is not None and last_record.step == key.step
    earlier = tuple(decision_of(record) for record in records[:-1])
    spec = reader.run(rollout_queries.read_rollout_spec(row))
    flow = _flow_before(spec, head, records[:-1])
    return RecordedState(key, prompt, last_record.sample, head, may_reason(spec), earlier, flow)


def _flow_before(
    spec: RolloutSpec, head: ContextHead, records: Sequence[StepRecord]
) -> FlowAgent | None:
    """The agent of a flow after its first steps; None for another agent."""
    task = parse_task_record(spec.task)
    if task.agent_kind != "flow":
        return None
    tools = list(tools_of_head(head).values())
    flow = FlowAgent(task.budget, tools, None, TaskMemory(), head.task)
    for record in records:
        if record.observation is not None:
            flow.note_closed(record, record.observation, record.guidance)
    return flow


def draw_states(states: Sequence[StateKey], seed: int, update: int, count: int) -> list[StateKey]:
    """The states of one update, all different, drawn by the run's seed."""
    return random.Random(f"{seed} {update} states").sample(states, min(count, len(states)))
