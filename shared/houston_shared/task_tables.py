"""Tables of the task file: scoring, mounts and hints, questions and worlds, servers, and rules.

Structs with a sentence under each key. They are read with the rest of the file (`task`), which
checks what they name. Nothing here knows a question, makes a world, speaks to a server or knows a
rule: names of rules are checked where rules are.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec

from houston_shared.toml_file import Settings

PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
FiniteFloat = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
MountName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$")]
DATA_FOLDER = "/data"
"""Where `[data.mounts]` lie for the agent and its evaluator."""
TaskDomain = Literal[
    "",
    "data-construction",
    "data-filtering",
    "data-augmentation",
    "loss-design",
    "reward-design",
    "scaffold-construction",
]


class EvaluationSettings(Settings, frozen=True):
    """How the workspace is scored, 0 to 100: the command runs in the task folder, which it sees
    read-only like the workspace (`$WORKSPACE`), and prints one JSON object.

    Without `baseline` and `reference` that object has `overall_score`, 0 to 100. With both it has
    `raw_score` in units of its own, and the score is
    100 × (raw_score − baseline) / (reference − baseline), not below 0 and not above 100; where less
    is better, `reference` is the smaller one. Other members are shown to the agent as metrics.

    Nothing is scored, and no submission used, while links of the workspace lead to the task folder
    or into `/proc`: an evaluator that follows them would read its own solutions. Sessions go on
    while it runs and could lay such a link then: open with `O_NOFOLLOW` what has the form of the
    solutions.
    """

    command: str = ""
    """Shell command in the task folder; prints the object and exits with 0."""
    seconds: PositiveSeconds = 60.0
    """Time limit of one evaluation; as much active time is reserved for a last one."""
    slots: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 1
    """Evaluations of this task that may run at once on a host."""
    host: str = ""
    """The one of `hosts` on which it runs and whose workspace it scores; empty for the first."""
    required: tuple[str, ...] = ()
    """Files or folders of the workspace that must be there, as more than links that lead out of it;
    without them nothing is scored, no submission is used, and the agent is told which are missing.
    """
    format: str = ""
    """Shell command in the task folder that runs before `command`, shut in like it and within
    `seconds`, too. When it exits with another code than 0 nothing is scored and no submission is
    used; what it prints is shown to the agent, so it must say nothing of solutions."""
    copy: bool = False
    """Let it work in a copy of the workspace, which it may change; the agent sees nothing of that.
    Only on the host `local`."""
    criteria: str = ""
    """How it is scored, in words, for a critic (`houston critique`); the agent is not shown it."""
    baseline: FiniteFloat | None = None
    """`raw_score` of the baseline: 0 points."""
    reference: FiniteFloat | None = None
    """`raw_score` of the reference solution: 100 points."""


def evaluation_trouble(evaluate: EvaluationSettings, hosts: Sequence[str]) -> str:
    """What no value of one key alone can say, as a sentence; empty where nothing is wrong."""
    if evaluate.host and evaluate.host not in hosts:
        return f"`evaluate.host` is {evaluate.host!r}, not one of `hosts` ({', '.join(hosts)})."
    ends = (evaluate.baseline, evaluate.reference)
    if (ends[0] is None) != (ends[1] is None) or (ends[0] is not None and ends[0] == ends[1]):
        return (
            "`evaluate.baseline` and `evaluate.reference` are given together, as two different"
            " numbers, or not at all."
        )
    for path in evaluate.required:
        if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            return f"`evaluate.required` names {path!r}, which is not a path in the workspace."
    if not evaluate.command and (evaluate.required or evaluate.format or ends[0] is not None):
        return "[evaluate] has no `command`, so nothing is scored."
    return ""


class AgentRoleSettings(Settings, frozen=True):
    """What a role of the agent samples with where that is not what its steps are sampled with."""

    engine: str = ""
    """Engine of houston.toml, or `script:FILE` beside the task file; empty for the rollout's. It is
    shown the whole context anew, in its own model's dialect."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    """Left out, that of `[sampling]`."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Left out, that of `[sampling]`."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    """Most tokens of one answer, where that is less than what there is room for; 0: as many as
    there is room for, and a `chat` endpoint is sent no limit."""


class MemorySettings(Settings, frozen=True):
    """What a `flow` knows of earlier rollouts of the same task. It needs the extra `memory`."""

    enabled: bool = False
    """Whether it is told of questions like its own, and leaves its own; never in suites, training
    and evaluations."""
    recalled: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    """Most earlier rollouts that it is told of."""


AgentKind = Literal["react", "flow"]


class AgentSettings(Settings, frozen=True):
    """The agent, and those of its roles that may have settings of their own."""

    kind: AgentKind = "react"
    """How the loop thinks: `react` is thought, action, observation. `flow` is a planner that says
    one action a step, and a verifier that says whether the question is answered (docs/flow.md)."""
    verify: bool = True
    """Whether a `flow` asks its verifier; without it the planner alone decides when to answer."""
    summary: AgentRoleSettings = AgentRoleSettings()
    """Who sums up the older half of a context that is forked."""
    planner: AgentRoleSettings = AgentRoleSettings()
    """Who decides each step of a `flow`; its engine takes the place of the rollout's."""
    verifier: AgentRoleSettings = AgentRoleSettings()
    """Who says whether the question of a `flow` is answered."""
    memory: MemorySettings = MemorySettings()
    """What a `flow` knows of earlier rollouts."""
    autopilot: bool = False
    """Whether the agent hears what a critic drafts without a person (docs/critic.md). It is shown
    wherever somebody may speak to the agent."""

    @property
    def trouble(self) -> str:
        """What no value of one key alone can say, as a sentence; empty where nothing is wrong."""
        flow_only = (self.planner, self.verifier) != (AgentRoleSettings(), AgentRoleSettings())
        if self.kind != "flow" and flow_only:
            return '`agent.planner` and `agent.verifier` are used only with `agent.kind = "flow"`.'
        if self.kind != "flow" and (self.memory.enabled or not self.verify):
            return '`agent.memory` and `agent.verify` are used only with `agent.kind = "flow"`.'
        return ""


class DataSettings(Settings, frozen=True):
    """What is mapped read-only beside the workspace."""

    mounts: dict[MountName, str] = {}
    """`NAME = "folder or file"`, absolute or beside the task file: the agent and its evaluator see
    it at `/data/NAME`. It needs the sandbox."""

    def trouble(self, sandbox: str) -> str:
        """Why it cannot be mapped in this kind of sandbox, as a sentence; empty where it can."""
        none = self.mounts and sandbox == "none"
        return "`data.mounts` needs the sandbox, which is `none`." if none else ""


class HintSettings(Settings, frozen=True):
    """Help with the task that agents go without unless somebody asks for it. No action asks for it:
    an agent has it from the first step, as a part of its instructions, or not at all."""

    text: str = ""
    """Follows the instructions where hints are shown."""
    shown: bool = False
    """Show them to every rollout; `houston rollout start --hints` shows them to some."""


QuestionSplit = Literal["train", "test"]
QuestionScorer = Literal["text", "math", "choice", "tests"]


class QuestionSettings(Settings, frozen=True):
    """What `search_qa` asks, and `python` where `file` is named."""

    file: str = ""
    """JSON Lines file beside the task file: `question`, `answers`, and perhaps `id` and `split`
    in each line; a line without a split gets one by the hash of its question, a fifth for `test`.
    """
    split: Literal["train", "test", "all"] = "train"
    """Which questions are asked."""
    repeat: PositiveInt = 1
    """How many consecutive seeds get the same question: the size of a group that is compared."""
    id: str = ""
    """Ask this one always; empty to choose by the rollout's seed."""
    scorer: QuestionScorer = "text"
    """How an answer is scored: as a `text`, by `math`-verify (the extra `evaluate`), as a `choice`
    whose letter and text are the `answers`, or, in `research` only, as a program that must pass the
    question's hidden `tests`."""


WorldSplit = Literal["train", "dev", "test"]


class ScienceWorldSettings(Settings, frozen=True):
    """Which worlds `scienceworld` gives to rollouts."""

    tasks: tuple[str, ...] = ()
    """Names of ScienceWorld's tasks, such as `boil`; empty for all 30. They take turns."""
    split: Literal["train", "dev", "test"] = "train"
    """Which variations: ScienceWorld's own split, in which each belongs to one."""
    simplifications: tuple[str, ...] = ()
    """`easy` for all of `teleportAction`, `selfWateringFlowerPots`, `openContainers`, `openDoors`,
    `noElectricalAction` that fit, or some of these."""
    variation: Annotated[int, msgspec.Meta(ge=-1, le=10_000)] = -1
    """Give this one always; -1 to choose by the rollout's seed."""
    repeat: PositiveInt = 1
    """How many consecutive seeds get the same world: the size of a group that is compared."""
    first_look: bool = True
    """Show the first room behind the goal; without it a context is some 100 tokens shorter."""


class TextWorldSettings(Settings, frozen=True):
    """Which games TextWorld's generator makes for rollouts."""

    game: Literal["house", "treasure_hunter", "coin_collector", "cooking"] = "house"
    """Kind of game: `house` is TextWorld's own maker of quests, the others are its challenges."""
    split: Literal["train", "dev", "test"] = "train"
    """Which games: each belongs to one split by its structure, half of them to `train`, a quarter
    each to `dev` and `test`."""
    rooms: Annotated[int, msgspec.Meta(ge=1, le=50)] = 6
    """Rooms of `house` and `cooking` (there 1, 6, 9 or 12)."""
    objects: Annotated[int, msgspec.Meta(ge=1, le=100)] = 12
    """Objects of `house`."""
    quest_length: Annotated[int, msgspec.Meta(ge=1, le=20)] = 4
    """Commands that the quest of `house` needs."""
    goal: Literal["detailed", "brief"] = "brief"
    """How `house` tells its quest: every command, or the last one only."""
    level: Annotated[int, msgspec.Meta(ge=1, le=300)] = 5
    """Difficulty of `treasure_hunter` (1 to 30) and `coin_collector` (1 to 300)."""
    ingredients: Annotated[int, msgspec.Meta(ge=1, le=3)] = 2
    """Ingredients that `cooking` asks for, to be found, cut and cooked."""
    seed: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)] = -1
    """Seed of the generator, for one game always, of whatever split; -1 to choose by the rollout's
    seed."""
    repeat: PositiveInt = 1
    """How many consecutive seeds get the same game: the size of a group that is compared."""


WorldWord = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,20}$")]


class WordWorldSettings(Settings, frozen=True):
    """The world of `word_world`, whole: a suite writes a task for each (docs/suites.md)."""

    right: str = ""
    """Box that holds what the instructions ask for; nothing in the world says so."""
    wanted: dict[WorldWord, WorldWord] = {}
    """`ITEM = "BOX"`, in place of `right`: several items, each a part of the score."""
    codes: dict[WorldWord, Annotated[str, msgspec.Meta(pattern=r"^[0-9]{3}$")]] = {}
    """`BOX = "123"`, for each box the code on the paper in it."""


FileName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_.-]{1,40}$")]


class SmallWorkstationSettings(Settings, frozen=True):
    """The files of `small_workstation`, which are in no folder (docs/suites.md)."""

    files: dict[FileName, str] = {}
    """`NAME = "text"`, as they are at the beginning."""
    wanted: dict[FileName, str] = {}
    """`NAME = "text"`, as they must be at the end, but for white space around them."""


class PythonToolSettings(Settings, frozen=True):
    """The code tool of `python`."""

    seconds: PositiveSeconds = 10.0
    """Longest run of one call."""
    memory_mb: Annotated[int, msgspec.Meta(ge=64, le=10**6)] = 1_024
    """Most address space of a process of the code, in MB of 1,048,576 bytes."""
    packages: tuple[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_]\w*$")], ...] = (
        "numpy",
        "sympy",
        "mpmath",
    )
    """What code may import beside the standard library."""


_ServerSeconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class HttpSimulatorSettings(Settings, frozen=True):
    """The simulator of `http` (docs/http-environment.md)."""

    url: str = ""
    """Its address, `http://…` or `https://…`; `/reset`, `/step` and `/score` follow it."""
    seconds: _ServerSeconds = 60.0
    """Longest time of one request."""
    patience_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    """How long a request is tried again, where that is safe, before the agent is told."""
    api_key_env: str = ""
    """Variable of the daemon's environment whose value is sent as a bearer token: a secret
    (`[secrets]` of houston.toml) of at least 8 characters, taken out of whatever is stored."""
    score: bool = True
    """Whether `/score` says how well the agent did."""


class McpServerSettings(Settings, frozen=True):
    """One server of tools (Model Context Protocol): `command` or `url`."""

    command: str = ""
    """Program that is started in the rollout's sandbox and spoken to over its input and output."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: dict[str, str] = {}
    """Variables of the program; `[secret:NAME]` stands for a secret of the daemon's environment."""
    url: str = ""
    """Address of a server that runs already (streamable HTTP)."""
    headers: dict[str, str] = {}
    """Headers of every request to `url`; `[secret:NAME]` as in `env`."""
    start_seconds: _ServerSeconds = 60.0
    """Longest time until it has listed its tools."""
    seconds: _ServerSeconds = 120.0
    """Longest time of one call."""


class McpSettings(Settings, frozen=True):
    """The servers of `mcp`."""

    servers: dict[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")],
                  McpServerSettings] = {}  # fmt: skip
    """Servers by name; the name stands before tools that two of them have."""


RewardScale = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class OpenEnvSettings(Settings, frozen=True):
    """The server of `openenv` (docs/foreign-environments.md); `[settings]` goes with its reset."""

    url: str = ""
    """Its address, `http://…` or `https://…`, as OpenEnv's own clients take it."""
    seconds: _ServerSeconds = 60.0
    """Longest time of one request."""
    api_key_env: str = ""
    """Variable of the daemon's environment whose value is sent as a bearer token: a secret
    (`[secrets]` of houston.toml), taken out of whatever is stored."""
    replayable: bool = False
    """Whether the same seed and the same actions always lead to the same state. Then a session that
    is lost, with its worker or its connection, is made again; else its rollout waits for a person.
    """
    rewards: Literal["sum", "last", "none"] = "sum"
    """What the score is made of: all rewards of the episode, the last one, or nothing."""
    full_reward: RewardScale = 1.0
    """The reward that scores 100; 0 and less score 0."""


class VerifiersSettings(Settings, frozen=True):
    """What `verifiers` runs of the package of that name (docs/foreign-environments.md);
    `[settings]` is the configuration of its taskset."""

    taskset: str = ""
    """Id of the taskset, as `vf-eval` takes it: a module that exports one, or one of the package's.
    """
    env: str = ""
    """Id of the environment, where it is not the taskset's own."""
    python: str = ""
    """Interpreter that has `verifiers`, absolute or beside the task file; empty for the daemon's
    own. The package pins versions that Houston's extra `envs` does not take."""
    index: Annotated[int, msgspec.Meta(ge=-1, le=10**9)] = -1
    """Give this task of the taskset always; -1 to choose by the rollout's seed."""
    repeat: PositiveInt = 1
    """How many consecutive seeds get the same task: the size of a group that is compared."""
    start_seconds: _ServerSeconds = 180.0
    """Longest time until the episode has begun."""
    seconds: _ServerSeconds = 120.0
    """Longest time of one call, and of the score."""
    replayable: bool = False
    """As for `openenv`."""
    full_reward: RewardScale = 1.0
    """The reward that scores 100; 0 and less score 0."""


class ReasoningGymSettings(Settings, frozen=True):
    """The question of `reasoning_gym`, which a suite writes (docs/suites.md); `[settings]` is the
    configuration of its dataset."""

    dataset: str = ""
    """Name of a dataset of the package `reasoning-gym`, such as `chain_sum`."""
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    """The seed of which the dataset makes the question."""


class PurifySettings(Settings, frozen=True):
    """Whether a failed call is corrected ahead, and the step stored as if it had come right at once
    (docs/purification.md). Only where the environment can take a call back."""

    enabled: bool = False
    """Look ahead for a correction when a call fails or an answer is no action."""
    retries: Annotated[int, msgspec.Meta(ge=1, le=16)] = 3
    """Most corrections that are sampled for one step."""
    similarity: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """From this likeness of failed and corrected call on, the first thought is kept."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7
    """Share of the rollouts that are purified, drawn by their seeds."""


RuleName = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]{0,39}$")]
RegexPattern = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
RuleCount = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
ScorePoints = Annotated[float, msgspec.Meta(ge=0, le=100)]


class GuidanceContradiction(Settings, frozen=True):
    """`[[rules.guidance]]`: which actions contradict which guidance, as regular expressions without
    regard to case."""

    said: RegexPattern
    """Guidance that holds this forbids…"""
    action: RegexPattern
    """…actions that hold this: a name of a call, a command, a path, or text that is written."""


class ResourceSettings(Settings, frozen=True):
    """What a node of a cluster must have free for the rollout's worker and all that it runs
    (docs/ray.md); on a single machine nobody asks. GPUs are `gpus` of the task."""

    cpus: Annotated[float, msgspec.Meta(ge=0, le=1_024)] | None = None
    """CPUs; left out, `[ray] cpus` of houston.toml."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    """Memory, in MB of 1,048,576 bytes; 0: `[sandbox] memory_mb`, and where that is 0, any."""
    labels: dict[str, str] = {}
    """Labels of the node, e.g. `{ "zone" = "a", "ray.io/accelerator-type" = "H100" }`; a value may
    be `!x` or `in(x, y)`, as Ray has it."""


class RuleSettings(Settings, frozen=True):
    """Which steps rules mask, so that nothing is learned from them (docs/rules.md)."""

    only: tuple[RuleName, ...] = ()
    """Rules that are looked at; empty for all."""
    off: tuple[RuleName, ...] = ()
    """Rules that are not."""
    packages: tuple[RuleName, ...] = ()
    """Rules that installed packages bring, which are looked at, too (docs/extending.md)."""
    error_patterns: tuple[RegexPattern, ...] = ()
    """`error_observation`: regular expressions; an observation with a line that one of them fits is
    an error, too."""
    blind_edit_steps: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """`blind_edit`: steps before an edit in which the file must have been looked at."""
    blind_replacements: bool = True
    """`blind_edit`: whether writing a whole file anew over one that is there is an edit."""
    provided: tuple[RegexPattern, ...] = ()
    """`ignored_script`: scripts that the task gives, as paths in the workspace, besides those that
    its instructions name and those that the agent found there."""
    vllm: bool = False
    """`transformers_inference`: vLLM is there. Left out, it is where the rollout has GPUs or the
    instructions name it."""
    gpus: RuleCount = 0
    """`idle_compute`: GPUs of a host where the task leases none; 0: as many as `nvidia-smi` showed
    to the agent."""
    training: tuple[RegexPattern, ...] = ()
    """`idle_compute`: regular expressions of further commands that train."""
    lora_gpus: RuleCount = 0
    """`idle_compute`: a host with at least so many GPUs is not for LoRA; 0: LoRA is never idle."""
    guidance: tuple[GuidanceContradiction, ...] = ()
    """`contradicted_guidance`: patterns besides those that guidance itself says, such as
    `{ said = "full fine-tuning", action = "lora" }`."""
    guidance_found: bool = True
    """`contradicted_guidance`: whether to find what guidance forbids in its words (`do not use
    X`)."""
    guidance_steps: RuleCount = 10_000
    """`contradicted_guidance`: steps before the guidance that it may condemn; 0: it speaks only of
    what comes."""
    guidance_call_steps: RuleCount = 3
    """`contradicted_guidance`: steps right before and right after guidance that forbids something
    for the moment (`stop sleeping`, `do not finish`) which it may condemn."""
    max_score: ScorePoints = 100.0
    """`after_best`: the highest score that this task can give; 100 is what surpasses the reference
    (APOLLO, appendices B.4 and E)."""
    high_score: ScorePoints = 50.0
    """`lowered_score`: only a best score above this is one to lose; from a lower one a drop is
    exploration."""
    score_drop: ScorePoints = 1.0
    """`lowered_score`: points below the best."""

    def trouble(self) -> str:
        """What no value of one key alone can say, as a sentence; empty where nothing is wrong."""
        if self.only and self.off:
            return "`rules.only` and `rules.off` cannot be given together."
        for key, pattern in self._patterns():
            try:
                re.compile(pattern)
            except re.error as problem:
                return f"`rules.{key}` has {pattern!r}, which is no regular expression: {problem}."
        return ""

    def _patterns(self) -> Iterator[tuple[str, str]]:
        yield from (("error_patterns", pattern) for pattern in self.error_patterns)
        yield from (("training", pattern) for pattern in self.training)
        for rule in self.guidance:
            yield from (("guidance", rule.said), ("guidance", rule.action))
