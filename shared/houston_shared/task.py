"""The task file: what an agent is asked to do, in what, with which budgets.

This module reads and checks `task.toml`, and says where the packaged tasks lie; the daemon's
package is found for that and not imported. It starts nothing and copies nothing. What it may say in
detail is in `task_tables`.
"""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.errors import ConfigurationError
from houston_shared.records import RolloutSpec, TaskRecord, ThoughtHandling
from houston_shared.sample_roles import SAMPLE_ROLES, SampleRole
from houston_shared.task_tables import (
    AgentKind,
    AgentRoleSettings,
    AgentSettings,
    DataSettings,
    EvaluationSettings,
    HintSettings,
    HttpSimulatorSettings,
    McpSettings,
    MemorySettings,
    OpenEnvSettings,
    PositiveInt,
    PositiveSeconds,
    PurifySettings,
    PythonToolSettings,
    QuestionSettings,
    ReasoningGymSettings,
    ResourceSettings,
    RuleSettings,
    ScienceWorldSettings,
    SmallWorkstationSettings,
    TaskDomain,
    TextWorldSettings,
    VerifiersSettings,
    WordWorldSettings,
    evaluation_trouble,
)
from houston_shared.toml_file import Settings, convert_toml, find_nul, parse_toml, read_text_file

TaskName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
BudgetLimit = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
GpuCount = Annotated[int, msgspec.Meta(ge=0, le=64)]
VariableName = Annotated[str, msgspec.Meta(pattern=r"^[^=]+\Z")]


class WorkspaceSettings(Settings, frozen=True):
    """Where the agent works."""

    source: str = ""
    """Folder beside the task file, copied for every rollout; empty starts with nothing."""


class BudgetSettings(Settings, frozen=True):
    """What a rollout may use. Every limit is here; there is no hidden one."""

    steps: PositiveInt = 200
    """Steps before the rollout ends."""
    active_seconds: PositiveSeconds = 36_000.0
    """Active time: without pauses, downtime and waiting for engine, recorder or evaluation slot."""
    cost: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """What all samples of the rollout may cost together, in `currency` of houston.toml, by the
    `price` of its engines, which must have one then; the step that reaches it is the last. 0 is no
    limit."""
    evaluations: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 3
    """Submissions to the evaluator."""
    evaluation_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Time that all evaluations of a rollout may take together, the last one too; 0 is no limit."""
    context_tokens: PositiveInt = 100_000
    """A context longer than this is forked; less where the engine's window is smaller."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    """Most tokens of one sample; 0: 1,024, and a `chat` endpoint is sent no limit."""
    observation_tokens: PositiveInt = 10_000
    """An observation is cut here, and says so; less where the engine's window is smaller."""
    command_seconds: PositiveSeconds = 10.0
    """How long run_command waits before it leaves a command running and says so."""
    input_silence_seconds: PositiveSeconds = 2.0
    """How long a running command must have been silent before input_in_session may answer it."""
    sleep_seconds: PositiveSeconds = 3_600.0
    """Longest single sleep."""
    minimum_steps: PositiveInt = 1
    """`finish` is refused before this step."""


class SandboxSettings(Settings, frozen=True):
    """The sandbox and what else it maps. `sandbox = "none"` is short for the kind alone."""

    kind: Literal["bubblewrap", "none"] = "bubblewrap"
    """`none` runs commands unprotected; the rollout is marked so everywhere."""
    network: bool = False
    """Whether commands reach the network."""
    image: str = ""
    """File beside the task file with the files of a container's image (`houston task image` and
    `task import` write it); each rollout has a copy of its own in the place of this machine's
    programs, and may change it. It needs bash, `script` and `tty`, and the only host is `local`."""
    workdir: str = ""
    """Absolute path at which the workspace lies as well as at `/workspace`; sessions begin there.
    """
    read: tuple[str, ...] = ()
    """Absolute folders mapped read-only: models, conda, data."""
    devices: tuple[str, ...] = ()
    """Device files that are mapped."""
    gpus: bool = False
    """Map `/dev/nvidia*`."""
    processes: BudgetLimit = 4_096
    """Most processes and threads of the rollout at once, over all its sessions; 0 is no limit."""
    memory_mb: BudgetLimit = 0
    """Most memory of the rollout, in MB of 1,048,576 bytes; 0 is what all rollouts of the machine
    may use together (`memory_mb` of `[hosts]`)."""
    shm_mb: BudgetLimit = 0
    """Most that `/dev/shm` of one session holds, in MB; 0 is half of the rollout's memory."""
    file_mb: BudgetLimit = 0
    """Largest single file; 0 is as large as `workspace_mb`."""
    workspace_mb: BudgetLimit = 50_000
    """Most that workspace, home and `/tmp` may hold; what writes beyond is ended. 0 is no
    limit but the machine's last gigabyte."""


class TaskSearchSettings(Settings, frozen=True):
    """Where the agent's searches look."""

    corpus: str = ""
    """Folder of text, Markdown and HTML files, or a `.jsonl` file with an object of `title`, `text`
    and perhaps `id` and `url` in each line, beside the task file; empty for the node's provider."""


class TaskBrowseSettings(Settings, frozen=True):
    """What the agent may browse."""

    private_addresses: bool = False
    """Whether pages of this machine and its networks may be fetched."""
    hosts: tuple[str, ...] | None = None
    """Hosts whose pages may be fetched, also by a redirect; `*` stands for any characters, as in
    `*.arxiv.org`. Left out, all of them where the agent's commands reach the network (`[sandbox]
    network`, or no sandbox), else none: only the pages of a corpus. Pages are fetched by the node,
    and what an agent puts into an address leaves the machine."""


StepWindow = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
ScoreThreshold = Annotated[float, msgspec.Meta(ge=0, le=100)]


class AttentionSettings(Settings, frozen=True):
    """When a step is marked for people to look at (docs/attention.md); 0 turns a signal off."""

    error_streak: StepWindow = 3
    """`error_streak`: steps in a row in which something went wrong."""
    repeated_actions: StepWindow = 3
    """`repeated_action`: the same action this often, in a row or in turn with one other."""
    blind_edit_steps: StepWindow = 5
    """`blind_edit`: steps before an edit in which the file must have been looked at; 1 is APOLLO's
    rule. 0 asks only that it was seen since it last changed."""
    unchanged_steps: StepWindow = 40
    """`no_change`: steps in a row that changed no file."""
    long_sleep_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 1_800.0
    """`long_sleep`: a single sleep."""
    idle_sleep_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 60.0
    """`idle_sleep`: a single sleep while no session runs anything."""
    score_drop: ScoreThreshold = 5.0
    """`score_fell`: points below the best score so far."""
    no_gain_evaluations: StepWindow = 5
    """`no_gain`: submissions in a row that scored no better than the best before them."""
    no_gain_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 14_400.0
    """`no_gain`: active time without a better score."""
    low_score: ScoreThreshold = 50.0
    """`low_finish`: best score below which an end is worth a look."""
    budget_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    """`near_budget`, `no_submission`: share of the steps, of the active time or of the cost that is
    left."""
    evaluations_left: StepWindow = 1
    """`near_budget`: submissions left when one is used."""
    guidance_steps: StepWindow = 3
    """`guidance_ignored`: steps that act after guidance, in which it must be followed."""
    signals: tuple[Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]{0,39}$")], ...] = ()
    """Signals that installed packages bring, which are looked at, too (docs/extending.md)."""


class SamplingSettings(Settings, frozen=True):
    """How the policy samples."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    """0 takes the likeliest token. Without it token engines sample at 0.7, and a `chat` endpoint is
    sent none."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Nucleus; 1 keeps every token, as token engines do without it; a `chat` endpoint is sent none.
    """
    guided: bool = True
    """Decode calls under their schema where the engine can."""
    reasoning: bool = False
    """Let the model write reasoning tokens before its answer."""
    thoughts: ThoughtHandling = "keep"
    """`strip` leaves thoughts out of the context, as APOLLO does."""


class Task(Settings, frozen=True):
    """A task file. `name`, and one of `instructions` and `instructions_file`, are required."""

    name: TaskName
    """Lower-case letters, digits and hyphens, at most 40."""
    domain: TaskDomain = ""
    """Kind of research, as in APOLLO's table 3; empty for none of them."""
    instructions: str = ""
    """What the agent is asked to do: motivation, goal, rules, what it may use."""
    instructions_file: str = ""
    """Text file beside the task file, instead of `instructions`."""
    environment: Annotated[str, msgspec.Meta(min_length=1, max_length=60)] = "workstation"
    """What turns actions into observations: one of Houston's own, or of a package that is installed
    beside it. `search_qa` asks one of the task's questions over its corpus; `python` is a code
    tool, perhaps with a question; `research` has search, code, thought and answer;
    `scienceworld` and `textworld` are simulated worlds, `word_world` is one of a few words for tiny
    policies, `small_workstation` has files and four actions; `http` is a simulator that you run;
    `mcp` is servers of tools; `openenv` is a server of OpenEnv, `verifiers` an environment of that
    package, `reasoning_gym` a question of that one; `null` does nothing, for benchmarks."""
    agent: AgentKind | AgentSettings = "react"
    """How the loop thinks: `react` is thought, action, observation; `flow` is planner and verifier.
    Or a table `[agent]` with `kind` and tables of roles, such as `[agent.summary]`."""
    sandbox: Literal["bubblewrap", "none"] | SandboxSettings = "bubblewrap"
    """A kind, or a table `[sandbox]` with `kind` and what else is mapped."""
    hosts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=16)] = ("local",)
    """Machines that the agent works on: `local`, and names of `[hosts.NAME]` in the node's
    houston.toml. Each has a copy of the workspace; the first is where files, snapshots and
    evaluations are when nothing else is named."""
    gpus: GpuCount | dict[str, GpuCount] = 0
    """GPUs that each rollout leases and alone sees, 0 to 64: on its first host, or by host, such as
    `{ gpu2 = 2 }`. While they are taken it waits in `queued`."""
    gpus_shared: bool = False
    """Whether a GPU may be one that other rollouts use, which say the same."""
    resources: ResourceSettings = ResourceSettings()
    """What a node of a cluster must have free for it."""
    tools: tuple[str, ...] = ()
    """Names of the actions that the agent may use; empty for all of the environment."""
    workspace: WorkspaceSettings = WorkspaceSettings()
    """Where the agent works."""
    budget: BudgetSettings = BudgetSettings()
    """What a rollout may use."""
    evaluate: EvaluationSettings = EvaluationSettings()
    """How the workspace is scored; without a command there is no score."""
    data: DataSettings = DataSettings()
    """What is mapped read-only beside the workspace."""
    hints: HintSettings = HintSettings()
    """Help that agents go without unless somebody asks for it."""
    activate: str = ""
    """Folder of a virtual or conda environment, absolute or beside the task file: mapped read-only,
    and its programs are found first in every session and by the evaluator. Its `activate` scripts
    are not run, those in `etc/conda/activate.d` neither: what they would set (such as `CUDA_HOME`)
    belongs into `environment_variables`."""
    sampling: SamplingSettings = SamplingSettings()
    """How the policy samples."""
    search: TaskSearchSettings = TaskSearchSettings()
    """Where the agent's searches look."""
    browse: TaskBrowseSettings = TaskBrowseSettings()
    """What the agent may browse."""
    questions: QuestionSettings = QuestionSettings()
    """What `search_qa` asks; `python` asks it too where a file is named."""
    python: PythonToolSettings = PythonToolSettings()
    """The code tool of `python`."""
    http: HttpSimulatorSettings = HttpSimulatorSettings()
    """The simulator of `http`."""
    mcp: McpSettings = McpSettings()
    """The servers of `mcp`."""
    openenv: OpenEnvSettings = OpenEnvSettings()
    """The server of `openenv`."""
    verifiers: VerifiersSettings = VerifiersSettings()
    """The environment of `verifiers`."""
    reasoning_gym: ReasoningGymSettings = ReasoningGymSettings()
    """The question of `reasoning_gym`."""
    scienceworld: ScienceWorldSettings = ScienceWorldSettings()
    """Which worlds `scienceworld` gives to rollouts."""
    textworld: TextWorldSettings = TextWorldSettings()
    """Which games `textworld` makes for rollouts."""
    small_workstation: SmallWorkstationSettings = SmallWorkstationSettings()
    """The files of `small_workstation`."""
    word_world: WordWorldSettings = WordWorldSettings()
    """The world of `word_world`."""
    attention: AttentionSettings = AttentionSettings()
    """When a step is marked for people to look at."""
    rules: RuleSettings = RuleSettings()
    """Which steps rules mask, and how."""
    purify: PurifySettings = PurifySettings()
    """Whether failed calls are corrected ahead."""
    settings: dict[str, Any] = {}
    """Settings of an environment that another package brings, of the simulator of `http`, and of
    what `openenv`, `verifiers` and `reasoning_gym` run."""
    environment_variables: dict[VariableName, str] = {}
    """Set for every command of the agent and for the evaluator; `[secret:NAME]` stands for a secret
    of the daemon's environment, which the model never sees."""

    def role(self, role: SampleRole) -> AgentRoleSettings:
        """The settings of a role of the agent; empty ones where it has none."""
        own: AgentRoleSettings = getattr(self.agent, role, AgentRoleSettings())
        return own

    @property
    def agent_kind(self) -> AgentKind:
        """How the loop thinks, whichever way it was written."""
        return self.agent if isinstance(self.agent, str) else self.agent.kind

    @property
    def autopilot(self) -> bool:
        """Whether a critic speaks to the agent without a person."""
        return isinstance(self.agent, AgentSettings) and self.agent.autopilot

    @property
    def memory(self) -> MemorySettings:
        """What the agent knows of earlier rollouts."""
        return self.agent.memory if isinstance(self.agent, AgentSettings) else MemorySettings()

    @property
    def verifies(self) -> bool:
        """Whether the verifier of a flow is asked."""
        return not isinstance(self.agent, AgentSettings) or self.agent.verify

    @property
    def step_role(self) -> SampleRole:
        """The role whose answers are the steps of a rollout."""
        return "planner" if self.agent_kind == "flow" else "policy"

    @property
    def roles(self) -> tuple[SampleRole, ...]:
        """Roles that may have settings of their own."""
        return tuple(role for role in SAMPLE_ROLES if hasattr(self.agent, role))

    @property
    def mapped(self) -> SandboxSettings:
        """The sandbox as a table, whichever way it was written."""
        return SandboxSettings(kind=self.sandbox) if isinstance(self.sandbox, str) else self.sandbox

    @property
    def page_hosts(self) -> tuple[str, ...]:
        """Patterns of the hosts whose pages the agent may open; none where there is no web."""
        if self.browse.hosts is not None:
            return self.browse.hosts
        return ("*",) if self.mapped.network or self.mapped.kind == "none" else ()


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A checked task file with where it came from."""

    task: Task
    file: Path
    text: str
    """The file as it was read."""
    instructions: str
    """Instructions, from the file or beside it."""

    @property
    def folder(self) -> Path:
        """Folder of the task file, absolute."""
        return self.file.parent

    def record(self, hints: bool = False) -> TaskRecord:
        """What is stored of the task when a rollout of it starts.

        hints: show the task's hints also where the task itself does not.
        """
        instructions = self.instructions
        if self.task.hints.text and (hints or self.task.hints.shown):
            instructions = f"{instructions.rstrip()}\n\nHints:\n{self.task.hints.text.strip()}"
        return TaskRecord(
            name=self.task.name,
            folder=str(self.folder),
            definition=self.text,
            instructions=instructions,
        )


def load_task(path: Path) -> LoadedTask:
    """Read and check a task file, or the `task.toml` in a folder.

    Raises ConfigurationError naming the file, the key and what is allowed.
    """
    file = (path / "task.toml" if _is_folder(path) else path).absolute()
    text = read_text_file(file)
    tables = parse_toml(text, str(file))
    if key := find_nul(tables):
        raise ConfigurationError(f"{file}: `{key}` holds a NUL character, which no text may.")
    task = convert_toml(tables, Task, str(file))
    instructions = _read_instructions(task, file)
    _check_source(task.workspace.source, file)
    _check_corpus(task.search.corpus, file)
    reason = evaluation_trouble(task.evaluate, task.hosts) or task.data.trouble(task.mapped.kind)
    if isinstance(task.agent, AgentSettings):
        reason = reason or task.agent.trouble
    if reason := reason or task.rules.trouble():
        raise ConfigurationError(f"{file}: {reason}")
    return LoadedTask(task, file, text, instructions)


def _check_corpus(corpus: str, file: Path) -> None:
    if corpus and not (_is_inside_folder(corpus) and _corpus_exists(file.parent / corpus)):
        raise ConfigurationError(
            f"{file}: `search.corpus` names {corpus!r}, which is neither a folder nor a `.jsonl`"
            " file next to the task file."
        )


def _is_inside_folder(path: str) -> bool:
    """Whether a path stays below the folder that it starts in."""
    return not Path(path).is_absolute() and ".." not in Path(path).parts


def _corpus_exists(corpus: Path) -> bool:
    try:
        return corpus.is_dir() or (corpus.suffix == ".jsonl" and corpus.is_file())
    except OSError:
        return False


def _check_source(source: str, file: Path) -> None:
    """A workspace lies inside the task's folder, so that a task is whole wherever it is copied."""
    if source and not (_is_inside_folder(source) and _is_folder(file.parent / source)):
        raise ConfigurationError(
            f"{file}: `workspace.source` names {source!r}, not a folder next to the task file."
        )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # it may not be looked at: reading it will say why
        return False


def _is_special_file(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # reading it will say why
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def compare_with_record(record: TaskRecord) -> tuple[bool, str]:
    """Whether the task file says something else than what was started, and why it cannot be read.

    Of a task whose file has another name than `task.toml` nothing is known: neither then.
    """
    folder = Path(record.folder)
    if not record.folder or (_is_folder(folder) and not (folder / "task.toml").exists()):
        return False, ""
    try:
        loaded = load_task(folder / "task.toml")
    except ConfigurationError as problem:
        return True, problem.cause
    if loaded.task.name != record.name:
        return False, ""
    return record not in (loaded.record(), loaded.record(hints=True)), ""


def parse_task_record(record: TaskRecord) -> Task:
    """The task as it was stored; raises ConfigurationError when this version cannot read it."""
    return _parse_definition(record.definition, f"stored task {record.name}")


@lru_cache(maxsize=64)  # half a millisecond, and rows of a group read the same task each time
def _parse_definition(definition: str, where: str) -> Task:
    return convert_toml(parse_toml(definition, where), Task, where)


def thought_handling(spec: RolloutSpec) -> ThoughtHandling:
    """Whether the thoughts of a rollout stay in its context: its start or its task may strip them.

    Raises ConfigurationError when this version cannot read its task.
    """
    own = parse_task_record(spec.task).sampling.thoughts
    return "strip" if "strip" in (spec.thoughts, own) else "keep"


def purify_settings(task: Task, changed: Mapping[str, Any]) -> PurifySettings:
    """The task's `[purify]` with what the start of a rollout set otherwise.

    Raises ConfigurationError for a key or value that is none.
    """
    tables = {**msgspec.structs.asdict(task.purify), **changed}
    return convert_toml({"purify": tables}, _PurifyTable, "the start").purify


class _PurifyTable(Settings, frozen=True):
    purify: PurifySettings


def _read_instructions(task: Task, file: Path) -> str:
    if bool(task.instructions) == bool(task.instructions_file):
        raise ConfigurationError(
            f"{file} needs exactly one of the keys `instructions` and `instructions_file`."
        )
    if task.instructions:
        return task.instructions
    place = file.parent / task.instructions_file
    if _is_special_file(place):  # a pipe would be waited for
        raise ConfigurationError(
            f"{file}: `instructions_file` names {task.instructions_file!r}, which is no plain file."
        )
    try:
        return read_text_file(place)
    except ConfigurationError as problem:
        raise ConfigurationError(f"{file}: `instructions_file`: {problem.cause}") from None


@cache
def packaged_tasks_folder() -> Path:
    """The folder with a folder for each packaged task."""
    spec = find_spec("houston_daemon")
    assert spec is not None and spec.submodule_search_locations, "one distribution holds both"
    return Path(spec.submodule_search_locations[0]) / "demo" / "tasks"


def load_packaged_tasks() -> list[LoadedTask]:
    """Every packaged task, those of research first, by name. Raises ConfigurationError."""
    tasks = [load_task(file) for file in sorted(packaged_tasks_folder().glob("*/task.toml"))]
    return sorted(tasks, key=lambda item: (not item.task.domain, item.task.domain, item.task.name))
