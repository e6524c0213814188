"""`houston task validate FILE`: checks a task file and what it names, and says what it found."""

import argparse
import os
import shlex
import shutil
from pathlib import Path

from houston_daemon.environments.environment_registry import kind
from houston_daemon.environments.typed_observation import render
from houston_daemon.hosts.sandbox import activation
from houston_daemon.service.rollouts import check_file, gpus, hidden, hosts
from houston_daemon.service.script_checks import refused
from houston_daemon.service.task_checks import check_names
from houston_daemon.service.trial import evaluate
from houston_shared import out, task_keys
from houston_shared.config import FILE_ENGINES, Loaded
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.plural import many
from houston_shared.secret_values import install
from houston_shared.task import LoadedTask, Task, load_task
from houston_shared.task_tables import DATA, Evaluate

WARNINGS = 5
"""Calls of a script that are named."""
_SHELL_WORDS = frozenset("|&;<>()$`\\\"'*?[#~=%{")


def arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--engine", help="also check this engine's file, e.g. script:FILE")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Check it; a problem is one sentence and exit code 78."""
    file, trial = arguments.file, arguments.run
    if file is None:  # `--run FILE`: the one word is what must be there
        file, trial = trial, "" if trial else None
    if not file:
        raise HoustonError(
            "No task file was named.", next="houston task validate FILE", code=ExitCode.USAGE
        )
    task = load_task(Path(file))
    found = findings(task)
    if hosts(loaded, task):
        found["hosts"] = ", ".join(task.task.hosts)
    if leased := gpus(loaded, task):
        found["gpus"] = ", ".join(f"{count} on {name}" for name, count in leased.items())
    if engine := _engine(loaded, arguments.engine):
        found["engine"] = engine
    install(loaded.config)
    scored = trial is None or _tried(task, trial, loaded, found)
    if arguments.json:
        out.json_line({"task": task.task.name, "file": str(task.file), **found})
    else:
        out.line(f"{task.file}: {task.task.name} can be started")
        for key, value in found.items():
            out.line(f"  {key:<12} {value}")
    if engine:
        _warn_of_script(loaded, arguments.engine, task.task)
    for where, name in task_keys.missing(task.task):
        out.note(
            f"warning: `{where}` names {name}, which is no secret of this shell; `houston rollout "
            "start` is refused unless the daemon was started with it."
        )
    return int(ExitCode.DONE if scored else ExitCode.FAILED)


def _tried(task: LoadedTask, folder: str, loaded: Loaded, found: dict[str, str]) -> bool:
    """Evaluate a folder and note what `eval` would say; whether it gave a score."""
    if not task.task.evaluate.command:
        raise ConfigurationError(f"{task.file}: [evaluate] has no `command` that could be run.")
    source = task.task.workspace.source
    workspace = Path(folder) if folder else task.folder / source if source else None
    if workspace is not None and not workspace.is_dir():
        raise ConfigurationError(f"--run: {workspace} is no folder.")
    seen = evaluate(task, workspace, hidden(loaded))
    text, detail = render(seen), str(seen.fields().get("detail", ""))
    found["evaluation"] = "\n".join(part for part in (text.head, text.body) if part)
    if detail and not seen.success:
        found["detail"] = detail
    return seen.success


def _engine(loaded: Loaded, name: str | None) -> str:
    """What is known of an engine without asking it; the default one is looked at for its file.

    Raises ConfigurationError for an unknown engine, and for a script that cannot be played.
    """
    chosen = name or loaded.config.default_engine
    engine = loaded.engine(chosen)
    if engine.kind in FILE_ENGINES:
        check_file(engine)
        return f"{chosen} ({engine.path} can be played)"
    return f"{chosen} (kind {engine.kind}, not asked)" if name else ""


def _warn_of_script(loaded: Loaded, name: str | None, task: Task) -> None:
    engine = loaded.engine(name or loaded.config.default_engine)
    catalog = kind(task.environment).catalog
    if engine.kind != "script" or catalog is None:
        return
    said = refused(Path(engine.path), catalog(task))
    for one in said[:WARNINGS]:
        out.note(f"warning: {engine.path}: {one}")
    if len(said) > WARNINGS:
        out.note(f"warning: {len(said) - WARNINGS} more calls would be refused.")


def findings(task: LoadedTask) -> dict[str, str]:
    """What the task names, as found on this machine. Raises ConfigurationError."""
    definition = task.task
    budget = definition.budget
    check_names(task)
    own = (
        "the environment scores"
        if kind(definition.environment).scores(definition)
        else "none: rollouts of it have no score"
    )
    evaluator = evaluator_of(task) or own
    given = {
        "domain": definition.domain,
        "data": ", ".join(f"{DATA}/{name}" for name in definition.data.mounts),
        "activate": _activated(task),
        "hints": ("shown" if definition.hints.shown else "off") if definition.hints.text else "",
        "scale": _scale(definition.evaluate),
        "web": _web(definition),
        "required": ", ".join(definition.evaluate.required),
        "format": definition.evaluate.format,
    }
    return {
        "instructions": f"{len(task.instructions)} characters",
        "environment": definition.environment,
        "tools": _tools(definition),
        "sandbox": definition.mapped.kind,
        "workspace": _workspace(task),
        "budget": f"{many(budget.steps, 'step')}, {budget.active_seconds:g} s, "
        f"{many(budget.evaluations, 'evaluation')}",
        "evaluator": evaluator,
        **{name: said for name, said in given.items() if said},
    }


def _tools(task: Task) -> str:
    """Their names, where they are known before the environment is open."""
    catalog = kind(task.environment).catalog
    if catalog is None:
        return ", ".join(task.tools) or "all of the environment, which names them as it opens"
    return ", ".join(tool.name for tool in catalog(task).tools)


def _web(task: Task) -> str:
    """Whose pages may be opened, where the environment has actions that open some."""
    if task.environment != "workstation" or (task.tools and "web_browse" not in task.tools):
        return ""
    return ", ".join(task.page_hosts) or "none but documents of a corpus ([browse] hosts)"


def _activated(task: LoadedTask) -> str:
    """The environment, and what of it a person might count on."""
    named = task.task.activate
    if named and (scripts := activation.scripts(task.folder / named)):
        names = ", ".join(scripts)
        return f"{named} (not run: {names}; [environment_variables] sets what they would)"
    return named


def _scale(evaluate: Evaluate) -> str:
    if evaluate.baseline is None:
        return ""
    return f"raw_score {evaluate.baseline:g} is 0 points, {evaluate.reference:g} is 100"


def evaluator_of(task: LoadedTask) -> str:
    """The evaluator's program and file as found; empty when the task has none."""
    command = task.task.evaluate.command
    if not command:
        return ""
    words = shlex.split(command) if not _SHELL_WORDS & set(command) else []
    if not words:
        return f"shell: {command}"
    scored_on = task.task.evaluate.host or task.task.hosts[0]
    program = _program(task, words[0]) if scored_on == LOCAL else f"on {scored_on}"
    if "/" in words[0]:  # relative to the task's folder, which every host has
        beside = task.folder / words[0]
        there = program if beside.is_absolute() else None
        program = str(beside) if _is_file(beside) else there
    if program is None:
        raise ConfigurationError(
            f"{task.file}: `evaluate.command` names {words[0]!r}, which is no program here."
        )
    for word in words[1:]:
        _check_script(task, word)
    return f"{command} ({program})"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _program(task: LoadedTask, word: str) -> str | None:
    """A program as the evaluator finds it on this machine: those of `activate` come first."""
    path = os.environ.get("PATH", os.defpath)
    if task.task.activate:
        path = f"{task.folder / task.task.activate / 'bin'}{os.pathsep}{path}"
    return shutil.which(word, path=path)


def _check_script(task: LoadedTask, word: str) -> None:
    """A word that looks like a file of the task folder must be one."""
    if word.endswith((".py", ".sh")) and not (task.folder / word).is_file():
        raise ConfigurationError(
            f"{task.file}: `evaluate.command` names {word!r}, which is no file beside it."
        )


def _workspace(task: LoadedTask) -> str:
    source = task.task.workspace.source
    if not source:
        return "empty"
    files = sum(1 for path in (task.folder / source).rglob("*") if path.is_file())
    return f"{source}/ ({many(files, 'file')})"
