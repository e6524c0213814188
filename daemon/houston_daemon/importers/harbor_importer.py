"""A task folder of Harbor (Terminal-Bench 2 and later) as a task folder of ours, field by field.

Source: harbor 0.26, `harbor/models/task/`: `config.py` for the fields of `task.toml`, `task.py` for
the folder, `verifier/verifier.py` for how a workspace is scored. podman or docker turns the task's
image into a file next to the task file; without them a task is refused, unless its Dockerfile only
copies files and the caller accepts the ordinary sandbox.
"""

import re
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.importers import container_image
from houston_daemon.importers.imported_task import ImportedTask, MappingKind, make_task_name
from houston_daemon.importers.plain_dockerfile import read_plain_dockerfile
from houston_shared.errors import ConfigurationError, HoustonError

NOTHING_IMPORTED = "Nothing was imported."
EVALUATOR_FILE = Path(__file__).parent / "harbor_evaluate.sh"
"""Runs the task's tests and prints their reward; copied into the task folder."""
IMAGE_FILE = "image.tar"
AGENT_TOOLS = (
    "create_session", "list_sessions", "run_command", "input_in_session", "get_session_output",
    "get_session_recent_output", "get_session_status", "check_session_idle",
    "clear_session_buffer", "close_session", "close_all_sessions", "kill_session_processes",
    "open_file", "file_goto_line", "file_scroll_down", "file_scroll_up", "create_file",
    "edit_file", "search_dir", "search_file", "find_file", "list_files", "get_file_info", "think",
    "sleep", "finish",
)  # fmt: skip
"""A terminal and an editor, as Harbor's own agent has them. No `eval`: the tests run once, when the
agent has ended."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_CANARY = re.compile(r"^(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)
_ELSEWHERE_FIELDS = {
    "metadata": "it is for people: what a task is about",
    "artifacts": "files of a rollout are there until it is cleaned: houston rollout restore",
    "source": "it is for people: where a task comes from",
}


class _Environment(NamedTuple):
    """Where the agent works."""

    workdir: str
    variables: dict[str, str]


def is_harbor_task(path: Path) -> bool:
    """Whether a folder is a task of Harbor's and not one of ours."""
    file = path / "task.toml"
    if not path.is_dir() or not file.is_file():
        return False
    return (path / "instruction.md").is_file() or (path / "steps").is_dir()


def read_task_config(folder: Path) -> dict[str, Any]:
    """The fields of `task.toml`; raises ConfigurationError."""
    file = folder / "task.toml"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigurationError(f"{file} cannot be read: {problem.strerror}.") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{file} is not valid TOML: {problem}.") from problem


def convert_task(folder: Path, scratch: Path, without_image: bool = False) -> ImportedTask:
    """The task that a folder holds.

    scratch: an empty folder for what is made on the way and copied afterwards. without_image: run
    it in the ordinary sandbox. Raises HoustonError for a task that cannot be run here, and
    ConfigurationError for a wrong field.
    """
    config = read_task_config(folder)
    for name in ("instruction.md", "environment", "tests"):
        _refuse_outside(folder / name, folder)
    _refuse_unsupported(folder, config)
    named = str(_table(config, "task").get("name") or folder.resolve().name)
    task = ImportedTask(name=make_task_name(named.rpartition("/")[2]))
    task.set_key("", "name", task.name)
    task.set_key("", "instructions_file", "instructions.md")
    task.set_key("", "tools", list(AGENT_TOOLS))
    task.texts["instructions.md"] = _instructions(folder)
    task.note_field("instruction.md", "mapped", "instructions.md, without canary lines")
    make = _plain_environment if without_image else _image_environment
    environment = make(task, folder, config, scratch)
    _map_environment(task, config, environment)
    _map_agent(task, config)
    _map_verifier(task, config, folder)
    for field, why in _ELSEWHERE_FIELDS.items():
        if config.get(field):
            task.note_field(field, "not mapped", why)
    if (folder / "solution").is_dir():
        remark = "it stays there: programs that the tests run would see it beside them"
        task.note_field("solution/", "not mapped", remark)
    return task


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = config.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"`{name}` of task.toml is not a table.")
    return table


def _refuse_outside(path: Path, folder: Path) -> None:
    """Raise HoustonError for a link that leads out of the task's folder."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise HoustonError(
            f"{path} is a link that leads out of {folder}: its target does not belong to the task.",
            NOTHING_IMPORTED,
        )


def _refuse_unsupported(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise HoustonError for what has no place here at all."""
    environment = _table(config, "environment")
    compose = sorted((folder / "environment").glob("docker-compose.y*ml"))
    reason = ""
    if config.get("steps"):
        reason = "it has several steps, each with instructions and tests of its own"
    elif compose:
        reason = f"it runs several containers (environment/{compose[0].name})"
    elif str(environment.get("os", "linux")).lower() != "linux":
        reason = f"it runs on {environment['os']}"
    elif environment.get("tpu"):
        reason = "it needs a TPU"
    elif not (folder / "tests" / "test.sh").is_file():
        reason = "it has no tests/test.sh"
    elif _is_verified_apart(_table(config, "verifier")) and not _has_same_base(folder, config):
        reason = "its tests run in an image of their own ([verifier] environment_mode)"
    if reason:
        raise HoustonError(
            f"The task {folder} cannot be run by Houston: {reason}.", NOTHING_IMPORTED
        )


def _is_verified_apart(verifier: Mapping[str, Any]) -> bool:
    """Whether the tests have an environment of their own."""
    mode = verifier.get("environment_mode")
    return mode == "separate" or (mode is None and bool(verifier.get("environment")))


def _has_same_base(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether an environment of the tests would have no more than the agent's: it begins with the
    same image and only copies the tests."""
    own, agents = folder / "tests" / "Dockerfile", folder / "environment" / "Dockerfile"
    if _table(config, "verifier").get("environment") or not agents.is_file():
        return False
    if not own.is_file():  # a fresh copy of the agent's
        return True
    apart = read_plain_dockerfile(own, apart="/tests")
    return not apart.trouble and apart.base == read_plain_dockerfile(agents).base


def _instructions(folder: Path) -> str:
    """Without the canary lines at its beginning, which are for those who collect data."""
    lines = (folder / "instruction.md").read_text(encoding="utf-8", errors="replace").split("\n")
    while lines and (_CANARY.match(lines[0].strip()) or not lines[0].strip()):
        del lines[0]
    text = "\n".join(lines)
    if not text.strip():
        raise HoustonError(f"{folder / 'instruction.md'} is empty.", NOTHING_IMPORTED)
    return text


def _image_environment(
    task: ImportedTask, folder: Path, config: Mapping[str, Any], scratch: Path
) -> _Environment:
    """The task's image as a file, and what lies in its working folder as the workspace."""
    dockerfile = folder / "environment" / "Dockerfile"
    settings = _table(config, "environment")
    named = str(settings.get("docker_image") or "")
    if named.startswith("-"):
        raise HoustonError(
            f"environment.docker_image of {folder} is {named!r}, which is not an image name.",
            NOTHING_IMPORTED,
        )
    if not named and not dockerfile.is_file():
        raise HoustonError(
            f"The task {folder} has neither environment/Dockerfile nor a docker_image.",
            NOTHING_IMPORTED,
        )
    engine = _require_container_engine(folder, named, dockerfile)
    seconds = _number(settings, "build_timeout_sec", 600.0)
    image = named or f"localhost/houston-{task.name}:latest"
    if named:
        container_image.fetch_image(engine, image, seconds)
    else:
        container_image.build_image(engine, dockerfile, image, seconds)
    facts = container_image.read_image_settings(engine, image)
    file = scratch / IMAGE_FILE
    container_image.export_image(engine, image, file)
    task.copies[IMAGE_FILE] = file
    task.set_key("sandbox", "image", IMAGE_FILE)
    which = "environment.docker_image" if named else "environment/Dockerfile"
    remark = f"{IMAGE_FILE}, by {Path(engine).name}; each rollout has a copy of its own"
    task.note_field(which, "mapped", remark)
    if facts.user not in ("", "root", "0"):
        task.note_field("(USER)", "not mapped", f"programs run as root, not as {facts.user}")
    workdir = str(settings.get("workdir") or facts.workdir)
    _take_workspace(task, file, workdir, scratch)
    return _Environment(workdir, facts.environment)


def _require_container_engine(folder: Path, image: str, dockerfile: Path) -> str:
    """podman or docker. Raises HoustonError where neither works; image: that the task names."""
    engine = container_image.find_container_engine()
    if not engine:
        plain = not image and not read_plain_dockerfile(dockerfile).trouble
        way = "houston task import --without-image DIR runs it in the ordinary sandbox"
        or_plain = f"; or, as its Dockerfile only copies files, {way}" if plain else ""
        raise HoustonError(
            f"The task {folder} runs in an image ({image or 'environment/Dockerfile'}), and"
            " neither podman nor docker works on this machine.",
            NOTHING_IMPORTED,
            f"Install podman{or_plain}.",
        )
    return engine


def _take_workspace(task: ImportedTask, file: Path, workdir: str, scratch: Path) -> None:
    task.set_key("workspace", "source", "workspace")
    source = scratch / "workspace"
    source.mkdir()
    task.copies["workspace"] = source
    if workdir:
        container_image.copy_image_folder(file, workdir, source)
        remark = f"workspace/, at {workdir} and /workspace; only its files are in snapshots"
        task.note_field("(WORKDIR)", "mapped", remark)
    else:
        remark = "the image names no folder: sessions begin in an empty /workspace"
        task.note_field("(WORKDIR)", "approximately", remark)


def _plain_environment(
    task: ImportedTask, folder: Path, config: Mapping[str, Any], scratch: Path
) -> _Environment:
    """The ordinary sandbox, for a Dockerfile that only copies files into its working folder."""
    settings = _table(config, "environment")
    dockerfile = folder / "environment" / "Dockerfile"
    if settings.get("docker_image") or not dockerfile.is_file():
        raise HoustonError(
            f"The task {folder} names an image and has no Dockerfile that could be read: what it"
            " needs is not known.",
            NOTHING_IMPORTED,
            "Import it without --without-image, where podman or docker is installed.",
        )
    plain = read_plain_dockerfile(dockerfile)
    container_image.refuse_placeholders(str(dockerfile), plain.variables)
    if plain.trouble:
        raise HoustonError(
            f"{dockerfile} does more than copy files ({plain.trouble}): the ordinary sandbox "
            "would be a different environment.",
            NOTHING_IMPORTED,
            "Import it without --without-image, where podman or docker is installed.",
        )
    source = scratch / "workspace"
    source.mkdir()
    for copied in plain.copies:
        _copy_into(dockerfile.parent, copied.source, source / copied.target, copied.is_folder)
    task.set_key("workspace", "source", "workspace")
    task.copies["workspace"] = source
    remark = f"this machine's programs in the place of {plain.base}; workspace/ has what it copies"
    task.note_field("environment/Dockerfile", "approximately", remark)
    return _Environment(str(settings.get("workdir") or plain.workdir), plain.variables)


def _copy_into(context: Path, source: str, target: Path, is_folder: bool) -> None:
    """One COPY of a Dockerfile: a folder's contents, or a file. Raises HoustonError."""
    paths = sorted(context.glob(source)) if source != "." else [context]
    if not paths:
        raise HoustonError(
            f"{context / source} cannot be copied: it does not exist.", NOTHING_IMPORTED
        )
    for path in paths:
        _refuse_outside(path, context)
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
        else:
            place = target / path.name if is_folder or len(paths) > 1 else target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def _map_environment(
    task: ImportedTask, config: Mapping[str, Any], environment: _Environment
) -> None:
    settings = _table(config, "environment")
    if environment.workdir:
        task.set_key("sandbox", "workdir", environment.workdir)
    for name, value in environment.variables.items():
        task.set_key("environment_variables", name, value)
    variables = {str(name): str(value) for name, value in _table(settings, "env").items()}
    literal = {
        name: _VARIABLE.sub(lambda match: match[2] or "", value)
        for name, value in variables.items()
    }
    container_image.refuse_placeholders("environment.env of task.toml", literal)
    for name, value in variables.items():
        text = _with_secrets(value)
        task.set_key("environment_variables", name, text)
        how: MappingKind = "approximately" if text != value else "mapped"
        task.note_field(f"environment.env.{name}", how, "environment_variables")
    _map_network(task, config, settings)
    if memory := _number(settings, "memory_mb", 0.0):
        task.set_key("sandbox", "memory_mb", int(memory))
        task.note_field("environment.memory_mb", "mapped", "[sandbox] memory_mb")
    if storage := _number(settings, "storage_mb", 0.0):
        task.set_key("sandbox", "workspace_mb", int(storage))
        task.note_field("environment.storage_mb", "approximately", "[sandbox] workspace_mb")
    if gpus := _number(settings, "gpus", 0.0):
        task.set_key("", "gpus", int(gpus))
        task.note_field("environment.gpus", "mapped", "gpus")
    for name, why in {
        "cpus": "processes share the machine's processors",
        "mcp_servers": 'tools are those of a terminal; environment = "mcp" has servers',
        "skills_dir": "nothing here reads skills",
        "healthcheck": "the sandbox is ready when it is there",
        "gpu_types": "any GPU of this machine is leased",
    }.items():
        if settings.get(name):
            task.note_field(f"environment.{name}", "not mapped", why)


def _map_network(
    task: ImportedTask, config: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Harbor's environments have the network unless they say otherwise; the agent may differ."""
    allowed = settings.get("allow_internet")
    base = settings.get("network_mode") or ("no-network" if allowed is False else "public")
    mode = str(_table(config, "agent").get("network_mode") or base)
    task.set_key("sandbox", "network", mode == "public")
    if mode == "allowlist":
        remark = "a sandbox has the whole network or none: [sandbox] network = false"
        task.note_field("network_mode", "not mapped", remark)
    else:
        remark = f"[sandbox] network = {str(mode == 'public').lower()}"
        task.note_field("network_mode", "mapped", remark)


def _map_agent(task: ImportedTask, config: Mapping[str, Any]) -> None:
    agent = _table(config, "agent")
    if seconds := _number(agent, "timeout_sec", 0.0):
        task.set_key("budget", "active_seconds", seconds)
        remark = "[budget] active_seconds: pauses, downtime and waiting are not counted here"
        task.note_field("agent.timeout_sec", "approximately", remark)
    if str(agent.get("user", "root")) not in ("root", "0"):
        remark = "the agent runs as the sandbox's only user"
        task.note_field("agent.user", "not mapped", remark)


def _map_verifier(task: ImportedTask, config: Mapping[str, Any], folder: Path) -> None:
    """The tests as the task's evaluator: once, at the end, in a copy of all that the agent left."""
    verifier = _table(config, "verifier")
    task.copies["tests"] = folder / "tests"
    task.copies["evaluate.sh"] = EVALUATOR_FILE
    task.set_key("evaluate", "command", "bash evaluate.sh")
    task.set_key("evaluate", "copy", True)
    task.set_key("evaluate", "baseline", 0.0)
    task.set_key("evaluate", "reference", 1.0)
    task.set_key("evaluate", "seconds", _number(verifier, "timeout_sec", 600.0))
    task.set_key("budget", "evaluations", 1)
    remark = (
        "[evaluate]: /tests/test.sh in a copy of the workspace; a reward of 1 is a score of 100"
    )
    task.note_field("tests/", "mapped", remark)
    task.note_field("verifier.timeout_sec", "mapped", "[evaluate] seconds")
    if _is_verified_apart(verifier):
        remark = "the tests run in a copy of the agent's environment, which has the same base"
        task.note_field("verifier.environment_mode", "approximately", remark)
    lines = []
    for name, value in _table(verifier, "env").items():
        if _VARIABLE.search(str(value)):
            remark = "a key of the tests would be the agent's, too: set it in evaluate.sh"
            task.note_field(f"verifier.env.{name}", "not mapped", remark)
        else:
            lines.append(f"{name}={shlex.quote(str(value))}\n")
            task.note_field(f"verifier.env.{name}", "mapped", "verifier.env")
    if lines:
        task.texts["verifier.env"] = "".join(lines)
    for name in ("user", "collect", "network_mode"):
        if verifier.get(name):
            task.note_field(f"verifier.{name}", "not mapped", "the tests run as the agent does")


def _with_secrets(text: str) -> str:
    """`${NAME}` as a secret of the daemon's environment, or as its default where it has one."""

    def value_of(match: re.Match[str]) -> str:
        return f"[secret:{match[1]}]" if match[2] is None else match[2]

    return _VARIABLE.sub(value_of, text)


def _number(table: Mapping[str, Any], key: str, default: float) -> float:
    value = table.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigurationError(f"`{key}` of task.toml is {value!r}, not a number of 0 or more.")
    return float(value)
