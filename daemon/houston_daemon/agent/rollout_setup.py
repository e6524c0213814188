"""From the recorder's welcome to a loop that can run: engine, environment, head and context.

Only this module knows how the parts of a rollout fit together. It waits for engines and hosts that
are away, pauses where only a person can help, and stores the head of a new rollout.
"""

import asyncio
import dataclasses
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.agent.agent_kind import AgentKind, ReactAgent
from houston_daemon.agent.agent_loop import AgentLoop
from houston_daemon.agent.call_execution import CallExecutor
from houston_daemon.agent.context_compression import ContextForker
from houston_daemon.agent.engine_cache import EngineCache
from houston_daemon.agent.flow.episode_memory import (
    EpisodeMemory,
    EpisodeStore,
    check_packages,
)
from houston_daemon.agent.flow.flow_agent import FlowAgent
from houston_daemon.agent.flow.task_memory import TaskMemory
from houston_daemon.agent.flow.verifier import Verifier
from houston_daemon.agent.job_reports import job_reporter
from houston_daemon.agent.purification import StepPurifier, is_purified_rollout, reopen_attempt
from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.resumed_context import ResumedContext, rebuild_context
from houston_daemon.agent.role_samplers import (
    OpenRoleEngine,
    RoleSampler,
    RoleSamplers,
    role_sampling,
)
from houston_daemon.agent.rollout_budgets import EvaluationScores, RolloutBudgets, SpentCost
from houston_daemon.agent.sample_requests import (
    ENGINE_AWAY_WAITS,
    EngineRefusalPause,
    PolicySampler,
    SampleRequestBuilder,
)
from houston_daemon.agent.step_attention import load_step_attention
from houston_daemon.engines.engine_protocol import Engine, EngineRefused, EngineUnavailable
from houston_daemon.engines.engine_registry import choose_engine, has_native_calls
from houston_daemon.environments.environment_protocol import (
    Environment,
    Gpus,
    ReplayedEnvironment,
)
from houston_daemon.environments.environment_registry import kind, make_environment
from houston_daemon.hosts.host_protocol import HostAway, NeedsPerson, WorkspaceGone
from houston_daemon.prompts import token_limits as fitting
from houston_daemon.prompts.dialect_protocol import Dialect
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.planner_dialect import planner_dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer, load_prompt_tokenizer
from houston_daemon.prompts.system_prompt import system_prompt, task_message
from houston_daemon.review.attention_catalog import load_signals
from houston_shared import task_secrets, wire
from houston_shared.context_messages import with_critique
from houston_shared.engine_settings import EnginePrice
from houston_shared.errors import ConfigurationError
from houston_shared.faults import point
from houston_shared.guidance_tag import disarm
from houston_shared.records import ContextHead, RolloutSpec, spec_of_role
from houston_shared.sample_roles import SampleRole
from houston_shared.task import (
    BudgetSettings,
    Task,
    parse_task_record,
    purify_settings,
    thought_handling,
)

CHARACTERS_PER_TOKEN = 3
QUESTION_LEAD = "Question: "
"""How the brief of an environment that asks one of a set begins."""


def make_rollout_engine(
    spec: RolloutSpec, url: str, replicas: Sequence[wire.EngineReplica] = ()
) -> tuple[Engine, Mapping[str, Any]]:
    """The rollout's engine and its settings. url: where the supervisor's child answers; replicas:
    its servers, where the daemon knows of several."""
    settings = {**spec.engine_settings, **({"url": url} if url else {})}
    script = spec.engine.removeprefix("script:") if spec.engine.startswith("script:") else None
    name = spec.engine if script is None else ""
    return choose_engine(settings, script, name, replicas=replicas), settings


def engine_price(settings: Mapping[str, Any]) -> EnginePrice | None:
    """What an engine's tokens cost; None where none is declared."""
    price = settings.get("price")
    return None if price is None else msgspec.convert(price, EnginePrice)


def tokenizer_file(settings: Mapping[str, Any]) -> str:
    """The `tokenizer.json` of an engine that takes ids. Raises ConfigurationError."""
    if named := str(settings.get("tokenizer") or ""):
        path = Path(named)
        return str(path / "tokenizer.json" if path.is_dir() else path)
    model = str(settings.get("model") or "")
    if model and Path(model).is_dir():
        return str(Path(model) / "tokenizer.json")
    if not model and settings.get("kind") != "token":
        from houston_daemon.engines.local_model import model_path

        if folder := model_path():
            return str(folder / "tokenizer.json")
    raise ConfigurationError(
        "The engine takes token ids, but its tokenizer is not known.",
        next="Set `tokenizer` of the engine in houston.toml to the model's tokenizer.json, or to a"
        " model of the hub: org/name@revision.",
    )


async def wait_for_engine(
    spec: RolloutSpec,
    url: str,
    line: RecorderClient,
    engines: EngineCache | None = None,
    is_role_engine: bool = False,
) -> tuple[Engine, Mapping[str, Any]]:
    """The rollout's engine once it answers, and its settings; the wait is not active time.

    engines: the cache of this process; an engine taken from it is released to it. is_role_engine:
    whether the engine is a role's own (`spec_of_role`).

    An engine that is away, or a key that is missing where the daemon was started, is waited for:
    the rollout is not at fault. An engine that refuses pauses the rollout. Raises WorkerExit, and
    HoustonError for settings that are wrong.
    """
    tries, refusals = 0, EngineRefusalPause(line, spec.engine, is_role_engine)
    while True:
        if engines and engines.has(spec, url):
            await refusals.end_pause()
            if (cached_pair := engines.take(spec, url)) is not None:
                return cached_pair
        replicas = line.control.current.replicas.get(spec.engine, ())
        try:
            engine, settings = await _make_ready_engine(spec, url, replicas, refusals)
            return (
                await engines.keep(spec, url, engine, settings) if engines else (engine, settings)
            )
        except (EngineRefused, EngineUnavailable) as problem:
            line.activity = refusals.activity(problem)
            own_pause = bool(refusals) and line.control.current.pause
            if own_pause or isinstance(problem, EngineRefused):
                await refusals.pause_and_wait(problem)
                continue
        with line.clock.excluded():
            await line.control.wait((), ENGINE_AWAY_WAITS[min(tries, len(ENGINE_AWAY_WAITS) - 1)])
            await line.wait_at_safe_point()
        tries += 1


async def _make_ready_engine(
    spec: RolloutSpec,
    url: str,
    replicas: Sequence[wire.EngineReplica],
    refusals: EngineRefusalPause,
) -> tuple[Engine, Mapping[str, Any]]:
    """An engine that answers, and its settings. Raises what `wait_for_engine` waits for or raises;
    then no connection of it is left."""
    engine, settings = make_rollout_engine(spec, url, replicas)
    try:
        await engine.ready()
        await refusals.end_pause()
    except BaseException:
        await engine.close()
        raise
    return engine, settings


async def wait_for_task_requirements(task: Task, line: RecorderClient) -> None:
    """Wait for what a task needs of the node: packages with its environment and signals, and keys
    that it names. While something is missing, pause until a person resumes.

    The rollout is not at fault: the daemon may run where they are missing. Raises WorkerExit.
    """
    while lacking := _missing_requirements(task):
        await line.store(wire.StoreState, state="paused", by="host", reason=lacking)
        await line.wait_at_safe_point()


def _missing_requirements(task: Task) -> str:
    try:
        kind(task.environment)
        load_signals(task.attention.signals)
        if task.memory.enabled:
            check_packages()
    except ConfigurationError as problem:
        return str(problem)
    return (
        " ".join(task_secrets.describe_missing_secret(*missing[0]))
        if (missing := task_secrets.missing_secrets(task))
        else ""
    )


async def open_environment(
    environment: Environment,
    line: RecorderClient,
    begun: bool,
    bring_files: Callable[[], Awaitable[None]],
    previous_host: str = "",
) -> None:
    """Open the rollout's world; where only a person can help, pause until one resumes.

    A host that is away also pauses it; the pause ends when the host is back. begun: the head is
    stored, so the world was made before. bring_files: fetches the rollout's missing files from a
    store. previous_host: the other machine that its last worker ran on. Raises WorkerExit, and
    HoustonError as `open` does.
    """
    waits = chain([0.0], ENGINE_AWAY_WAITS, repeat(ENGINE_AWAY_WAITS[-1]))
    while True:
        try:
            await bring_files()
            return await environment.open(begun=begun)
        except HostAway as outage:
            await _pause_until_host_back(outage, line, next(waits))
        except NeedsPerson as problem:
            reason = str(problem)
            if previous_host and isinstance(problem, WorkspaceGone):
                hostname = socket.gethostname()
                reason = f"It was on {previous_host}, and this worker runs on {hostname}. {reason}"
            await line.store(wire.StoreState, state="paused", by="host", reason=reason)
        await line.wait_at_safe_point()


async def _pause_until_host_back(outage: HostAway, line: RecorderClient, seconds: float) -> None:
    """Pause until a host is back, `seconds` at least: one may come and go. Raises WorkerExit."""

    async def back() -> None:
        await asyncio.sleep(seconds)
        await outage.back()

    why = f"The host {outage.host} cannot be reached: {outage.why}. The rollout continues when"
    reason = f"{why} the host is back; houston doctor says more."
    await line.store(wire.StoreState, state="paused", by="host-away", reason=reason)
    await line.wait_while_paused(back())
    back_reason = f"the host {outage.host} is back"
    await line.store(wire.StoreState, state="running", by="host-away", reason=back_reason)


def has_begun(welcome: wire.Welcome) -> bool:
    """Whether its world was made: its head is stored, or a branch has a step of its own."""
    shared = welcome.spec.parent_step if welcome.spec.origin else None
    return welcome.head is not None if shared is None else welcome.next_step > shared + 1


def make_rollout_environment(
    welcome: wire.Welcome, task: Task, window: int | None, line: RecorderClient, gpus: Gpus
) -> Environment:
    """The rollout's environment; nothing is touched before its `open`."""
    tokens = fitting.compute_token_limits(task.budget, window).observation
    return make_environment(
        welcome.spec,
        task,
        waiting_for_slot=line.clock.exclude,
        observation_characters=tokens * CHARACTERS_PER_TOKEN,
        owner=welcome.home,
        owner_elsewhere=welcome.home_elsewhere,
        gpus=gpus,
        lease=line.lease,
        report_job=job_reporter(line),
    )


async def build_agent_loop(
    line: RecorderClient,
    welcome: wire.Welcome,
    engine: Engine,
    settings: Mapping[str, Any],
    environment: Environment,
    open_role_engine: OpenRoleEngine | None = None,
) -> AgentLoop:
    """A rollout that continues where the journal ends; the head of a new one is stored on the way.

    The engine is ready and the environment open. open_role_engine: only for rollouts with a role
    that has its own engine. Raises HoustonError, WorkerExit.
    """
    spec, task = welcome.spec, parse_task_record(welcome.spec.task)
    reasoning = task.sampling.reasoning or bool(settings.get("reasoning"))
    renderer = _make_renderer(spec, task, engine, settings, reasoning)
    limits = fitting.compute_token_limits(step_budget(task), engine.window)
    memory = _make_memory(task, spec)
    head = welcome.head or await _store_new_head(
        line, renderer, environment, task, spec, engine.window, memory
    )
    fitting.check_head_fits(renderer.head_size(head), limits)
    resumed = await _resume_context(line, renderer, head, welcome)
    spent = SpentCost(welcome.cost)
    budgets = RolloutBudgets(task, line.clock, _scores_so_far(welcome), spent)
    next_step = welcome.next_step
    watched = await load_step_attention(line, budgets, task, resumed.closed, next_step)
    sampler = PolicySampler(engine, line, price=engine_price(settings), spent=spent)
    asking = _make_request_builder(spec, task, head, renderer, engine, reasoning)
    policy = RoleSampler(sampler, renderer, limits, asking)
    roles = _make_role_samplers(policy, spec, task, head, environment, open_role_engine)
    purify = purify_settings(task, spec.purify)
    agent = _make_agent(task, environment, Verifier(line, roles), memory, welcome)
    room = limits.observation - agent.tail_tokens
    executor = CallExecutor(line, environment, budgets, renderer.measure, room)
    await _replay_past(line, welcome, environment, agent, resumed)
    purifier = StepPurifier(
        settings=purify,
        active=is_purified_rollout(purify, spec.seed),
        sampler=sampler,
        environment=environment,
        renderer=renderer,
        limits=limits,
        budgets=budgets,
        request_builder=asking,
        executor=executor,
        check=agent.check,
        stored=[reopen_attempt(record) for record in welcome.attempts],
    )
    instructions = full_instructions(spec, environment)
    loop = AgentLoop(
        line=line,
        sampler=sampler,
        environment=environment,
        renderer=renderer,
        limits=limits,
        budgets=budgets,
        request_builder=asking,
        executor=executor,
        purifier=purifier,
        forker=ContextForker(line, renderer, limits, roles, instructions),
        agent=agent,
        context=resumed.context,
        attention=watched,
        step=next_step,
        summary_tries=_pending_summary_tries(welcome),
    )
    return _restore_loop_state(loop, resumed)


def _make_role_samplers(
    policy: RoleSampler,
    spec: RolloutSpec,
    task: Task,
    head: ContextHead,
    environment: Environment,
    open_role_engine: OpenRoleEngine | None,
) -> RoleSamplers:
    """What the roles are asked with: the policy, or an engine of their own."""

    async def own_sampler(role: SampleRole) -> RoleSampler:
        assert open_role_engine is not None, "who runs such a rollout opens its engines"
        opened = await open_role_engine(role)
        return _make_role_sampler(policy, spec_of_role(spec, role), task, head, environment, opened)

    return RoleSamplers(policy, task, own_sampler, spec.role_engines)


def _make_request_builder(
    spec: RolloutSpec,
    task: Task,
    head: ContextHead,
    renderer: PromptRenderer,
    engine: Engine,
    reasoning: bool,
) -> SampleRequestBuilder:
    """How the agent's steps are asked for."""
    return SampleRequestBuilder(
        sampling=role_sampling(task, task.step_role),
        policy=spec.policy,
        policy_hash=spec.policy_hash,
        tools=head.tools,
        stop_token_ids=tuple(renderer.stops),
        guided=task.sampling.guided and engine.token_ids,
        reasoning=reasoning,
        rollout=spec.rollout,
        is_max_tokens_set=step_budget(task).answer_tokens > 0,
        role=task.step_role,
    )


def _make_role_sampler(
    policy: RoleSampler,
    spec: RolloutSpec,
    task: Task,
    head: ContextHead,
    environment: Environment,
    opened: tuple[Engine, Mapping[str, Any]],
) -> RoleSampler:
    """What a role with an engine of its own samples with. spec: as the role has it."""
    engine, settings = opened
    reasoning = task.sampling.reasoning or bool(settings.get("reasoning"))
    renderer = _make_renderer(spec, task, engine, settings, reasoning)
    short = renderer.shows_short(environment.tools, engine.window)
    own_head = renderer.head(head.system, environment.tools, head.task, short)
    builder = dataclasses.replace(
        policy.request_builder,
        policy=spec.policy,
        policy_hash=spec.policy_hash,
        stop_token_ids=tuple(renderer.stops),
        guided=task.sampling.guided and engine.token_ids,
        reasoning=reasoning,
    )
    same = (own_head.dialect, own_head.tokenizer) == (head.dialect, head.tokenizer)
    return RoleSampler(
        PolicySampler(
            engine,
            policy.sampler.line,
            is_role_engine=True,
            price=engine_price(settings),
            spent=policy.sampler.spent,
        ),
        renderer,
        fitting.compute_token_limits(task.budget, engine.window),
        builder,
        own_head=own_head,
        tokenizer="" if same else own_head.tokenizer,
    )


def _scores_so_far(welcome: wire.Welcome) -> EvaluationScores:
    return EvaluationScores(
        welcome.evaluations,
        welcome.best_score,
        welcome.last_score,
        welcome.evaluation_seconds,
        welcome.since_gain,
        welcome.gained_us / 1_000_000,
    )


def full_instructions(spec: RolloutSpec, environment: Environment) -> str:
    """The agent's instructions: the task's own, those that its open world adds, and a critic's
    words on an earlier attempt."""
    parts = (spec.task.instructions, environment.brief)
    return with_critique("\n\n".join(part for part in parts if part), spec.refines)


def _question_text(spec: RolloutSpec, environment: Environment) -> str:
    """What a rollout is asked, without what is the same for all rollouts of its task."""
    parts = environment.brief.split("\n\n")
    question = next((part for part in parts if part.startswith(QUESTION_LEAD)), "")
    return question.removeprefix(QUESTION_LEAD) or spec.task.instructions


def _make_renderer(
    spec: RolloutSpec, task: Task, engine: Engine, settings: Mapping[str, Any], reasoning: bool
) -> PromptRenderer:
    """The dialect of the engine's model, with its tokenizer where the engine takes ids."""
    dialect, tokens = make_dialect_and_tokenizer(settings, reasoning, engine.token_ids)
    if task.step_role == "planner":
        dialect = planner_dialect(dialect)
    return PromptRenderer(dialect, tokens, thought_handling(spec), has_native_calls(settings))


def make_dialect_and_tokenizer(
    settings: Mapping[str, Any], reasoning: bool, token_ids: bool
) -> tuple[Dialect, PromptTokenizer | None]:
    """The dialect of an engine's model, and its tokenizer where it takes ids.

    Raises ConfigurationError where one of them is missing, or they do not fit together.
    """
    dialect = choose_dialect(str(settings.get("dialect") or "chatml-json"), reasoning)
    tokens = load_prompt_tokenizer(tokenizer_file(settings)) if token_ids else None
    if tokens and (
        missing := tokens.first_missing_token((dialect.stop_tokens[0], *dialect.markup))
    ):
        raise ConfigurationError(
            f"The tokenizer {tokens.path} has no token {missing}, which the dialect {dialect.name}"
            " writes.",
            "The rollout cannot start.",
            "Set `dialect` of the engine in houston.toml to the model's family.",
        )
    return dialect, tokens


def _pending_summary_tries(welcome: wire.Welcome) -> tuple[wire.SideSample, ...]:
    """Tries at a summary whose fork is still owed; those of a stored fork are used up."""
    fork = welcome.fork
    return () if fork and fork.before == welcome.next_step else welcome.summaries


def _restore_loop_state(rollout: AgentLoop, resumed: ResumedContext) -> AgentLoop:
    """`rollout` with what the records of its context tell."""
    for record in resumed.closed:
        rollout.unscored.note_record(record)
    if resumed.last is not None and resumed.open is None and not resumed.last.inherited:
        rollout.last_closed = resumed.last  # the end of a parent is not that of its branch
    if resumed.open is not None:
        rollout.open_step = reopen_attempt(resumed.open)
        prompt = rollout.context.prompt_ids
        rollout.context.anchor_sample(
            resumed.open.sample_seq, prompt, resumed.open.sample.token_ids
        )
    return rollout


async def _store_new_head(
    line: RecorderClient,
    renderer: PromptRenderer,
    environment: Environment,
    task: Task,
    spec: RolloutSpec,
    window: int | None,
    memory: TaskMemory,
) -> ContextHead:
    system = system_prompt(task)
    instructions = full_instructions(spec, environment)
    recalled = await memory.recall(_question_text(spec, environment))
    task_text = "\n\n".join(part for part in (instructions, recalled) if part)
    message = disarm(task_message(task_text, task)).text
    tools = environment.tools
    head = renderer.head(system, tools, message, renderer.shows_short(tools, window))
    fitting.check_head_fits(
        renderer.head_size(head), fitting.compute_token_limits(task.budget, window)
    )
    point("worker.head.before")
    await line.store(wire.StoreHead, head=head)
    point("worker.head.after")
    return head


async def _resume_context(
    line: RecorderClient,
    renderer: PromptRenderer,
    head: ContextHead,
    welcome: wire.Welcome,
) -> ResumedContext:
    fork = welcome.fork
    if fork is not None and "summary" in welcome.spec.role_engines:
        fork = msgspec.structs.replace(fork, sample_seq=None)  # no ancestor of the policy's prompts
    first = fork.first_kept_step - 1 if fork else welcome.first_step
    point("worker.resume.before")
    # Without a head nothing was sampled yet: a short rollout saves a question.
    steps = await line.read_steps(first) if welcome.head else []
    point("worker.resume.after")
    return rebuild_context(renderer, head, steps, fork, welcome.fork_guidance)


async def _replay_past(
    line: RecorderClient,
    welcome: wire.Welcome,
    environment: Environment,
    agent: AgentKind,
    resumed: ResumedContext,
) -> None:
    """Tell what was done before this worker came to who knows it from the journal alone."""
    is_replayed = isinstance(environment, ReplayedEnvironment)
    if not (is_replayed or agent.replays):
        return
    whole = welcome.fork is None and welcome.first_step == 1
    open_steps = [resumed.open] if resumed.open else []
    past = [*resumed.closed, *open_steps] if whole else await line.read_steps(1)
    if isinstance(environment, ReplayedEnvironment):
        environment.replay([result for record in past for result in record.results])
    for record in past:
        if agent.replays and record.observation is not None:
            agent.note_closed(record, record.observation, record.guidance)


def _make_memory(task: Task, spec: RolloutSpec) -> TaskMemory:
    """What a flow remembers: this rollout, and others where the task and its start let it."""
    settings = task.memory
    if not settings.enabled or spec.without_memory:
        return TaskMemory()
    store = EpisodeStore(Path(spec.host_root) / "memory" / "episodes.db")
    return EpisodeMemory(store, spec.rollout, spec.task.name, settings.recalled)


def _make_agent(
    task: Task,
    environment: Environment,
    verifier: Verifier,
    memory: TaskMemory,
    welcome: wire.Welcome,
) -> AgentKind:
    """The agent that the task names."""
    if task.agent_kind == "react":
        return ReactAgent(environment)
    question = _question_text(welcome.spec, environment)
    stored = welcome.flow_samples
    return FlowAgent(
        task.budget,
        environment.tools,
        verifier if task.verifies else None,
        memory,
        question,
        stored,
    )


def step_budget(task: Task) -> BudgetSettings:
    """The task's budget, with the answer limit of the role that decides steps."""
    own = task.role(task.step_role).answer_tokens
    return msgspec.structs.replace(task.budget, answer_tokens=own) if own else task.budget
