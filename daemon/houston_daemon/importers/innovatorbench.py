"""InnovatorBench's `research_gym/configs/tasks/task_N.yaml`, field by field.

Source: GAIR-NLP/InnovatorBench, `research_gym/`: `configs/task_config.py` for the fields, `env.py`
for where task, data and conda environment come from, `action/handlers.py` for how a workspace is
scored. What it does not know, of a field or of the file system, it says.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from houston_daemon.importers.findings import FILE_TO_FILL_IN, Imported, fill_in
from houston_shared.errors import ConfigurationError

LARGEST = 1_000_000
"""Bytes of the longest file that is read."""
EVALUATOR = Path(__file__).parent / "innovatorbench_evaluate.py"
"""Runs the benchmark's own evaluation and prints its score; copied into the task folder."""
EVALUATIONS = 3
"""Submissions where the file names none (`max_eval_num` of ResearchGym)."""
_SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)
_HERE = ("localhost", "127.0.0.1", "::1")
_NODE = "it is the node's, in houston.toml: "


def read(file: Path) -> dict[str, Any]:
    """The fields of the file; raises ConfigurationError for what is no such file.

    Read by PyYAML's safe loader: plain values only, nothing is constructed.
    """
    import yaml  # 20 ms that other commands do not pay

    try:
        if file.stat().st_size > LARGEST:
            raise ConfigurationError(f"{file} is larger than {LARGEST} bytes: it is no task file.")
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigurationError(f"{file} cannot be read: {problem.strerror}.") from problem
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as problem:
        said = " ".join(str(problem).split())[:200]
        raise ConfigurationError(f"{file} is not valid YAML: {said}.") from problem
    if not isinstance(found, dict) or not isinstance(found.get("task_name"), str):
        raise ConfigurationError(f"{file} has no `task_name`: it is no task of InnovatorBench.")
    return {str(key): value for key, value in found.items()}


def imported(found: Mapping[str, Any], beside: Path) -> Imported:
    """The task that the fields describe.

    beside: the folder that relative paths of the file start from. Raises ConfigurationError for a
    value that its field cannot have.
    """
    made = Imported(name=_name(str(found["task_name"])))
    made.put("", "name", made.name)
    for field, value in found.items():
        rule = _RULES.get(field)
        if rule is None:
            made.say(field, "not mapped", "this importer does not know the field")
        elif value is None or value == "":
            made.say(field, "mapped", "nothing is given")
        else:
            rule(made, field, value)
    if "evaluations" not in made.tables.get("budget", {}):
        made.put("budget", "evaluations", EVALUATIONS)
        made.say("max_eval_num", "mapped", f"not given: ResearchGym's {EVALUATIONS}")
    _task_folder(made, found, beside)
    _evaluation(made, found, beside)
    made.put("browse", "hosts", ["*"])
    made.say(
        "(network)",
        "approximately",
        "commands have none; [sandbox] network = true gives it. Pages of all hosts are open, as"
        " there: [browse] hosts",
    )
    return made


def _name(text: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    if not name:
        raise ConfigurationError(f"`task_name` is {text!r}, of which no task name can be made.")
    if "/" in text:  # folders are read and written by it
        raise ConfigurationError(f"`task_name` is {text!r}, which is no name of a folder.")
    return name


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigurationError(f"`{field}` is {value!r}, no number above 0.")
    return value


def _count(field: str, value: Any) -> int:
    """A whole number: a fraction of a step would become none."""
    number = _number(field, value)
    if number != int(number):
        raise ConfigurationError(f"`{field}` is {value!r}, no whole number.")
    return int(number)


def _steps(made: Imported, field: str, value: Any) -> None:
    made.put("budget", "steps", _count(field, value))
    made.say(field, "mapped", "[budget] steps")


def _time(made: Imported, field: str, value: Any) -> None:
    made.put("budget", "active_seconds", float(_number(field, value)))
    said = "[budget] active_seconds: pauses, downtime and waiting for a slot are not counted here"
    made.say(field, "approximately", said)


def _evaluations(made: Imported, field: str, value: Any) -> None:
    made.put("budget", "evaluations", _count(field, value))
    said = "[budget] evaluations; one without a score uses up none, and a late one ends nothing"
    made.say(field, "approximately", said)


def _evaluation_time(made: Imported, field: str, value: Any) -> None:
    made.put("evaluate", "seconds", float(_number(field, value)))
    made.say(field, "mapped", "[evaluate] seconds, of one evaluation")


def _workspace(made: Imported, field: str, value: Any) -> None:
    if value == "/workspace":
        made.say(field, "mapped", "a sandboxed rollout sees its workspace at /workspace, too")
    else:
        made.say(field, "not mapped", f"the workspace is at /workspace, not at {value}")


def _variables(made: Imported, field: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise ConfigurationError(f"`{field}` is no mapping of names to values.")
    for key, text in value.items():
        secret = _SECRET.search(str(key)) is not None
        made.put("environment_variables", str(key), f"[secret:{key}]" if secret else str(text))
        said = "environment_variables" + (
            "; its value stays out of the file: start the daemon with it" if secret else ""
        )
        made.say(f"{field}.{key}", "approximately" if secret else "mapped", said)


def _computers(made: Imported, field: str, value: Any) -> None:
    for number, one in enumerate(value if isinstance(value, list) else [], 1):
        about = one if isinstance(one, dict) else {}
        kind, name = about.get("computer_type", about.get("type", "")), f"{field}[{number}]"
        if not about.get("available", True):
            made.say(name, "mapped", "it is not available, so it is left out")
        elif kind == "localhost_cpu" or about.get("computer_ip") in _HERE:
            made.say(name, "mapped", "the host `local`")
        else:
            address = about.get("computer_ip", "")
            said = (
                f"it is reached over SSH and not by an HTTP server: give {address} a table"
                f" [hosts.{kind or 'other'}-{number}] in houston.toml, and name it in `hosts`"
            )
            made.say(name, "not mapped", said)


def _launch(made: Imported, field: str, value: Any) -> None:
    if value == "direct_http":
        made.say(field, "mapped", "a rollout begins with the task")
    else:
        said = "go on from a step by: houston rollout branch R --at STEP"
        made.say(field, "not mapped", said)


def _shell(made: Imported, field: str, value: Any) -> None:
    how = "mapped" if value == "/bin/bash" else "not mapped"
    made.say(field, "mapped" if how == "mapped" else "not mapped", "sessions run /bin/bash")


def _told(how: str, said: str) -> Callable[[Imported, str, Any], None]:
    """A rule that only says where a field belongs."""

    def rule(made: Imported, field: str, value: Any) -> None:
        made.say(field, "mapped" if how == "mapped" else "not mapped", said)

    return rule


def _given(value: Any) -> str:
    """A path of the file; empty where it is a placeholder that nobody has filled in."""
    text = str(value or "")
    return "" if "<" in text else text


def _task_folder(made: Imported, found: Mapping[str, Any], beside: Path) -> None:
    """Instructions, the task's code, its data and its conda environment, from the dataset."""
    field, name = "workspace_dataset_path", str(found["task_name"])
    given = _given(found.get(field))
    gym = beside / given / "gym" / name if given else None
    made.put("workspace", "source", "workspace")
    made.put("", "instructions_file", "instructions.md")
    description = gym / "task/task_description.md" if gym else None
    if gym is not None and description is not None and description.is_file():
        made.copies["instructions.md"] = description
        made.copies["workspace/task"] = gym / "task"
        made.say(f"{field}/gym/{name}/task", "mapped", "instructions.md, and workspace/task")
    else:
        what = f"the text of gym/{name}/task/task_description.md of the dataset"
        made.texts["instructions.md"] = fill_in(what)
        what = f"put the folder gym/{name}/task of the dataset here, and remove this file"
        made.texts[f"workspace/task/{FILE_TO_FILL_IN}"] = fill_in(what)
        why = "the dataset is not there" if gym else "it names no folder"
        said = f"{why}: put task_description.md into instructions.md, and the"
        made.say(field, "not mapped", f"{said} folder gym/{name}/task into workspace/task")
    if gym is not None and (gym / "data").is_dir():
        made.put("data.mounts", "gym", str((gym / "data").absolute()))
        made.links["workspace/data"] = "/data/gym"
        said = "mapped read-only at /data/gym; /workspace/data is a link to it, no copy"
        made.say(f"{field}/gym/{name}/data", "approximately", said)
    else:
        said = f'[data.mounts] gym = "…/gym/{name}/data", and a link workspace/data to /data/gym'
        made.say(f"{field}/gym/{name}/data", "not mapped", f"it is not there; then: {said}")
    said = 'unpack conda/…/conda.tar of the dataset, and name its folder: activate = "…"'
    made.say(f"{field}/conda", "not mapped", said)


def _evaluation(made: Imported, found: Mapping[str, Any], beside: Path) -> None:
    """The benchmark's own evaluation, which stays where the agent cannot read it."""
    field, name = "eval_workspace", str(found["task_name"])
    given = _given(found.get(field))
    made.copies["evaluate.py"] = EVALUATOR
    made.put("evaluate", "command", f"python3 evaluate.py {shlex.quote(name)}")
    there = beside / given if given else None
    if there is not None and (there / name / "task/evaluation.py").is_file():
        made.copies[f"evaluations/{name}"] = there / name
        if (there / "base").is_dir():
            made.copies["evaluations/base"] = there / "base"
        said = "evaluate.py sums TaskBenchmark.validate() up, at most 100, as ResearchGym does"
        made.say(field, "mapped", said)
    else:
        what = f"put the folders base and {name} of the evaluations here, and remove this file"
        made.texts[f"evaluations/{FILE_TO_FILL_IN}"] = fill_in(what)
        why = "the evaluation is not there" if there else "it names no folder"
        said = f"{why}: copy its folders base and {name} into evaluations/"
        made.say(field, "not mapped", f"{said}; evaluate.py runs them as ResearchGym does")


_SEARCH = _told("not mapped", f"{_NODE}[tools.search]")
_BROWSE = _told("not mapped", f"{_NODE}[tools.browse]; pages are fetched directly and kept")
_UNNEEDED = _told("mapped", "not needed: every step is kept, and a rollout goes on by itself")
_HTTP = _told("not mapped", "sessions are no HTTP server: hosts are reached over SSH")
_RULES: dict[str, Callable[[Imported, str, Any], None]] = {
    "task_name": _told("mapped", "name"),
    "launch_type": _launch,
    "workspace": _workspace,
    "max_working_time": _time,
    "max_steps": _steps,
    "max_eval_num": _evaluations,
    "max_eval_time": _evaluation_time,
    "env_vars": _variables,
    "computer_pool": _computers,
    "default_shell": _shell,
    "default_http_port": _HTTP,
    "cmd_proxy_url": _HTTP,
    "start_time": _told("mapped", "not needed: active time begins with the first step"),
    "save_freq": _UNNEEDED,
    "resume_from_path": _told("not mapped", "a checkpoint of ResearchGym cannot be read"),
    "checkpoint_base_path": _UNNEEDED,
    "actual_workspace": _told("mapped", "not needed: every rollout has a workspace of its own"),
    "tokenizer": _told("not mapped", f"{_NODE}`tokenizer` of the engine"),
    "model_name": _told("not mapped", f"{_NODE}`model` of the engine"),
    "openai_api_key": _told("not mapped", f"{_NODE}[tools.multimodal]"),
    "openai_base_url": _told("not mapped", f"{_NODE}[tools.multimodal]"),
    "search_engine": _SEARCH,
    "serper_api_key": _SEARCH,
    "azure_bing_search_subscription_key": _SEARCH,
    "azure_bing_search_mkt": _SEARCH,
    "search_max_top_k": _told("mapped", "web_search gives 100 results at most, too"),
    "search_region": _SEARCH,
    "search_lang": _SEARCH,
    "search_cache_dir": _SEARCH,
    "search_cache_duration_days": _SEARCH,
    "web_server_host": _BROWSE,
    "web_server_port": _BROWSE,
    "web_proxy_url": _BROWSE,
    "web_cache_dir": _BROWSE,
    "web_cache_duration_days": _BROWSE,
    "workspace_dataset_path": lambda made, field, value: None,  # said with what lies there
    "eval_workspace": lambda made, field, value: None,
}
