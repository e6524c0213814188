"""Configuration: `houston.toml`, then the environment, then flags; the later wins.

Looked for in this order, the first found is used: `--config FILE`, `$HOUSTON_CONFIG`,
`houston.toml` in the home that is named, in the current folder, in `trajectories/`. A wrong key or
value is an error that names the file (or variable), the key and what is allowed. Environment
variables are `HOUSTON_HOME` for the home and `HOUSTON__SECTION__KEY` for everything else. What each
table may contain stands in `config_sections`, of `[engines.NAME]` in `engine_settings`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.config_sections import (
    LOCAL_HOST,
    ArtifactSettings,
    BackupSettings,
    ConsoleSettings,
    DaemonSettings,
    ExportSettings,
    HostSettings,
    HostsSettings,
    JudgeSettings,
    MetricsSettings,
    NotifySettings,
    RaySettings,
    RecorderSettings,
    ReviewSettings,
    RoleSettings,
    SecretSettings,
    TelemetrySettings,
    ToolSettings,
    check_artifacts_url,
    check_quiet_hours,
    check_recorder_addresses,
    nest_named_hosts,
    restore_host_key,
)
from houston_shared.engine_settings import EngineSettings, check_engine_kinds
from houston_shared.errors import ConfigurationError, ExitCode, did_you_mean
from houston_shared.home import Home, unreadable_home
from houston_shared.toml_file import Settings, convert_toml, read_toml

DEFAULT_HOME = "trajectories"
FILE_ENGINES: tuple[Literal["script", "recorded"], ...] = ("script", "recorded")
"""Engines named with their file: `script:FILE`."""
_PREFIX = "HOUSTON__"


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
    """The configuration in force and the home it is for. A long-running program shares one
    instance, and an edit of the file (`config_reload`) replaces its `config`: read keys where they
    are used.
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
