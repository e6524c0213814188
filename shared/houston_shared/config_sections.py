"""The tables of `houston.toml`, but `[engines.NAME]` (`engine_settings`).

Structs with a sentence under each key, which the documentation is made from; and the checks that
quiet hours are hours, addresses are some and the URL of a store holds no login. Where the file is
looked for and how it is merged with the environment stands in `config`.
"""

import re
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.engine_settings import Price
from houston_shared.errors import ConfigurationError
from houston_shared.recorder_endpoint import is_tcp_address
from houston_shared.toml_file import Settings


class DaemonSettings(Settings, frozen=True):
    """The service."""

    max_rollouts: Annotated[int, msgspec.Meta(ge=1)] = 64
    """Rollouts with a worker at the same time, paused ones too; more wait in `queued`."""
    rollouts_per_worker: Annotated[int, msgspec.Meta(ge=1)] = 16
    """Rollouts that one worker runs at the same time, where their environment needs no host; every
    other rollout has a worker of its own. With 1, all have."""
    group: str = ""
    """Unix group whose members may attach (home 0750, sockets 0660); empty for the owner only."""
    drain_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 10.0
    """How long a stop may take in all; workers have six tenths of it to come to a safe point."""
    silent_seconds: Annotated[float, msgspec.Meta(ge=2, le=86_400)] = 120.0
    """A worker that has said nothing for so long (each says something every second) is taken for
    hung: it is killed, and its rollout goes on with another. A line to another machine may be down
    for a minute, which is why it is not less."""
    engine_patience_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """How long an engine may be down before its rollouts are paused, until it answers again."""
    engine_orphan_seconds: Annotated[float, msgspec.Meta(ge=1)] = 300.0
    """How long an engine that the daemon started goes on when the daemon has died and none was
    started again; then it ends by itself, and frees its memory and GPUs."""
    live_rules: bool = True
    """Whether rules run on rollouts as they go on (docs/rules.md), in a process of their own at a
    low priority, so that people see what is masked; exports run them in any case."""
    log_mb: Annotated[int, msgspec.Meta(ge=1)] = 50
    """A log file is rotated at this size."""
    log_files: Annotated[int, msgspec.Meta(ge=1)] = 10
    """Rotated logs that are kept."""


class MetricsSettings(Settings, frozen=True):
    """Figures for Prometheus, in its text format; off unless one of the two is named."""

    file: str = ""
    """File that is rewritten every `seconds` (for node_exporter's textfile collector); from the
    folder of the home, where its name must end in `.prom`."""
    listen: str = ""
    """Address of an HTTP endpoint, e.g. `127.0.0.1:9464`; it answers `/metrics` to whoever can
    reach it."""
    seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 1.0
    """How old the figures may be."""


class TelemetrySettings(Settings, frozen=True):
    """Spans of rollouts for OpenTelemetry; off unless a collector is named. It needs the extra
    `otel`."""

    otlp: Annotated[str, msgspec.Meta(pattern=r"^(https?://.+)?$")] = ""
    """Address of a collector that takes OTLP over HTTP, e.g. `http://127.0.0.1:4318`; spans go to
    its `/v1/traces`, or to the address itself where it has a path. Headers and certificates are
    taken from OpenTelemetry's own variables in the daemon's environment, such as
    `OTEL_EXPORTER_OTLP_HEADERS`."""
    content: bool = False
    """Whether spans also carry what was said: tasks, answers, arguments and results of calls, each
    cut at 16,000 characters and without secrets."""


ThemeName = Literal[
    "houston-dark", "houston-light", "houston-colour-blind", "houston-ansi",
    "ansi-dark", "ansi-light", "atom-one-dark", "atom-one-light",
    "catppuccin-frappe", "catppuccin-latte", "catppuccin-macchiato", "catppuccin-mocha", "dracula",
    "flexoki", "gruvbox", "monokai", "nord", "rose-pine", "rose-pine-dawn", "rose-pine-moon",
    "solarized-dark", "solarized-light", "textual-dark", "textual-light", "tokyo-night",
]  # fmt: skip
"""Our own themes, then Textual's; a test of the console holds the list to what the app knows."""


ColorDepth = Literal["truecolor", "256", "16", "none"]
"""How many colours a terminal shows: 16 million, or as many as it says."""
ColorChoice = Literal["auto", "truecolor", "256", "16", "none", 256, 16]


class ConsoleSettings(Settings, frozen=True):
    """The console's defaults."""

    theme: ThemeName = "houston-dark"
    """Colours: `houston-dark`, `houston-light`, `houston-colour-blind`, `houston-ansi` (the
    terminal's own sixteen), or a theme of Textual such as `nord`; a wrong name is answered with
    all of them."""
    colors: ColorChoice = "auto"
    """How many colours the terminal has: `truecolor`, `256`, `16` or `none`. `auto` asks the
    terminal, or tmux, since ssh does not take `COLORTERM` along; where there is no answer, `TERM`
    says it. `NO_COLOR` outranks both."""
    name: str = ""
    """Name to speak under where annotators share a login; kept, and marked unverified."""
    bell: bool = True
    """Whether a console in the background rings the terminal's bell and asks it for a notification
    (OSC 9 or 777) when a rollout begins to need a person."""
    greeting: tuple[Annotated[str, msgspec.Meta(max_length=200)], ...] = ()
    """Lines at the head of every screen, three at most, for those who are new here: what to look
    at, whom to ask. Left out where the terminal has less than 20 lines."""


class RoleSettings(Settings, frozen=True):
    """Who may do what, besides the user who runs the daemon (and root), who is an operator: Unix
    users, or `@group` for the members of a Unix group; of several roles the highest counts. All of
    them must reach the sockets, so they are in `daemon.group`."""

    operators: tuple[str, ...] = ()
    """Start, stop, pause, resume and cancel rollouts and the daemon, and whatever annotators do,
    to what others wrote too. A task's evaluator runs as the daemon's user: trust them as it."""
    annotators: tuple[str, ...] = ()
    """Guide agents, withdraw and edit what they said themselves, reorder what is queued, judge
    steps, bookmarks, notes and claims. Without a name here every member of `daemon.group` is an
    annotator."""
    viewers: tuple[str, ...] = ()
    """Read only. Who is in `daemon.group` without any other role is a viewer."""


class SecretSettings(Settings, frozen=True):
    """What is taken out of observations, guidance, tasks, errors and logs before they are stored:
    values of the daemon's environment, and keys of well-known shape, become `[secret:NAME]`. Values
    of less than 8 characters are not redacted."""

    names: tuple[str, ...] = ()
    """Variables that hold secrets, besides every `api_key_env` and those of `headers_env`."""
    patterns: tuple[str, ...] = ("*_KEY", "*_TOKEN", "*_SECRET", "*_PASSWORD", "*_CREDENTIALS")
    """Names of variables that hold secrets; a value that is the path of a file is none."""
    ignore: tuple[str, ...] = ()
    """Variables that hold no secret whatever their name says."""
    shapes: bool = True
    """Whether keys are also known by their looks: AWS, GitHub, GitLab, Google, Hugging Face, Slack,
    `sk-…`, JSON web tokens, private key blocks."""


class ExportSettings(Settings, frozen=True):
    """What rows that leave the home say of people."""

    people_by_name: bool = False
    """Whether the card and the manifest of an export name who spoke to the agents; else people are
    numbered (`person 1`). What they said stands in the rows in any case."""


class BackupSettings(Settings, frozen=True):
    """Backups that the daemon makes by itself, into `backups/` of the home."""

    every_hours: Annotated[float, msgspec.Meta(ge=0)] = 24.0
    """Hours between two; 0 for none. A backup is a whole copy of the home."""
    keep: Annotated[int, msgspec.Meta(ge=1)] = 3
    """How many of them are kept."""


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
    def schedules_gpus(self) -> bool:
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
            f"`artifacts.url` in {source} is not a store URL, or contains a login.",
            next='url = "s3://bucket/prefix"; keys are variables of the daemon\'s environment.',
        )


_HOURS = re.compile(r"(?:(?:[01]\d|2[0-3]):[0-5]\d-(?:[01]\d|2[0-3]):[0-5]\d)?")


def check_quiet_hours(settings: NotifySettings, source: str) -> None:
    """Raises ConfigurationError for hours that are none. source: the file they stand in."""
    if not _HOURS.fullmatch(settings.quiet_hours):
        raise ConfigurationError(
            f"{source}: `notify.quiet_hours` = {settings.quiet_hours!r} is not a span of hours like"
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
                f"{source}: `recorder.{key}` = {address!r} is not an address like tcp://*:7450."
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
