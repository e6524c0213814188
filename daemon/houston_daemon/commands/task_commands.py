"""`houston task new`, `task import` and `task validate`.

`new` copies a packaged task folder, `import` converts one of Harbor or InnovatorBench, `validate`
checks a task file and prints what it names as found here. With `--run` a folder is copied
aside and scored once, as `eval` would in a rollout; calls of a script that the environment would
refuse are warnings. What must hold before a rollout may start is checked in
`service.rollout_start_checks`; the conversion itself is `importers`.
"""

import argparse
import asyncio
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.demo import demo_tour
from houston_daemon.engines.script_engine import read_script
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import kind
from houston_daemon.environments.local_host_setup import local_host
from houston_daemon.environments.tool_arguments import Catalog
from houston_daemon.environments.typed_observation import Observation, render
from houston_daemon.environments.workstation.evaluator import Evaluation, Slots
from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.sandbox import sandbox_profile
from houston_daemon.importers import harbor_importer, imported_task, innovatorbench_importer
from houston_daemon.service.rollout_start_checks import (
    check_engine_file,
    check_mapped_places,
    check_task_names,
    task_gpus,
    task_host_settings,
)
from houston_shared import command_output, task_secrets
from houston_shared.config import FILE_ENGINES, LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError, UsageError
from houston_shared.records import RolloutSpec, ToolCall
from houston_shared.safe_text import safe_line
from houston_shared.secret_redaction import install_secrets
from houston_shared.task import LoadedTask, Task, load_task
from houston_shared.task_tables import DATA_FOLDER, EvaluationSettings
from houston_shared.times_and_counts import pluralize


def _refused_script_calls(path: Path, catalog: Catalog) -> list[str]:
    """A sentence for each call that would be refused, with its step. Raises ConfigurationError."""
    return [
        f"step {number}: {checked.error}"
        for number, line in enumerate(read_script(path), 1)
        for call in line.calls
        if (checked := catalog.check(ToolCall("", call.name, call.arguments))).error
    ]


_UNLIMITED_SECONDS = 1e9
"""Seconds left: a trial has no rollout whose time it could use."""


def _evaluate_folder(
    task: LoadedTask, workspace: Path | None, hidden: Sequence[str]
) -> Observation:
    """Score a folder (None: an empty workspace). Raises HoustonError where nothing can run here.

    hidden: places that no sandbox may map.
    """
    root = Path(tempfile.mkdtemp(prefix="houston-trial-"))
    try:
        return asyncio.run(_run_evaluation(task, workspace, hidden, root))
    finally:
        untrusted_files.remove_folder(root)


async def _run_evaluation(
    task: LoadedTask, workspace: Path | None, hidden: Sequence[str], root: Path
) -> Observation:
    spec = RolloutSpec(
        rollout="trial",
        task=task.record(),
        engine="",
        engine_settings={},
        host_root=str(root),
        hidden=tuple(hidden),
    )
    budget_set = task.task.budget
    budget = msgspec.structs.replace(budget_set, evaluations=max(1, budget_set.evaluations))
    task_definition = msgspec.structs.replace(task.task, budget=budget)
    host = local_host(spec, task_definition)
    try:
        await host.prepare(workspace)
        slots = Slots(root, task_definition.name, 1)
        evaluation = Evaluation(host, task_definition, task.folder, slots, _no_snapshot)
        return await evaluation.run(BudgetStatus(1, 1, _UNLIMITED_SECONDS, 0), Stop())
    finally:
        await host.destroy_terminals()
        await host.close()


async def _no_snapshot() -> str:
    return ""


TEMPLATES = demo_tour.DEMO_TASK.parent.parent
"""The packaged tasks, a folder each."""
_TASK_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def add_task_new_arguments(parser: argparse.ArgumentParser) -> None:
    """`NAME`, `--from`, `--out`, `--json`."""
    parser.add_argument("name", help="lower-case letters, digits and hyphens")
    parser.add_argument(
        "--from",
        dest="template",
        choices=template_names(),
        default=demo_tour.DEMO_TASK.parent.name,
        help="the packaged task to start from: %(choices)s (%(default)s)",
        metavar="TASK",
    )
    parser.add_argument(
        "--out", default=".", metavar="DIR", help="where the folder NAME is made (here)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_task_new(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write the folder; refuses to write into one that is there."""
    folder = write_task_from_template(arguments.name, Path(arguments.out), arguments.template)
    if arguments.json:
        command_output.print_json_line({"task": arguments.name, "file": f"{folder}/task.toml"})
        return int(ExitCode.DONE)
    command_output.print_line(f"{folder}/task.toml")
    command_output.print_note(f"next: houston rollout start {folder}/task.toml")
    return int(ExitCode.DONE)


def template_names() -> list[str]:
    """Names of the packaged tasks."""
    return sorted(file.parent.name for file in TEMPLATES.glob("*/task.toml"))


def write_task_from_template(name: str, parent: Path, template: str) -> Path:
    """Make the task folder `parent/name`, a copy of the packaged task. Raises HoustonError."""
    if not _TASK_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not a valid task name; allowed: lower-case letters, digits, hyphens, "
            "at most 40.",
            "Nothing was written.",
            "Choose another name.",
        )
    folder = parent / name
    try:
        folder.mkdir(parents=True)
        for file in sorted((TEMPLATES / template).rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            target = folder / file.relative_to(TEMPLATES / template)
            target.parent.mkdir(parents=True, exist_ok=True)
            data = file.read_bytes()
            if file.suffix == ".toml":  # the name, also with something behind it
                data = data.replace(f'name = "{template}'.encode(), f'name = "{name}'.encode())
            target.write_bytes(data)
    except FileExistsError:
        raise HoustonError(
            f"{folder} already exists.", "Nothing was written.", "Choose another name or --out."
        ) from None
    except OSError as problem:
        raise HoustonError(f"{folder} cannot be written: {problem.strerror}.") from None
    return folder


def add_task_import_arguments(parser: argparse.ArgumentParser) -> None:
    """`PATH`, `--out`, `--from`, `--without-image`, `--json`."""
    parser.add_argument(
        "file",
        metavar="PATH",
        help="a task folder of Harbor, or InnovatorBench's research_gym/configs/tasks/task_N.yaml",
    )
    parser.add_argument("--out", metavar="DIR", help="the new task folder (the task's name, here)")
    parser.add_argument(
        "--from",
        dest="beside",
        metavar="DIR",
        default=".",
        help="of InnovatorBench: its checkout, where relative paths of the file start (here)",
    )
    parser.add_argument(
        "--without-image",
        action="store_true",
        help="of Harbor: run it in the ordinary sandbox, with this machine's programs; only where"
        " its Dockerfile does nothing but copy files",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_task_import(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write the folder and say of every field what became of it."""
    imported, file = _import_task(arguments, Path(arguments.file))
    load_task(file)  # what was written can be read
    if arguments.json:
        fields = [
            {"field": field.field, "how": field.how, "said": field.said}
            for field in imported.fields
        ]
        command_output.print_json_line({"task": imported.name, "file": str(file), "fields": fields})
        return int(ExitCode.DONE)
    command_output.print_line(str(file))
    for field in imported.fields:
        command_output.print_line(
            f"  {safe_line(field.field):<34} {field.how:<13} {safe_line(field.said)}"
        )
    missing = sum(field.how == "not mapped" for field in imported.fields)
    command_output.print_note(
        f"{missing} of {len(imported.fields)} are not mapped; next: houston task validate {file}"
    )
    return int(ExitCode.DONE)


def _import_task(
    arguments: argparse.Namespace, path: Path
) -> tuple[imported_task.ImportedTask, Path]:
    """Convert the task and write its folder. Raises HoustonError."""

    def write(task: imported_task.ImportedTask) -> Path:
        return imported_task.write_task_folder(task, Path(arguments.out or task.name))

    if harbor_importer.is_harbor_task(path):
        with tempfile.TemporaryDirectory(prefix="houston-import-") as scratch:
            imported = harbor_importer.convert_task(path, Path(scratch), arguments.without_image)
            return imported, write(imported)
    if path.is_dir():
        raise HoustonError(
            f"{path} is not a task folder of Harbor: it has no task.toml with an instruction.md.",
            "Nothing was imported.",
        )
    fields_found = innovatorbench_importer.read_task_fields(path)
    imported = innovatorbench_importer.convert_task(fields_found, Path(arguments.beside))
    return imported, write(imported)


NAMED_WARNINGS = 5
"""Calls of a script that are named."""
_SHELL_WORDS = frozenset("|&;<>()$`\\\"'*?[#~=%{")


def add_task_validate_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE`, `--run`, `--engine`, `--json`."""
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="task.toml, or the folder that holds it"
    )
    parser.add_argument(
        "--run",
        nargs="?",
        const="",
        metavar="DIR",
        help="also evaluate this folder (a solution), or without DIR the task's own workspace"
        " (the baseline), as `eval` would",
    )
    parser.add_argument(
        "--engine", metavar="ENGINE", help="also check this engine's file, e.g. script:FILE"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_task_validate(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Check it; a problem is one sentence and exit code 78."""
    file, trial = arguments.file, arguments.run
    if file is None:  # `--run FILE`: the one word is what must be there
        file, trial = trial, "" if trial else None
    if not file:
        raise UsageError("No task file was named.", next="houston task validate FILE")
    task = load_task(Path(file))
    facts = describe_task(task)
    check_mapped_places(loaded, task)
    if task_host_settings(loaded, task):
        facts["hosts"] = ", ".join(task.task.hosts)
    if leased := task_gpus(loaded, task):
        facts["gpus"] = ", ".join(f"{count} on {name}" for name, count in leased.items())
    if engine := _describe_engine(loaded, arguments.engine):
        facts["engine"] = engine
    install_secrets(loaded.config)
    scored = trial is None or _try_evaluation(task, trial, loaded, facts)
    if arguments.json:
        command_output.print_json_line({"task": task.task.name, "file": str(task.file), **facts})
    else:
        command_output.print_line(f"{task.file}: {task.task.name} can be started")
        for key, value in facts.items():
            command_output.print_line(f"  {key:<12} {value}")
    if engine:
        _warn_of_script(loaded, arguments.engine, task.task)
    for where, name in task_secrets.missing_secrets(task.task):
        command_output.print_note(
            f"warning: `{where}` names {name}, which is not a secret of this shell; `houston "
            "rollout start` is refused unless the daemon was started with it."
        )
    return int(ExitCode.DONE if scored else ExitCode.FAILED)


def _try_evaluation(
    task: LoadedTask, folder: str, loaded: LoadedConfiguration, facts: dict[str, str]
) -> bool:
    """Evaluate a folder and note what `eval` would say; whether it gave a score."""
    if not task.task.evaluate.command:
        raise ConfigurationError(f"{task.file}: [evaluate] has no `command` that could be run.")
    source = task.task.workspace.source
    workspace = Path(folder) if folder else task.folder / source if source else None
    if workspace is not None and not workspace.is_dir():
        raise ConfigurationError(f"--run: {workspace} is not a folder.")
    observation = _evaluate_folder(task, workspace, sandbox_profile.hidden_paths(loaded.home))
    text, detail = render(observation), str(observation.fields().get("detail", ""))
    facts["evaluation"] = "\n".join(part for part in (text.head, text.body) if part)
    if detail and not observation.success:
        facts["detail"] = detail
    return observation.success


def _describe_engine(loaded: LoadedConfiguration, name: str | None) -> str:
    """What is known of an engine without asking it; the default one is looked at for its file.

    Raises ConfigurationError for an unknown engine, and for a script that cannot be played.
    """
    chosen = name or loaded.config.default_engine
    engine = loaded.engine(chosen)
    if engine.kind in FILE_ENGINES:
        check_engine_file(engine)
        return f"{chosen} ({engine.path} can be played)"
    return f"{chosen} (kind {engine.kind}, not asked)" if name else ""


def _warn_of_script(loaded: LoadedConfiguration, name: str | None, task: Task) -> None:
    engine = loaded.engine(name or loaded.config.default_engine)
    catalog = kind(task.environment).catalog
    if engine.kind != "script" or catalog is None:
        return
    refused = _refused_script_calls(Path(engine.path), catalog(task))
    for sentence in refused[:NAMED_WARNINGS]:
        command_output.print_note(f"warning: {engine.path}: {sentence}")
    if len(refused) > NAMED_WARNINGS:
        command_output.print_note(
            f"warning: {len(refused) - NAMED_WARNINGS} more calls would be refused."
        )


def describe_task(task: LoadedTask) -> dict[str, str]:
    """What the task names, as found on this machine. Raises ConfigurationError."""
    definition = task.task
    budget = definition.budget
    check_task_names(task)
    scored_by = (
        "the environment scores"
        if kind(definition.environment).scores(definition)
        else "none: rollouts of it have no score"
    )
    evaluator = _describe_evaluator(task) or scored_by
    optional = {
        "domain": definition.domain,
        "data": ", ".join(f"{DATA_FOLDER}/{name}" for name in definition.data.mounts),
        "activate": _describe_environment(task),
        "hints": ("shown" if definition.hints.shown else "off") if definition.hints.text else "",
        "scale": _describe_scale(definition.evaluate),
        "web": _describe_web_hosts(definition),
        "required": ", ".join(definition.evaluate.required),
        "format": definition.evaluate.format,
    }
    return {
        "instructions": f"{len(task.instructions)} characters",
        "environment": definition.environment,
        "tools": _describe_tools(definition),
        "sandbox": definition.mapped.kind,
        "workspace": _describe_workspace(task),
        "budget": f"{pluralize(budget.steps, 'step')}, {budget.active_seconds:g} s, "
        f"{pluralize(budget.evaluations, 'evaluation')}",
        "evaluator": evaluator,
        **{name: value for name, value in optional.items() if value},
    }


def _describe_tools(task: Task) -> str:
    """Their names, where they are known before the environment is open."""
    catalog = kind(task.environment).catalog
    if catalog is None:
        return ", ".join(task.tools) or "all that the environment names when it opens"
    return ", ".join(tool.name for tool in catalog(task).tools)


def _describe_web_hosts(task: Task) -> str:
    """Whose pages may be opened, where the environment has actions that open some."""
    if task.environment != "workstation" or (task.tools and "web_browse" not in task.tools):
        return ""
    return ", ".join(task.page_hosts) or "none but documents of a corpus ([browse] hosts)"


def _describe_environment(task: LoadedTask) -> str:
    """The environment, and what of it a person might count on."""
    named = task.task.activate
    if named and (scripts := sandbox_profile.conda_activation_scripts(task.folder / named)):
        names = ", ".join(scripts)
        return f"{named} (not run: {names}; [environment_variables] sets what they would)"
    return named


def _describe_scale(evaluate: EvaluationSettings) -> str:
    if evaluate.baseline is None:
        return ""
    return f"raw_score {evaluate.baseline:g} is 0 points, {evaluate.reference:g} is 100"


def _describe_evaluator(task: LoadedTask) -> str:
    """The evaluator's program and file as found; empty when the task has none."""
    command = task.task.evaluate.command
    if not command:
        return ""
    words = shlex.split(command) if not _SHELL_WORDS & set(command) else []
    if not words:
        return f"shell: {command}"
    scored_on = task.task.evaluate.host or task.task.hosts[0]
    program = _find_program(task, words[0]) if scored_on == LOCAL_HOST else f"on {scored_on}"
    if "/" in words[0]:  # relative to the task's folder, which every host has
        in_folder = task.folder / words[0]
        absolute = program if in_folder.is_absolute() else None
        program = str(in_folder) if _is_file(in_folder) else absolute
    if program is None:
        raise ConfigurationError(
            f"{task.file}: `evaluate.command` names {words[0]!r}, which is not a program on "
            "this machine."
        )
    for word in words[1:]:
        _check_script_file(task, word)
    return f"{command} ({program})"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _find_program(task: LoadedTask, word: str) -> str | None:
    """A program as the evaluator finds it on this machine: those of `activate` come first."""
    path = os.environ.get("PATH", os.defpath)
    if task.task.activate:
        path = f"{task.folder / task.task.activate / 'bin'}{os.pathsep}{path}"
    return shutil.which(word, path=path)


def _check_script_file(task: LoadedTask, word: str) -> None:
    """A word that looks like a file of the task folder must be one."""
    if word.endswith((".py", ".sh")) and not (task.folder / word).is_file():
        raise ConfigurationError(
            f"{task.file}: `evaluate.command` names {word!r}, which is not a file next to it."
        )


def _describe_workspace(task: LoadedTask) -> str:
    source = task.task.workspace.source
    if not source:
        return "empty"
    files = sum(1 for path in (task.folder / source).rglob("*") if path.is_file())
    return f"{source}/ ({pluralize(files, 'file')})"
