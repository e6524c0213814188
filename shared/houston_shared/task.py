"""The task file: what an agent is asked to do, in what, with which budgets (DESIGN §6).

This module reads and checks `task.toml`. It starts nothing and copies nothing.
"""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.errors import ConfigurationError
from houston_shared.records import TaskRecord, Thoughts
from houston_shared.task_rules import Rules
from houston_shared.task_servers import Http, Mcp
from houston_shared.task_tables import Data, Domain, Hints, Positive, Seconds, trouble
from houston_shared.task_tables import Evaluate as Evaluate
from houston_shared.task_worlds import Python, Questions, ScienceWorld, TextWorld
from houston_shared.toml_file import Settings, convert, parse, read_text, with_nul

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
Limit = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
GpuCount = Annotated[int, msgspec.Meta(ge=0, le=64)]
Variable = Annotated[str, msgspec.Meta(pattern=r"^[^=]+\Z")]


class Workspace(Settings, frozen=True):
    """Where the agent works."""

    source: str = ""
    """Folder beside the task file, copied for every rollout; empty starts with nothing."""


class Budget(Settings, frozen=True):
    """What a rollout may use. Every limit is here; there is no hidden one."""

    steps: Positive = 200
    """Steps before the rollout ends."""
    active_seconds: Seconds = 36_000.0
    """Active time: without pauses, downtime and waiting for engine, recorder or evaluation slot."""
    evaluations: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 3
    """Submissions to the evaluator."""
    evaluation_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Time that all evaluations of a rollout may take together, the last one too; 0 is no limit."""
    context_tokens: Positive = 100_000
    """A context longer than this is forked; less where the engine's window is smaller."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    """Most tokens of one sample; 0: 1,024, and a `chat` endpoint is sent no limit."""
    observation_tokens: Positive = 10_000
    """An observation is cut here, and says so; less where the engine's window is smaller."""
    command_seconds: Seconds = 10.0
    """How long run_command waits before it leaves a command running and says so."""
    input_silence_seconds: Seconds = 2.0
    """How long a running command must have been silent before input_in_session may answer it."""
    sleep_seconds: Seconds = 3_600.0
    """Longest single sleep."""
    minimum_steps: Positive = 1
    """`finish` is refused before this step."""


class Sandbox(Settings, frozen=True):
    """The sandbox and what else it maps. `sandbox = "none"` is short for the kind alone."""

    kind: Literal["bubblewrap", "none"] = "bubblewrap"
    """`none` runs commands unprotected; the rollout is marked so everywhere."""
    network: bool = False
    """Whether commands reach the network."""
    read: tuple[str, ...] = ()
    """Absolute folders mapped read-only: models, conda, data."""
    devices: tuple[str, ...] = ()
    """Device files that are mapped."""
    gpus: bool = False
    """Map `/dev/nvidia*`."""
    processes: Limit = 4_096
    """Most processes and threads of the rollout at once, over all its sessions; 0 is no limit."""
    memory_mb: Limit = 0
    """Most memory of the rollout, in MB of 1,048,576 bytes; 0 is what all rollouts of the machine
    may use together (`memory_mb` of `[hosts]`)."""
    shm_mb: Limit = 0
    """Most that `/dev/shm` of one session holds, in MB; 0 is half of the rollout's memory."""
    file_mb: Limit = 0
    """Largest single file; 0 is as large as `workspace_mb`."""
    workspace_mb: Limit = 50_000
    """Most that workspace, home and `/tmp` may hold; what writes beyond is ended. 0 is no limit."""


class Search(Settings, frozen=True):
    """Where the agent's searches look."""

    corpus: str = ""
    """Folder of text, Markdown and HTML files, or a `.jsonl` file with an object of `title`, `text`
    and perhaps `id` and `url` in each line, beside the task file; empty for the node's provider."""


class Browse(Settings, frozen=True):
    """What the agent may browse."""

    private_addresses: bool = False
    """Whether pages of this machine and its networks may be fetched."""
    hosts: tuple[str, ...] | None = None
    """Hosts whose pages may be fetched, also by a redirect; `*` stands for any characters, as in
    `*.arxiv.org`. Left out, all of them where the agent's commands reach the network (`[sandbox]
    network`, or no sandbox), else none: only the pages of a corpus. Pages are fetched by the node,
    and what an agent puts into an address leaves the machine."""


Window = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Score = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Attention(Settings, frozen=True):
    """When a step is marked for people to look at (docs/attention.md); 0 turns a signal off."""

    error_streak: Window = 3
    """`error_streak`: steps in a row in which something went wrong."""
    repeated_actions: Window = 3
    """`repeated_action`: the same action this often, in a row or in turn with one other."""
    blind_edit_steps: Window = 5
    """`blind_edit`: steps before an edit in which the file must have been looked at; 1 is APOLLO's
    rule. 0 asks only that it was seen since it last changed."""
    unchanged_steps: Window = 40
    """`no_change`: steps in a row that changed no file."""
    long_sleep_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 1_800.0
    """`long_sleep`: a single sleep."""
    idle_sleep_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 60.0
    """`idle_sleep`: a single sleep while no session runs anything."""
    score_drop: Score = 5.0
    """`score_fell`: points below the best score so far."""
    no_gain_evaluations: Window = 5
    """`no_gain`: submissions in a row that scored no better than the best before them."""
    no_gain_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 14_400.0
    """`no_gain`: active time without a better score."""
    low_score: Score = 50.0
    """`low_finish`: best score below which an end is worth a look."""
    budget_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    """`near_budget`: share of the steps or of the active time that is left."""
    evaluations_left: Window = 1
    """`near_budget`: submissions left when one is used."""
    signals: tuple[Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]{0,39}$")], ...] = ()
    """Signals that installed packages bring, which are looked at, too (docs/extending.md)."""


class Sampling(Settings, frozen=True):
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
    thoughts: Thoughts = "keep"
    """`strip` leaves thoughts out of the context, as APOLLO does."""


class Task(Settings, frozen=True):
    """A task file. `name`, and one of `instructions` and `instructions_file`, are required."""

    name: Name
    """Lower-case letters, digits and hyphens, at most 40."""
    domain: Domain = ""
    """Kind of research, as in APOLLO's table 3; empty for none of them."""
    instructions: str = ""
    """What the agent is asked to do: motivation, goal, rules, what it may use."""
    instructions_file: str = ""
    """Text file beside the task file, instead of `instructions`."""
    environment: Annotated[str, msgspec.Meta(min_length=1, max_length=60)] = "workstation"
    """What turns actions into observations: one of Houston's own, or of a package that is installed
    beside it. `search_qa` asks one of the task's questions over its corpus; `python` is a code
    tool, perhaps with a question; `scienceworld` and `textworld` are simulated worlds; `http` is a
    simulator that you run; `mcp` is servers of tools; `null` does nothing, for benchmarks."""
    agent: Literal["react"] = "react"
    """How the loop thinks: `react` is thought, action, observation."""
    sandbox: Literal["bubblewrap", "none"] | Sandbox = "bubblewrap"
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
    tools: tuple[str, ...] = ()
    """Names of the actions that the agent may use; empty for all of the environment."""
    workspace: Workspace = Workspace()
    """Where the agent works."""
    budget: Budget = Budget()
    """What a rollout may use."""
    evaluate: Evaluate = Evaluate()
    """How the workspace is scored; without a command there is no score."""
    data: Data = Data()
    """What is mapped read-only beside the workspace."""
    hints: Hints = Hints()
    """Help that agents go without unless somebody asks for it."""
    activate: str = ""
    """Folder of a virtual or conda environment, absolute or beside the task file: mapped read-only,
    and its programs are found first in every session and by the evaluator. Its `activate` scripts
    are not run, those in `etc/conda/activate.d` neither: what they would set (such as `CUDA_HOME`)
    belongs into `environment_variables`."""
    sampling: Sampling = Sampling()
    """How the policy samples."""
    search: Search = Search()
    """Where the agent's searches look."""
    browse: Browse = Browse()
    """What the agent may browse."""
    questions: Questions = Questions()
    """What `search_qa` asks; `python` asks it too where a file is named."""
    python: Python = Python()
    """The code tool of `python`."""
    http: Http = Http()
    """The simulator of `http`."""
    mcp: Mcp = Mcp()
    """The servers of `mcp`."""
    scienceworld: ScienceWorld = ScienceWorld()
    """Which worlds `scienceworld` gives to rollouts."""
    textworld: TextWorld = TextWorld()
    """Which games `textworld` makes for rollouts."""
    attention: Attention = Attention()
    """When a step is marked for people to look at."""
    rules: Rules = Rules()
    """Which steps rules mask, and how."""
    settings: dict[str, Any] = {}
    """Settings of an environment that another package brings, and of the simulator of `http`."""
    environment_variables: dict[Variable, str] = {}
    """Set for every command of the agent and for the evaluator; `[secret:NAME]` stands for a secret
    of the daemon's environment, which the model never sees."""

    @property
    def mapped(self) -> Sandbox:
        """The sandbox as a table, whichever way it was written."""
        return Sandbox(kind=self.sandbox) if isinstance(self.sandbox, str) else self.sandbox

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
        told = self.instructions
        if self.task.hints.text and (hints or self.task.hints.shown):
            told = f"{told.rstrip()}\n\nHints:\n{self.task.hints.text.strip()}"
        return TaskRecord(
            name=self.task.name,
            folder=str(self.folder),
            definition=self.text,
            instructions=told,
        )


def load_task(path: Path) -> LoadedTask:
    """Read and check a task file, or the `task.toml` in a folder.

    Raises ConfigurationError naming the file, the key and what is allowed.
    """
    file = (path / "task.toml" if _is_folder(path) else path).absolute()
    text = read_text(file)
    tables = parse(text, str(file))
    if key := with_nul(tables):
        raise ConfigurationError(f"{file}: `{key}` holds a NUL character, as no text may.")
    task = convert(tables, Task, str(file))
    instructions = _instructions(task, file)
    _check_source(task.workspace.source, file)
    _check_corpus(task.search.corpus, file)
    why = trouble(task.evaluate, task.hosts) or task.data.trouble(task.mapped.kind)
    if why := why or task.rules.trouble():
        raise ConfigurationError(f"{file}: {why}")
    return LoadedTask(task, file, text, instructions)


def _check_corpus(corpus: str, file: Path) -> None:
    if corpus and not (_inside(corpus) and _is_there(file.parent / corpus)):
        raise ConfigurationError(
            f"{file}: `search.corpus` names {corpus!r}, which is no folder and no `.jsonl` file"
            " beside the task file."
        )


def _inside(path: str) -> bool:
    """Whether a path stays below the folder that it starts in."""
    return not Path(path).is_absolute() and ".." not in Path(path).parts


def _is_there(corpus: Path) -> bool:
    try:
        return corpus.is_dir() or (corpus.suffix == ".jsonl" and corpus.is_file())
    except OSError:
        return False


def _check_source(source: str, file: Path) -> None:
    """A workspace lies inside the task's folder, so that a task is whole wherever it is copied."""
    if source and not (_inside(source) and _is_folder(file.parent / source)):
        raise ConfigurationError(
            f"{file}: `workspace.source` names {source!r}, which is no folder beside the task file."
        )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # it may not be looked at: reading it will say why
        return False


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # reading it will say why
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def edited_since(record: TaskRecord) -> tuple[bool, str]:
    """Whether the task file says something else than what was started, and why it cannot be read.

    Of a task whose file has another name than `task.toml` nothing is known: neither then.
    """
    folder = Path(record.folder)
    if not record.folder or (_is_folder(folder) and not (folder / "task.toml").exists()):
        return False, ""
    try:
        found = load_task(folder / "task.toml")
    except ConfigurationError as problem:
        return True, problem.cause
    if found.task.name != record.name:
        return False, ""
    return record not in (found.record(), found.record(hints=True)), ""


def parse_task(record: TaskRecord) -> Task:
    """The task as it was stored; raises ConfigurationError when this version cannot read it."""
    where = f"stored task {record.name}"
    return convert(parse(record.definition, where), Task, where)


def _instructions(task: Task, file: Path) -> str:
    if bool(task.instructions) == bool(task.instructions_file):
        raise ConfigurationError(
            f"{file} needs exactly one of the keys `instructions` and `instructions_file`."
        )
    if task.instructions:
        return task.instructions
    place = file.parent / task.instructions_file
    if _is_special(place):  # a pipe would be waited for
        raise ConfigurationError(
            f"{file}: `instructions_file` names {task.instructions_file!r}, which is no plain file."
        )
    try:
        return read_text(place)
    except ConfigurationError as problem:
        raise ConfigurationError(f"{file}: `instructions_file`: {problem.cause}") from None
