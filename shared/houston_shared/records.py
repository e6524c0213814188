"""The nouns of Houston as frozen records: what is stored, sent and shown.

Words are those of docs/design.md#words. A record holds data only; rules about it live where they
are enforced (the recorder for transitions, the loop for budgets). Bodies of journal events are
these structs in msgpack: fields are only ever added, with a default, so that an older home stays
readable.
"""

from typing import Any, Literal

import msgspec

from houston_shared.sample_roles import SampleRole

RolloutState = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]
STATE_TRANSITIONS: dict[RolloutState, frozenset[RolloutState]] = {
    "queued": frozenset({"running", "paused", "failed", "cancelled"}),
    "running": frozenset({"paused", "finished", "failed", "cancelled"}),
    "paused": frozenset({"queued", "running", "finished", "failed", "cancelled"}),
    "finished": frozenset(),
    "failed": frozenset({"queued"}),  # a person resumes what failed and is sound
    "cancelled": frozenset(),
}
ENDED_STATES: frozenset[RolloutState] = frozenset({"finished", "failed", "cancelled"})
"""States in which nothing happens any more, unless a person resumes a failed rollout."""
AWAY_ACTIVITY = "waiting for the engine"
"""How the activity of a worker begins whose engine is away or answers with errors."""
AWAY_MARK = ": "
"""What stands between that, with the name of a role's own engine, and the cause."""
LOW_DISK_BYTES = 8_000_000
"""Free bytes of the home's disk below which rollouts wait."""
AT_REST_ACTIVITY = "paused"
"""Activity of a paused rollout whose worker has come to a safe point, or that has no worker."""

GuidanceMode = Literal["next", "wake", "interrupt"]
GuidanceState = Literal["queued", "delivered", "withdrawn"]
EVALUATION_CALL = "eval"
"""Name of the call that a submission is, and kind of its result."""
PURIFICATION_KEY = "purification"
"""Parameter of a sample that was put together of a failed answer and its correction: a table with
`mode`, `similarity`, `attempts`, `from_attempt` and `corrected_tokens` (docs/purification.md)."""
LOOKAHEAD_KEY = "lookahead"
"""Parameter of a correction that was sampled ahead: its `number`, and the `tail` of the observation
that it answers, which no event has."""
PURIFIED_ENGINE = "purification"
"""Engine of such a sample: it was no request to a model."""
Drift = Literal["clean", "stripped", "realigned", "forked"]
"""How prompt(t+1) relates to prompt(t) + sampled(t); `forked` also marks the first prompt."""
LogprobKind = Literal["none", "policy", "before_temperature", "after_grammar", "after_temperature"]
"""What log-probabilities are of. `policy`: the model at temperature 1, and the tokens were drawn
just so. `before_temperature`: the same, but they were drawn at another temperature or from a part
of the distribution (top_p, top_k, …): these are not the probabilities with which they were sampled.
`after_grammar`: after the grammar's mask, at temperature 1. `after_temperature`: after all of it.
Homes from before `before_temperature` have `policy` for both; `logprob_kind.true_kind` tells them
apart."""
ThoughtHandling = Literal["keep", "strip"]


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of every stored record."""


class ToolCall(Record, frozen=True):
    """One tool call of an action."""

    id: str
    """Unique within the rollout: `<step>.<index>`, or the engine's own id."""
    name: str
    arguments: dict[str, Any]
    error: str = ""
    """Why the call cannot be run (unparsable, unknown tool, wrong arguments); empty when it can."""


class Message(Record, frozen=True):
    """One message of a context, in the neutral form that dialects and chat engines render."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    """Text; for an assistant its thought."""
    calls: tuple[ToolCall, ...] = ()
    """Calls of an assistant message."""
    call_id: str = ""
    """The call that a tool message answers."""


class ContextHead(Record, frozen=True):
    """The unchanging start of every context of a rollout, stored as rendered."""

    system: str
    task: str
    """The first user message."""
    tools: tuple[dict[str, Any], ...]
    """Tool schemas in OpenAI's form."""
    rendered: str
    """Head as template text; empty for engines without token ids."""
    token_ids: tuple[int, ...] | None
    dialect: str
    tokenizer: str
    """Path of the tokenizer file that decodes the ids; empty without ids."""


class SampleBody(Record, frozen=True):
    """The ledger's entry for one request to a model."""

    role: SampleRole
    parent_seq: int | None
    """Journal sequence of the sample whose prompt + sampled ids this prompt extends."""
    kept: int
    """How many ids of parent prompt + parent sampled ids this prompt starts with."""
    new_prompt_ids: tuple[int, ...] | None
    """The prompt's ids after the kept prefix; None for engines without token ids."""
    token_ids: tuple[int, ...] | None
    """Sampled ids, stop token included."""
    logprobs: tuple[float, ...] | None
    logprob_kind: LogprobKind
    finish_reason: str
    policy: str
    engine: str
    parameters: dict[str, Any]
    """Sampling parameters as sent: temperature, top_p, max_tokens, grammar (a hash), …; what of it
    bends the distribution that was drawn from is in `logprob_kind.UNBENT`."""
    drift: Drift
    thought: str
    """Parsed thought; the whole sampled text when `malformed` is set or the role has no calls."""
    calls: tuple[ToolCall, ...] = ()
    malformed: str = ""
    """Why the text could not be parsed into an action; empty when it could."""
    prompt_tokens: int | None = None
    """Tokens of the prompt: of the ids that were sent, or as a chat endpoint counts them."""
    cached_tokens: int | None = None
    """Of the prompt, what the engine took from its prefix cache, where it says so."""
    completion_tokens: int | None = None
    """Sampled tokens as the engine counts them, those of reasoning too, where it says so."""
    reasoning_tokens: int | None = None
    """Of the sampled tokens, those of reasoning, where it says so."""
    cost: float | None = None
    """By its engine's price as it was sampled, in `currency` of the configuration; None where none
    is declared. Where an endpoint does not count its tokens it is reckoned from bytes."""
    policy_hash: str = ""
    """Content of the policy's weights (SHA-256), which its name is not; empty for a base model."""
    seconds: float = 0.0
    tokenizer: str = ""
    """Tokenizer file of its ids where they are not in the head's dialect and tokenizer: of a role
    that has an engine of its own."""


class CallIntent(Record, frozen=True):
    """A call that is about to run."""

    call: ToolCall
    deadline: float = 0.0
    """Unix time at which a sleep or wait would end by itself; 0 when there is none."""


class ToolResult(Record, frozen=True):
    """What one call returned: a typed observation and the text it was rendered to."""

    call: ToolCall
    kind: str
    """Type of the observation, e.g. `command`, `file`, `eval`, `error`, `interrupted`."""
    success: bool
    text: str
    """As the model sees it, escaped and cut, without guidance."""
    fields: dict[str, Any] = {}
    """The typed fields, without text that `text` already holds."""
    seconds: float = 0.0
    forged_tags: int = 0
    """Look-alikes of the guidance tag that were neutralised in `text`."""
    cut: bool = False
    """Whether something of it was left out because it was too long for an observation."""


class FileChange(Record, frozen=True):
    """One file that a step changed, from the snapshots."""

    path: str
    kind: Literal["added", "changed", "removed"]
    added: int
    removed: int
    diff: str = ""
    """Unified diff, cut at 16 KB; empty for files without text."""
    note: str = ""


class TerminalSpan(Record, frozen=True):
    """The bytes that one terminal printed during a step."""

    host: str
    terminal: str
    start: int
    end: int


class JobReport(Record, frozen=True):
    """How a job stands: a command that outlived the call which started it."""

    id: str
    """Unique on its host: its session and where its output begins in the log (`train@4096`), or
    its process where it was started apart from the foreground (`main#812.77412`)."""
    step: int
    """The step that left it running."""
    host: str
    session: str
    command: str
    started_at: int
    """UTC microseconds, as all times here."""
    ended_at: int = 0
    """0 while it runs."""
    exit_code: int | None = None
    """None while it runs, and where nobody could tell."""
    end: str = ""
    """How its session ended, where that ended it, in words."""
    stopped_by: Literal["", "agent"] = ""
    """Who ended it, where it did not end by itself."""
    failed: bool = False
    """Whether its end was an error: not where the agent ended it, nor where an exit code is an
    answer (`grep`)."""
    log_start: int | None = None
    """Where its output begins in the session's log; None for what was started apart."""
    log_end: int | None = None
    output: str = ""
    """The file that it prints to, as the agent sees it; empty for its session."""
    last_line: str = ""
    """The last line that it printed, once it has ended; empty where that is not known."""


class Verification(Record, frozen=True):
    """What the verifier of a flow said after a step."""

    answered: bool = False
    """Whether what was found is enough: the next step may only be the answer."""
    reason: str = ""
    unreadable: str = ""
    """Why its answer could not be read, which counts as no; empty where it could."""


class ObservationBody(Record, frozen=True):
    """What closes a step: everything of the observation that is not in its results."""

    tail: str
    """Clock and budgets, and notes of the loop (an interruption, no action); after the results."""
    snapshot: str = ""
    """Shadow commit after the step."""
    files: tuple[FileChange, ...] = ()
    """Of a host beyond the first, `path` is `host:path`."""
    more_files: int = 0
    snapshots: dict[str, str] = {}
    """Shadow commits on the hosts beyond the first, by name."""
    spans: tuple[TerminalSpan, ...] = ()
    attention: tuple[str, ...] = ()
    """Signals of this step: `error`, `null_action`, `forged_tag`, …"""
    reasons: dict[str, str] = {}
    """By signal, why it stands: a few words."""
    attention_version: int = 0
    """Which set of signals was looked for; 0 for steps of before there was a number."""
    finished: bool = False
    """Whether the step ended the rollout (`finish` accepted, or a budget is spent)."""
    guidance_bytes: int = 0
    """Most bytes of guidance that the model sees with this observation; 0 for no limit."""
    not_purified: str = ""
    """Why a step with a failed call was not purified, a few words for people; no model sees it."""
    verification: Verification | None = None
    """What the verifier of a flow said after the step; None where it was not asked."""


class ForkBody(Record, frozen=True):
    """The start of a new context by summarising (APOLLO, Algorithm 1 A, lines 4 to 9)."""

    k: int
    """Steps of the current context that the summary replaces."""
    first_kept_step: int
    """Number of the first step that stays as it is."""
    summary: str
    """S₁:ₖ as it is put into the context."""
    guidance: tuple[str, ...] = ()
    """Ids of guidance of the compressed part, kept verbatim but for `shortened`."""
    shortened: dict[str, int] = {}
    """Of that guidance what does not fit whole: by id, how many characters are shown."""
    mechanical: bool = False
    """Whether the summary was made without the model, after failed tries."""
    sample_seq: int | None = None
    """The summary's sample, None when mechanical."""
    before: int = 0
    """The step that the new context comes before: steps from here on were sampled in it."""


class Guidance(Record, frozen=True):
    """A message from a person to one rollout; the JSON of `guide --json`
    (docs/design.md#commands-and-formats)."""

    id: str
    rollout: str
    author: str
    text: str
    mode: GuidanceMode
    state: GuidanceState
    step: int | None
    queued_at: str
    delivered_at: str | None
    revision: int = 1
    verified: bool = True
    """Whether the author is the kernel's word; False where a shared login claimed a name."""
    critic: str = ""
    """The critic that drafted it, which the author said or edited; empty for their own words."""


class DeliveredGuidance(Record, frozen=True):
    """Guidance as it was joined to an observation."""

    id: str
    author: str
    text: str


class StateChange(Record, frozen=True):
    """A rollout moved from one state to another."""

    state: RolloutState
    by: str
    """Who: `person:<name>`, `worker`, `supervisor`, `budget`."""
    reason: str = ""


class TaskRecord(Record, frozen=True):
    """A task as it was when its rollouts were started."""

    name: str
    folder: str
    """Folder of the task file, for workspace source and evaluator."""
    definition: str
    """The task file's text."""
    instructions: str


class BranchPoint(Record, frozen=True):
    """How the parent of a branch stood after the step that both share last (`parent_step`).

    Nothing of the shared past is stored again: its events are the parent's. What the derived rows
    of the branch begin with stands here, so that they follow from its own events alone.
    """

    seq: int
    """The observation that closed the shared step: what the past must still be."""
    head_seq: int
    """The head of the contexts."""
    snapshot: str = ""
    """Commit in the parent's shadow repository; empty where the environment has no workspace."""
    snapshots: dict[str, str] = {}
    """The same on hosts beyond the first, by name."""
    fork_seq: int | None = None
    """The fork that the context after the shared step began with; None before the first."""
    forks: int = 0
    first_step: int = 1
    """First step of that context."""
    active_us: int = 0
    evaluations: int = 0
    """Submissions used."""
    best_score: float | None = None
    last_score: float | None = None
    errors: int = 0
    """Steps with an error observation."""


class RoleEngine(Record, frozen=True):
    """The engine of a role that has another one than its rollout's policy; fields as there."""

    engine: str
    engine_settings: dict[str, Any]
    policy: str = ""
    policy_hash: str = ""


class Refinement(Record, frozen=True):
    """For a rollout that repeats an attempt: that attempt, and what a critic said of it."""

    rollout: str
    """The attempt that was criticised; nothing else of it is shown to the agent."""
    text: str
    """What the critic said."""
    critic: str
    """Who: the critic's policy, else its engine."""


ELSEWHERE = "elsewhere"
"""Engine, and kind of sandbox, of a rollout that was sampled elsewhere and imported."""


class SampledElsewhere(Record, frozen=True):
    """Of an imported rollout: where it was sampled, and what the import left out."""

    format: str
    """Of the file that it was read from, such as `ATIF-v1.7` or `inspect_ai 0.3.285`."""
    agent: str = ""
    """Name and version of the agent, as the file has them."""
    id: str = ""
    """What the file calls the trajectory or the sample."""
    file: str = ""
    """Name of the file, without its folder."""
    left_out: tuple[str, ...] = ()
    """What of the file no rollout has a place for, a few words each."""


class RolloutSpec(Record, frozen=True):
    """Everything a worker needs to know to run one rollout; fixed when it is started."""

    rollout: str
    task: TaskRecord
    engine: str
    """Engine name of the configuration, or `script:<path>`."""
    engine_settings: dict[str, Any]
    """The engine's part of the configuration, as it was when the rollout started."""
    policy: str = ""
    policy_hash: str = ""
    """Content of the policy's weights, as it was registered; empty for a base model."""
    group: str = ""
    parent: str = ""
    parent_step: int | None = None
    origin: BranchPoint | None = None
    """Of a branch: where it begins."""
    refines: Refinement | None = None
    """Of a refinement: which attempt it refines, and what a critic said of that."""
    seed: int = 0
    purify: dict[str, bool | int | float] = {}
    """Values of the task's `[purify]` that the start of this rollout set otherwise."""
    host_root: str = ""
    """Where the host keeps what rollouts own."""
    hosts: dict[str, dict[str, Any]] = {}
    """`[hosts.NAME]` of the configuration for each host of the task but `local`, as it was when the
    rollout started."""
    host_key: str = ""
    """Of the home that it began in: names the folder that the rollout has on those hosts."""
    gpus: dict[str, int] = {}
    """Host → how many of its GPUs the rollout leases."""
    gpus_shared: bool = False
    """Whether it shares them with others that asked the same."""
    host_memory_mb: int = 0
    """`[hosts] memory_mb` as it was then: of all rollouts of this machine together."""
    hidden: tuple[str, ...] = ()
    """Folders that no sandbox may map: home, sockets, keys."""
    thoughts: ThoughtHandling = "keep"
    tool_settings: dict[str, dict[str, Any]] = {}
    """`[tools]` of the configuration as it was when the rollout started, a table per section;
    keys are named by `api_key_env` and not in it."""
    role_engines: dict[str, RoleEngine] = {}
    """By role, of those that have an engine of their own."""
    without_memory: bool = False
    """Whether it neither recalls earlier rollouts nor is recalled, whatever its task says."""
    shares_worker: bool = False
    """Whether its environment lets one worker run it beside others (`EnvironmentKind`)."""
    elsewhere: SampledElsewhere | None = None
    """Of an imported rollout: where it was sampled. No worker ever runs it."""


def spec_of_role(spec: RolloutSpec, role: str) -> RolloutSpec:
    """The spec as the role has it: with its own engine and policy, where it has one."""
    if (own := spec.role_engines.get(role)) is None:
        return spec
    return msgspec.structs.replace(spec, **msgspec.structs.asdict(own))


class QuarantinedEvents(Record, frozen=True):
    """Events of one step that a repair set aside."""

    events: int
    repair: str
    """Its folder in `damaged/` of the home; empty where that is not known (an archive)."""
    again: bool = False
    """Whether the step was run again since: they belong to its earlier run."""


class StepRecord(Record, frozen=True):
    """One step read back from the journal: what a resumed worker and every reader starts from."""

    step: int
    attempt: int
    sample_seq: int
    sample: SampleBody
    intents: tuple[CallIntent, ...]
    results: tuple[ToolResult, ...]
    observation: ObservationBody | None
    """None while the step is open."""
    guidance: tuple[DeliveredGuidance, ...]
    at: str
    active_seconds: float
    seq: int = 0
    """Sequence of the step's last event."""
    inherited: str = ""
    """The rollout whose step it is, where a branch shares it; empty for a step of its own."""
    aside: tuple[QuarantinedEvents, ...] = ()
    """What repairs set aside of it; filled where people read (`store.step_queries`)."""
    others: tuple["StepRecord", ...] = ()
    """Other attempts at it: what purification replaced, and corrections that it looked at ahead;
    filled where people read."""
