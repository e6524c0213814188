"""The larger tables of `houston.toml`: `[engines.NAME]`, `[hosts]`, `[judge]`, `[notify]`,
`[artifacts]`, `[recorder]` and `[tools]`.

Structs with a sentence under each key, which the documentation is made from; and the checks that an
engine's kind is Houston's own or registered, quiet hours are hours, addresses are some and the URL
of a store holds no login. Where the file is looked for and how it is merged with the environment
stands in `config`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec

from houston_shared.errors import ConfigurationError
from houston_shared.recorder_endpoint import is_tcp_address
from houston_shared.toml_file import Settings

ReasoningField = Literal["none", "chat_template", "effort"]
Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_MILLION = 1_000_000


class EnginePrice(Settings, frozen=True):
    """What an engine's tokens cost, by the million, in `currency`: `[engines.NAME.price]`."""

    input: Price
    """A million tokens of prompts that were not in the engine's cache."""
    output: Price
    """A million sampled tokens, those of reasoning included."""
    cached: Price | None = None
    """A million prompt tokens that were in its cache; left out, as `input`."""

    def cost(self, prompt: int, cached: int, sampled: int) -> float:
        """What one request cost. prompt: all of its tokens, `cached` of them from the cache."""
        cached = min(cached, prompt)
        reread = self.input if self.cached is None else self.cached
        sums = (prompt - cached) * self.input + cached * reread + sampled * self.output
        return sums / _MILLION


class EngineSettings(Settings, frozen=True):
    """One engine. Which keys matter depends on `kind`."""

    kind: str
    """`embedded`: our transformers server, a child process. `vllm`: `vllm serve` as a child.
    `token`: a vLLM (or equal) that already runs at `url`. `chat`: any OpenAI-compatible endpoint
    at `url`. `script`: plays the actions in the file `path`. `recorded`: plays back a recording.
    Packages register more (docs/extending.md)."""
    url: str = ""
    """Base address, e.g. `http://127.0.0.1:8000/v1`."""
    urls: tuple[str, ...] = ()
    """Instead of `url`: base addresses of several servers that serve the same model, one replica
    each. A rollout keeps to one of them, and moves when that one is away (docs/engines.md)."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """How many servers a child is (`embedded` and `vllm`): each with a port, a log and `gpus` of
    its own. The first is called as the engine, the others `NAME#2`, `NAME#3`, …"""
    silence_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Longest silence of a server that is at work, before its request is sent again; 0: 900 s with
    token ids, 600 s for `chat`. A long prompt on a slow machine is silent for long."""
    port: int = 0
    """Port of a child on the loopback address; 0 takes a free one."""
    command: tuple[str, ...] = ()
    """Command of a `vllm` child; empty for the one that `doctor --install-engine` made."""
    args: tuple[str, ...] = ()
    """Further arguments of `vllm serve`, after Houston's own, e.g. `["--max-model-len", "8192"]`.
    `--host`, `--port`, `--uds`, `--model`, `--served-model-name`, `--api-key`, `--config`,
    `--logprobs-mode` and `--headless` are Houston's. A `command` of your own takes none.
    """
    model: str = ""
    """Model name in requests, or the model of a child: its folder, or `org/name` or
    `org/name@revision` of the Hugging Face hub (docs/your-model.md), which a folder of that name
    beside this file comes before; empty for SmolLM2-135M-Instruct."""
    tokenizer: str = ""
    """tokenizer.json of the model, its folder, or the model on the hub (`org/name@revision`), of
    which no weights are fetched; empty for the one in the model folder. A `token` engine needs it,
    unless `model` is a folder; `chat` has no use for it."""
    dialect: str = "chatml-json"
    """How the model's family writes prompts and calls, for engines that take token ids (and `chat`
    with `tool_calls = "text"`). `chatml-json`: models with `<|im_end|>` that write JSON under a
    schema (SmolLM2, any small ChatML model). `hermes`: `<tool_call>` with JSON (Hermes, Qwen2.5).
    `qwen3`: as that, with thinking switched by `reasoning` (Qwen3). `glm45`: GLM-4.5 and 4.6.
    `chatml-calls`: one call a line and a short head, for small ChatML models in short contexts.
    `words`: tiny policies (`houston policy tiny`). Other families (Llama 3, Mistral, DeepSeek,
    Gemma, GLM, Kimi, MiniMax, Nemotron, Qwen3.5, …) as their templates say: docs/families.md."""
    window: int = 0
    """Largest prompt + answer in tokens; 0 for what the model or server says. A `chat` endpoint
    that is not said to have one refuses what is too long, and the context is then forked."""
    api_key_env: str = ""
    """Environment variable that holds the key; the key itself is never stored. It is read from the
    daemon's environment: after a change `export NAME=…; houston daemon restart`."""
    parameters: dict[str, Any] = {}
    """For `chat`, `token`, `vllm` and `embedded`: added to each request, over what the task file
    says, e.g. `{ temperature = 1.0, max_completion_tokens = 8192, reasoning_effort = "high" }`.
    `embedded` samples by `temperature` and `top_p` alone. Nothing else is sent to a `chat` endpoint
    than the model, messages, tools, `temperature`, `top_p` and the limit of an answer where the
    task file sets them, and `stream` with `stream_options` (for the count of tokens), which an
    endpoint that refuses them by name is not sent again; `{ stream = false }` asks for whole
    answers."""
    omit_parameters: tuple[str, ...] = ()
    """Names that are never sent, whoever asks for them, e.g. `["temperature", "stream_options"]`:
    what `null` would say, which TOML does not have."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """For `chat`: by which name a task's `budget.answer_tokens` is sent; OpenAI's reasoning models
    want the second."""
    headers: dict[str, str] = {}
    """Sent with each request of `chat` and `token`. What looks like a secret is refused here."""
    headers_env: dict[str, str] = {}
    """Header → environment variable of the daemon that holds its value, for secrets, e.g.
    `{ "x-api-key" = "GATEWAY_KEY" }`. They are neither stored nor shown, and redacted like keys."""
    reasoning: bool = False
    """Let the model write reasoning tokens."""
    reasoning_field: ReasoningField = "none"
    """For `chat`: how `reasoning` is told. `none`: not at all, the model decides. `chat_template`:
    `chat_template_kwargs.enable_thinking`, on and off (vLLM, SGLang). `effort`: `reasoning_effort`
    where it is on (OpenAI; `parameters` may say how much)."""
    tool_calls: Literal["native", "text"] = "native"
    """For `chat`: the endpoint's own tool calls; or, for one that has none, `text`: the first
    message lists the tools and the form of an answer, which the dialect then reads."""
    path: str = ""
    """For `script` and `recorded`: the JSON Lines file, from the folder of this file."""
    environment: dict[str, str] = {}
    """Extra environment of a child; it wins over what Houston sets, e.g. `HF_HUB_OFFLINE = "0"`.
    """
    settings: dict[str, Any] = {}
    """Settings of a kind that another package brings, as that package documents them."""
    price: EnginePrice | None = None
    """What its tokens cost, e.g. `{ input = 3.0, cached = 0.3, output = 15.0 }`; left out, the cost
    of its samples is not known, and no task with `budget.cost` runs on it."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """GPUs of this machine that a child leases and alone sees; 0 leases none and sees all."""
    gpus_shared: bool = False
    """Whether they may be shared with rollouts and trainers that say the same."""
    max_adapters: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """Policies that may be live on it at once; 0: 8 for `embedded` and `vllm`, what `command` says
    (`--max-cpu-loras`, `--max-loras`), and any number where only the server knows."""
    lora: bool = True
    """Whether a `vllm` child takes LoRA adapters. One that takes none samples the base 1.6 times
    as fast on the CPU as one that does and has none active (with one active it is slower again),
    and only full weights can be activated for it. With a `command` of your own, say what that does.
    """

    @property
    def addressed(self) -> bool:
        """Whether it is at an address, or at several, that somebody else keeps."""
        return bool(self.url or self.urls)

    @property
    def is_daemon_child(self) -> bool:
        """Whether the daemon starts it itself."""
        return self.kind in ("embedded", "vllm") and not self.addressed


def server_name(url: str) -> str:
    """Host and port of a URL: what may be shown of it, since the rest may hold a key."""
    from urllib.parse import urlsplit  # 3 ms that nobody pays without engines at addresses

    return urlsplit(url).netloc.rpartition("@")[2] or url


REQUEST_KEYS = (
    "api_key_env", "parameters", "omit_parameters", "max_tokens_field", "headers", "headers_env",
    "reasoning_field", "price", "silence_seconds",
)  # fmt: skip
"""Keys of an engine that say how it is asked and not what it is: running rollouts go by what the
configuration says as the daemon starts, so that a wrong one can be mended."""


HostName = Annotated[str, msgspec.Meta(pattern=r"^(?!local$)[a-z0-9][a-z0-9-]{0,19}$")]
LOCAL_HOST = "local"
"""The name of the machine that the daemon runs on, among a task's hosts."""


class HostSettings(Settings, frozen=True):
    """One machine that is reached over SSH, `[hosts.NAME]`. houston-agents is installed there, and
    keys are such that `ssh` asks nothing."""

    ssh: str
    """What `ssh` connects to: `host`, `user@host`, or a name of the user's ssh configuration."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """Port of its sshd; 0 for what ssh has configured."""
    identity_file: str = ""
    """Private key; empty for what ssh has configured."""
    ssh_config: str = ""
    """ssh configuration to use instead of the user's."""
    host_root: str = ""
    """Where that machine keeps what rollouts own; empty for the state folder of the user there."""
    command: str = "houston"
    """Path of `houston` there; `~/` begins in the home folder of the user there."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """GPUs that rollouts, engines and trainers may lease there."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most memory of all rollouts there together, in MB; 0 is nine tenths of that machine's. A
    lower one holds only once no rollout runs there."""


class HostsSettings(Settings, frozen=True):
    """Machines with terminals: this one, and `[hosts.NAME]` for each other."""

    root: str = ""
    """Where this machine keeps what rollouts own; empty for the user's state folder."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """GPUs of this machine that rollouts, engines and trainers may lease."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most memory of all rollouts on this machine together, in MB of 1,048,576 bytes; 0 is nine
    tenths of the machine's. A lower one holds only once no rollout runs. Each rollout also has
    its own limit (`[sandbox] memory_mb`)."""
    named: dict[HostName, HostSettings] = {}
    """The other machines, each written as a table `[hosts.NAME]`."""


def restore_host_key(cause: str) -> str:
    """What is wrong with a table of a host, with its name as it stands in the file."""
    return cause.replace("`hosts.named.", "`hosts.").replace("`hosts.named`", "`hosts`")


def nest_named_hosts(tables: dict[str, Any]) -> dict[str, Any]:
    """`[hosts.NAME]` as an entry of `hosts.named`, which is where the structs have it."""
    hosts = tables.get("hosts")
    if not isinstance(hosts, dict):
        return tables
    own = set(HostsSettings.__struct_fields__)
    tables_of_hosts = {key: value for key, value in hosts.items() if isinstance(value, dict)}
    named = {key: value for key, value in tables_of_hosts.items() if key not in own}
    if not named:
        return tables
    rest = {key: value for key, value in hosts.items() if key not in named}
    return {**tables, "hosts": {**rest, "named": {**rest.get("named", {}), **named}}}


LOCAL_CLUSTER = "local"
"""`[ray] address` of a cluster that the daemon starts on its own machine."""


class RaySettings(Settings, frozen=True):
    """Workers on the nodes of a Ray cluster (docs/ray.md); off unless an address is named. It needs
    the extra `ray`."""

    address: Annotated[str, msgspec.Meta(max_length=300)] = ""
    """The cluster: `HOST:PORT` of its head, `auto` for the one that this machine belongs to, or
    `local` for one of this machine alone, which the daemon starts and ends. Empty: workers are
    processes of this machine, without Ray."""
    endpoint: str = ""
    """File on every node by which workers there reach the recorder over TCP, as `houston host add`
    writes it; empty: all nodes are on this machine."""
    cpus: Annotated[float, msgspec.Meta(ge=0, le=1_024)] = 0.5
    """CPUs of its node that a worker counts for, where its task does not say (`[resources]`); one
    that many short rollouts share counts once."""

    @property
    def gives_gpus(self) -> bool:
        """Whether the cluster gives GPUs of a worker's own machine, and not the ledger."""
        return self.address not in ("", LOCAL_CLUSTER)


class JudgeSettings(Settings, frozen=True):
    """How `houston judge` asks a model; its flags win."""

    engine: str = ""
    """Engine that judges; empty for `default_engine`. Of any kind but files that are played."""
    template: str = ""
    """File with the judge's words, from the folder of this file; empty for the packaged ones, which
    `houston judge --print-template` writes out to be edited."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 4
    """Windows that are asked about at the same time."""
    window: Annotated[int, msgspec.Meta(ge=0, le=10**7)] = 0
    """Most tokens of prompt and answer together; 0 for the engine's own window."""
    tries: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    """How often a window is asked about while the answer cannot be used; then what was not decided
    stays undecided."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    """0 takes the likeliest token, so that the same window is judged alike."""
    price_prompt: Price = 0.0
    """Price of a million prompt tokens, for the cost that is shown; with both 0, the engine's
    `price` counts."""
    price_sampled: Price = 0.0
    """Price of a million sampled tokens."""
    currency: str = ""
    """What these prices are in; empty for `currency` of the whole file."""


class ReviewSettings(Settings, frozen=True):
    """What reviews the steps of rollouts as they go on, beside the rules."""

    process_reward: str = ""
    """Process reward model that scores every decision some seconds after its step has closed
    (docs/process-rewards.md): `prm@2`, or `prm` for the newest of that name; empty scores none. A
    process of its own does it, at a low priority; it needs the extra `local`."""
    device: str = "cpu"
    """Where that model runs: `cpu`, or a GPU such as `cuda:0`, which is not leased for it."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    """Threads that it computes with on the CPU."""
    weak_decision: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.3
    """Score below which a decision is weak. Three weak decisions in a row ask for a person."""
    drafts: Literal["asked", "attention"] = "asked"
    """When a critic drafts guidance: when a person asks, or also by itself for the rollout that
    needs somebody most (docs/critic.md). Nothing is said to an agent without a person, unless its
    task allows `autopilot`."""
    critic_engine: str = ""
    """Engine of the critic that drafts guidance (docs/critic.md); empty: `[judge] engine`."""
    critic: str = ""
    """Policy that it drafts with, e.g. `word-critic@3`; empty: what the engine serves itself."""


class NotifySettings(Settings, frozen=True):
    """Messages to people who are away, as a rollout begins to need one (docs/notifications.md)."""

    urls: tuple[str, ...] = ()
    """Where they go: URLs of Apprise, such as `ntfy://ntfy.example.org/topic`, `mailtos://…` or
    `json://host/path`; a hundred services have one. `${NAME}` in it is a variable of the daemon's
    environment, for keys. Empty sends nothing. It needs the extra `notify`."""
    at_need: Annotated[float, msgspec.Meta(ge=0, le=100)] = 40.0
    """Weight (docs/attention.md) that a reason must have for a message. 75: only what has failed or
    stands still for a person; 40: also failed jobs, plateaus, and guidance that nobody followed up.
    """
    quiet_hours: str = ""
    """Hours in which nothing is sent, e.g. `22:00-07:30`; what waits then comes as one message."""
    time_zone: str = ""
    """Zone of these hours, e.g. `Europe/Berlin`; empty for this machine's."""
    digest_minutes: Annotated[float, msgspec.Meta(ge=0, le=10_080)] = 0.0
    """Least time between two messages: what comes up meanwhile goes into one. 0 sends at once."""


class ArtifactSettings(Settings, frozen=True):
    """A store outside this machine that journal, snapshots and adapters are copied into as they
    are made, so that the loss of the machine loses nothing of them (docs/artifacts.md)."""

    url: str = ""
    """Where to, as a URL of fsspec: `s3://bucket/prefix`, `gs://…`, `abfs://…`, or `file:///mnt/…`
    for a disk that is not lost with this machine. One home writes to it. Empty copies nothing. It
    needs the extra `store`. Keys are taken from the variables of the daemon's environment that the
    store's own programs read, such as `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for a
    server that is not Amazon's, `AWS_ENDPOINT_URL`; none may stand in the URL."""
    every_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 5.0
    """How long at most something that was stored waits before it is copied: what the loss of the
    machine may cost, besides the time that the copy takes."""


STORE_KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
)
"""Variables that hold the keys of stores: secrets, whatever patterns `[secrets]` names."""


_STORE_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*://[^@?#\s]+)?")


def check_artifacts_url(settings: ArtifactSettings, source: str) -> None:
    """Raises ConfigurationError for what is no URL, or has a login in it, without repeating it.
    source: the file it stands in."""
    if not _STORE_URL.fullmatch(settings.url):
        raise ConfigurationError(
            f"`artifacts.url` in {source} is no URL of a store, or holds a login.",
            next='url = "s3://bucket/prefix"; keys are variables of the daemon\'s environment.',
        )


_HOURS = re.compile(r"(?:(?:[01]\d|2[0-3]):[0-5]\d-(?:[01]\d|2[0-3]):[0-5]\d)?")


def check_quiet_hours(settings: NotifySettings, source: str) -> None:
    """Raises ConfigurationError for hours that are none. source: the file they stand in."""
    if not _HOURS.fullmatch(settings.quiet_hours):
        raise ConfigurationError(
            f"{source}: `notify.quiet_hours` = {settings.quiet_hours!r} is no span of hours such as"
            " 22:00-07:30."
        )


class RecorderSettings(Settings, frozen=True):
    """Where workers of other machines reach the daemon (docs/remote-workers.md); without `listen`
    only those of this one do."""

    listen: str = ""
    """`tcp://ADDRESS:PORT` to listen at, ADDRESS being one of this machine, or `*` for all of them.
    Who has no key of `houston host add` is refused, and all that is said is encrypted (CURVE)."""
    address: str = ""
    """`tcp://HOST:PORT` that other machines connect to; empty for `listen`, or for this machine's
    name where that says `*`."""


def check_recorder_addresses(settings: RecorderSettings, source: str) -> None:
    """Raises ConfigurationError for an address that is none. source: the file it stands in."""
    for key in ("listen", "address"):
        address = getattr(settings, key)
        if address and not is_tcp_address(address):
            raise ConfigurationError(
                f"{source}: `recorder.{key}` = {address!r} is no address such as tcp://*:7450."
            )


class WebSearchSettings(Settings, frozen=True):
    """Where `web_search` looks; without a provider it says that none is configured."""

    provider: str = ""
    """`serper`, `tavily`, `searxng`, or `corpus` for a local one; empty for the corpus of
    the task or of this section, if there is one."""
    url: str = ""
    """Address of the provider; empty for its public one (`searxng` has none and needs it)."""
    api_key_env: str = ""
    """Environment variable that holds the provider's key; the key itself is never stored."""
    cache_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 86_400.0
    """How old a kept answer may be that is given again to any rollout of this host; 0 keeps
    none."""
    cache_mb: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 256
    """Largest size of the kept answers, in MB of 1,048,576 bytes; the oldest make room."""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0
    """Longest time that one search may take, with its repetitions."""
    corpus: str = ""
    """Folder of text, Markdown and HTML files, or a JSON Lines file, from the folder of this file;
    a task's own `[search] corpus` comes first."""


class WebBrowseSettings(Settings, frozen=True):
    """Limits of `web_browse`."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0
    """Longest time that one page may take, with its redirects."""
    megabytes: Annotated[float, msgspec.Meta(gt=0, le=1_024)] = 10.0
    """Most of a page that is read, in MB of 1,048,576 bytes; the rest is left and said so."""
    cache_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 3_600.0
    """How old a kept page may be that is shown again; 0 keeps none."""
    cache_mb: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 256
    """Largest size of the kept pages, in MB of 1,048,576 bytes; the oldest make room."""
    proxy_env: str = ""
    """Environment variable that holds the address of a proxy, such as `HTTPS_PROXY`; empty goes
    straight, whatever the environment says. A proxy resolves names itself: its operator decides
    which private addresses can be reached through it."""
    user_agent: str = ""
    """What the request says of itself; empty for Houston's own name."""


class MultimodalSettings(Settings, frozen=True):
    """The OpenAI-compatible endpoint that reads images, audio and video; without a `url` those
    actions say that none is configured."""

    url: str = ""
    """Base address, e.g. `http://127.0.0.1:8000/v1`."""
    model: str = ""
    """Model that reads images and the frames of videos (`/chat/completions`)."""
    audio_model: str = "whisper-1"
    """Model that writes down speech (`/audio/transcriptions`)."""
    api_key_env: str = ""
    """Environment variable that holds the key; the key itself is never stored."""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 120.0
    """Longest time that one request may take."""


class ToolSettings(Settings, frozen=True):
    """What the actions of agents use on this node besides hosts."""

    search: WebSearchSettings = WebSearchSettings()
    browse: WebBrowseSettings = WebBrowseSettings()
    multimodal: MultimodalSettings = MultimodalSettings()


ENGINE_KINDS = ("embedded", "vllm", "token", "chat", "script", "recorded")
"""Houston's own, which the daemon and the workers know each for itself."""


class _HasKind(Protocol):
    @property
    def kind(self) -> str: ...


def check_engine_kinds(engines: Mapping[str, _HasKind], source: str) -> None:
    """Raise ConfigurationError for a kind that is none; source: the file that is to blame."""
    for name, engine in engines.items():
        if engine.kind in ENGINE_KINDS:
            continue
        from houston_shared import plugins  # 20 ms that nobody pays without such an engine

        plugin_kinds = plugins.plugin_names(plugins.ENGINE_GROUP)
        if engine.kind not in plugin_kinds:
            raise ConfigurationError(
                f"{source}: `engines.{name}.kind` is {engine.kind!r}; allowed: "
                f"{', '.join((*ENGINE_KINDS, *plugin_kinds))}.",
                next="Install the package that brings it beside Houston, or correct the kind.",
            )
