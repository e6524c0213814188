"""Configuration: `houston.toml`, then the environment, then flags; the later wins.

Looked for in this order, the first found is used: `--config FILE`, `$HOUSTON_CONFIG`,
`houston.toml` in the home that is named, in the current folder, in `trajectories/`. A wrong key or
value is an error that names the file (or variable), the key and what is allowed. Environment
variables are `HOUSTON_HOME` for the home and `HOUSTON__SECTION__KEY` for everything else.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.config_sections import (
    LOCAL_HOST,
    ArtifactSettings,
    EngineSettings,
    HostSettings,
    HostsSettings,
    JudgeSettings,
    NotifySettings,
    RaySettings,
    RecorderSettings,
    ReviewSettings,
    ToolSettings,
    check_artifacts_url,
    check_engine_kinds,
    check_quiet_hours,
    check_recorder_addresses,
    nest_named_hosts,
    restore_host_key,
)
from houston_shared.errors import ConfigurationError, ExitCode, did_you_mean
from houston_shared.home import Home, unreadable_home
from houston_shared.toml_file import Settings, convert_toml, read_toml

DEFAULT_HOME = "trajectories"
FILE_ENGINES: tuple[Literal["script", "recorded"], ...] = ("script", "recorded")
"""Engines named with their file: `script:FILE`."""
_PREFIX = "HOUSTON__"


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
    steps, bookmarks, notes and claims. Without a
    name here every member of `daemon.group` is an annotator."""
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


class Configuration(Settings, frozen=True):
    """All of `houston.toml`."""

    home: str = ""
    """Data folder, from the folder of this file; empty for `trajectories`."""
    default_engine: str = "embedded"
    """Engine of `rollout start` without `--engine`."""
    currency: Annotated[str, msgspec.Meta(max_length=12)] = "USD"
    """What the prices of all engines, and the costs of rollouts, are in."""
    daemon: DaemonSettings = DaemonSettings()
    metrics: MetricsSettings = MetricsSettings()
    recorder: RecorderSettings = RecorderSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    hosts: HostsSettings = HostsSettings()
    ray: RaySettings = RaySettings()
    console: ConsoleSettings = ConsoleSettings()
    backup: BackupSettings = BackupSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    roles: RoleSettings = RoleSettings()
    secrets: SecretSettings = SecretSettings()
    export: ExportSettings = ExportSettings()
    tools: ToolSettings = ToolSettings()
    judge: JudgeSettings = JudgeSettings()
    review: ReviewSettings = ReviewSettings()
    notify: NotifySettings = NotifySettings()
    engines: dict[str, EngineSettings] = {}
    """Engines by name; `embedded` is there without being named."""

    def __post_init__(self) -> None:
        if not self.judge.currency:
            judge = msgspec.structs.replace(self.judge, currency=self.currency)
            msgspec.structs.force_setattr(self, "judge", judge)


class LoadedConfiguration(msgspec.Struct):
    """The configuration in force and the home it is for. A program that runs for long shares one
    of them, and edits of the file (`edits`) give it another `config`: read keys where they count.
    """

    config: Configuration
    home: Home
    source: str
    """The file it was read from, or `defaults`."""

    @property
    def file(self) -> str:
        """The file it was read from, for another process; empty where there is none."""
        return "" if self.source == "defaults" else self.source

    def engine(self, name: str) -> EngineSettings:
        """The engine called `name`; raises ConfigurationError naming those there are. Models of the
        hub are folders in it, where they were fetched."""
        engines = {"embedded": EngineSettings(kind="embedded"), **self.config.engines}
        for kind in FILE_ENGINES:
            if name.startswith(f"{kind}:"):
                return EngineSettings(
                    kind=kind, path=str(Path(name.removeprefix(f"{kind}:")).absolute())
                )
        if name not in engines:
            raise ConfigurationError(
                f"There is no engine {name!r} in {self.source}; "
                f"known: {', '.join(sorted(engines))}, script:FILE, recorded:FILE.",
                next=did_you_mean(name, engines),
                code=ExitCode.NOT_FOUND,
            )
        settings = engines[name]
        if settings.path:
            settings = msgspec.structs.replace(settings, path=str(self._folder / settings.path))
        if "/" in settings.model or "/" in settings.tokenizer:
            from houston_shared.hub_models import with_hub_folders  # only for models with a place

            settings = with_hub_folders(settings, self.home, self._folder)
        return settings

    @property
    def tools(self) -> ToolSettings:
        """The tools, with paths that hold wherever a worker runs."""
        tools = self.config.tools
        if not tools.search.corpus:
            return tools
        corpus = str(self._folder / Path(tools.search.corpus).expanduser())
        search = msgspec.structs.replace(tools.search, corpus=corpus)
        return msgspec.structs.replace(tools, search=search)

    def beside(self, path: str) -> Path:
        """A path of the configuration, from the folder of its file."""
        return self._folder / Path(path).expanduser()

    @property
    def _folder(self) -> Path:
        """Where relative paths of the configuration begin."""
        return Path(self.file).absolute().parent if self.file else Path.cwd()

    def host(self, name: str) -> HostSettings:
        """The machine called `name`; raises ConfigurationError naming those there are."""
        if settings := self.config.hosts.named.get(name):
            return settings
        names = ", ".join([LOCAL_HOST, *sorted(self.config.hosts.named)])
        raise ConfigurationError(
            f"There is no host {name!r} in {self.source}; known: {names}.",
            next=f"Add a table [hosts.{name}] with `ssh` to it.",
            code=ExitCode.NOT_FOUND,
        )

    def gpus(self, name: str) -> int:
        """How many GPUs a host has for rollouts, engines and trainers."""
        hosts = self.config.hosts
        return hosts.gpus if name == LOCAL_HOST else self.host(name).gpus

    @property
    def host_root(self) -> Path:
        """Folder on this machine under which rollouts keep workspaces; outside the home."""
        if self.config.hosts.root:
            return Path(self.config.hosts.root).expanduser().absolute()
        from platformdirs import user_state_path

        return user_state_path("houston") / self.home.key


def fingerprint(config: Configuration) -> str:
    """Short hash of a configuration: tells whether a running daemon has the same one."""
    import hashlib  # 4 ms that reading commands do not pay

    return hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()[:16]


def load_configuration(
    home: str | None = None, file: str | None = None, environment: Mapping[str, str] = os.environ
) -> LoadedConfiguration:
    """Read configuration. `home` and `file` are the flags; raises ConfigurationError."""
    named = home or environment.get("HOUSTON_HOME")
    path = _find_configuration_file(file or environment.get("HOUSTON_CONFIG"), named)
    tables = nest_named_hosts(read_toml(path) if path else {})
    source = str(path) if path else "defaults"
    _check_tables(tables, source)  # so that the file is blamed for its own mistakes
    merged = nest_named_hosts(_merge_environment(tables, environment))
    config = _check_tables(merged, f"{source} with {_PREFIX}… variables")
    check_engine_kinds(config.engines, source)
    check_quiet_hours(config.notify, source)
    check_recorder_addresses(config.recorder, source)
    check_artifacts_url(config.artifacts, source)
    return LoadedConfiguration(config, Home(_home_folder(named, path, config)), source)


def _check_tables(tables: dict[str, Any], where: str) -> Configuration:
    try:
        return convert_toml(tables, Configuration, where)
    except ConfigurationError as problem:
        raise ConfigurationError(restore_host_key(problem.cause), next=problem.next) from None


def _home_folder(named: str | None, file: Path | None, config: Configuration) -> Path:
    """The home's folder, absolute."""
    place = Path(named or config.home or DEFAULT_HOME)
    try:
        if file and not named:
            place = file.parent / place
        place = place.expanduser().absolute()
        str(place).encode("utf-8")
    except (OSError, RuntimeError, UnicodeEncodeError):
        # The current folder was removed, `~name` names nobody, or bytes that are no text.
        raise ConfigurationError(
            f"The home {str(place)!r} has no absolute path in UTF-8.",
            "Nothing was done.",
            "Name another --home.",
        ) from None
    return place


def _find_configuration_file(file: str | None, home: str | None) -> Path | None:
    if file:
        return Path(file).absolute()
    if home and _file_exists(own := expand_path(home) / "houston.toml", must=True):
        return own.absolute()
    local = Path("houston.toml")
    if _file_exists(local):
        return local.absolute()
    if not home and _file_exists(own := Path(DEFAULT_HOME) / "houston.toml", must=True):
        return own.absolute()
    return None


def expand_path(path: str) -> Path:
    """The path with its `~`, as it is where that names nobody."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _file_exists(file: Path, must: bool = False) -> bool:
    """Whether there is such a file; with `must`, raises HoustonError where one may not look."""
    try:
        return file.is_file()
    except OSError as problem:
        if not must:
            return False
        raise unreadable_home(file.parent, problem) from None


def _merge_environment(tables: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """`tables` with every `HOUSTON__SECTION__KEY` variable laid over them."""
    merged = dict(tables)
    for variable, text in environment.items():
        if not variable.startswith(_PREFIX):
            continue
        *sections, key = variable.removeprefix(_PREFIX).lower().split("__")
        level = merged
        for section in sections:
            below = level.get(section, {})
            if not isinstance(below, dict):
                raise ConfigurationError(f"{variable}: `{section}` is a key, not a section.")
            level[section] = dict(below)
            level = level[section]
        level[key] = _parse_variable(text)
    return merged


def _parse_variable(text: str) -> Any:
    """A variable's value as TOML would read it; plain text where it is not TOML."""
    if text.startswith("/"):
        return text  # a path, which no TOML value is: tomllib takes 6 ms to say the same
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
