"""InnovatorBench's `research_gym/configs/tasks/task_N.yaml` as a task folder, field by field.

Source: GAIR-NLP/InnovatorBench, `research_gym/`: `configs/task_config.py` for the fields,
`env.py` for where task, data and conda environment come from, `action/handlers.py` for how a
workspace is scored. Holds the table of field rules. It reads plain YAML and runs nothing; the task
in the making and its folder are `imported_task`.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from houston_daemon.importers.imported_task import (
    PLACEHOLDER_FILE,
    ImportedTask,
    MappingKind,
    make_task_name,
    placeholder_line,
)
from houston_shared.errors import ConfigurationError, ExitCode, unreadable_file_code

FieldRule = Callable[[ImportedTask, str, Any], None]
"""What becomes of a field: its name and value come behind the task."""
LARGEST_TASK_FILE_BYTES = 1_000_000
"""Bytes of the longest file that is read."""
EVALUATOR_FILE = Path(__file__).parent / "innovatorbench_evaluate.py"
"""Runs the benchmark's own evaluation and prints its score; copied into the task folder."""
DEFAULT_EVALUATIONS = 3
"""Submissions where the file names none (`max_eval_num` of ResearchGym)."""
_SECRET_NAME = re.compile(r"key|token|secret|password", re.IGNORECASE)
_LOCAL_ADDRESSES = ("localhost", "127.0.0.1", "::1")
_NODE_SETTING = "it is the node's, in houston.toml: "


def read_task_fields(file: Path) -> dict[str, Any]:
    """The fields of the file; raises ConfigurationError for what is no such file.

    Read by PyYAML's safe loader: plain values only, nothing is constructed.
    """
    import yaml  # 20 ms that other commands do not pay

    try:
        if file.stat().st_size > LARGEST_TASK_FILE_BYTES:
            raise ConfigurationError(
                f"{file} is larger than {LARGEST_TASK_FILE_BYTES} bytes: it is not a task file."
            )
        fields = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigurationError(
            f"{file} cannot be read: {problem.strerror}.",
            code=unreadable_file_code(problem, ExitCode.CONFIGURATION),
        ) from problem
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise ConfigurationError(f"{file} is not valid YAML: {reason}.") from problem
    if not isinstance(fields, dict) or not isinstance(fields.get("task_name"), str):
        raise ConfigurationError(f"{file} has no `task_name`: it is not a task of InnovatorBench.")
    return {str(key): value for key, value in fields.items()}


def convert_task(fields: Mapping[str, Any], base_folder: Path) -> ImportedTask:
    """The task that the fields describe.

    base_folder: the folder that relative paths of the file start from. Raises ConfigurationError
    for a value that its field cannot have.
    """
    name = str(fields["task_name"])
    task = ImportedTask(name=make_task_name(name, "`task_name`"))
    if "/" in name:  # folders are read and written by it
        raise ConfigurationError(f"`task_name` is {name!r}, which is not a valid folder name.")
    task.set_key("", "name", task.name)
    for field_name, value in fields.items():
        rule = _FIELD_RULES.get(field_name)
        if rule is None:
            task.note_field(field_name, "not mapped", "this importer does not know the field")
        elif value is None or value == "":
            task.note_field(field_name, "mapped", "nothing is given")
        else:
            rule(task, field_name, value)
    if "evaluations" not in task.tables.get("budget", {}):
        task.set_key("budget", "evaluations", DEFAULT_EVALUATIONS)
        task.note_field("max_eval_num", "mapped", f"not given: ResearchGym's {DEFAULT_EVALUATIONS}")
    _map_task_folder(task, fields, base_folder)
    _map_evaluation(task, fields, base_folder)
    task.set_key("browse", "hosts", ["*"])
    task.note_field(
        "(network)",
        "approximately",
        "commands have none; [sandbox] network = true gives it. Pages of all hosts are open, as"
        " there: [browse] hosts",
    )
    return task


def _positive_number(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigurationError(f"`{field}` is {value!r}, not a number above 0.")
    return value


def _positive_integer(field: str, value: Any) -> int:
    """A whole number: a fraction of a step would become none."""
    number = _positive_number(field, value)
    if number != int(number):
        raise ConfigurationError(f"`{field}` is {value!r}, not a whole number.")
    return int(number)


def _count_mapping(key: str, mapping: MappingKind, remark: str) -> FieldRule:
    def rule(task: ImportedTask, field: str, value: Any) -> None:
        task.set_key("budget", key, _positive_integer(field, value))
        task.note_field(field, mapping, f"[budget] {key}{remark}")

    return rule


def _seconds_mapping(table: str, key: str, mapping: MappingKind, remark: str) -> FieldRule:
    def rule(task: ImportedTask, field: str, value: Any) -> None:
        task.set_key(table, key, float(_positive_number(field, value)))
        task.note_field(field, mapping, f"[{table}] {key}{remark}")

    return rule


def _map_workspace(task: ImportedTask, field: str, value: Any) -> None:
    if value == "/workspace":
        task.note_field(
            field, "mapped", "a sandboxed rollout sees its workspace at /workspace, too"
        )
    else:
        task.note_field(field, "not mapped", f"the workspace is at /workspace, not at {value}")


def _map_environment_variables(task: ImportedTask, field: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise ConfigurationError(f"`{field}` is not a mapping of names to values.")
    for key, text in value.items():
        secret = _SECRET_NAME.search(str(key)) is not None
        task.set_key("environment_variables", str(key), f"[secret:{key}]" if secret else str(text))
        remark = "environment_variables" + (
            "; its value stays out of the file: start the daemon with it" if secret else ""
        )
        task.note_field(f"{field}.{key}", "approximately" if secret else "mapped", remark)


def _map_computers(task: ImportedTask, field: str, value: Any) -> None:
    for number, computer in enumerate(value if isinstance(value, list) else [], 1):
        fields = computer if isinstance(computer, dict) else {}
        kind, name = fields.get("computer_type", fields.get("type", "")), f"{field}[{number}]"
        if not fields.get("available", True):
            task.note_field(name, "mapped", "it is not available, so it is left out")
        elif kind == "localhost_cpu" or fields.get("computer_ip") in _LOCAL_ADDRESSES:
            task.note_field(name, "mapped", "the host `local`")
        else:
            address = fields.get("computer_ip", "")
            remark = (
                f"it is reached over SSH and not by an HTTP server: give {address} a table"
                f" [hosts.{kind or 'other'}-{number}] in houston.toml, and name it in `hosts`"
            )
            task.note_field(name, "not mapped", remark)


def _map_launch_type(task: ImportedTask, field: str, value: Any) -> None:
    if value == "direct_http":
        task.note_field(field, "mapped", "a rollout begins with the task")
    else:
        remark = "go on from a step by: houston rollout branch R --at STEP"
        task.note_field(field, "not mapped", remark)


def _map_shell(task: ImportedTask, field: str, value: Any) -> None:
    task.note_field(
        field, "mapped" if value == "/bin/bash" else "not mapped", "sessions run /bin/bash"
    )


def _fixed_mapping(mapping: MappingKind, remark: str) -> FieldRule:
    """A rule that only says where a field belongs."""
    return lambda task, field, value: task.note_field(field, mapping, remark)


def _given_path(value: Any) -> str:
    """A path of the file; empty where it is a placeholder that nobody has filled in."""
    text = str(value or "")
    return "" if "<" in text else text


def _map_task_folder(task: ImportedTask, fields: Mapping[str, Any], base_folder: Path) -> None:
    """Instructions, the task's code, its data and its conda environment, from the dataset."""
    field, name = "workspace_dataset_path", str(fields["task_name"])
    given_path = _given_path(fields.get(field))
    gym = base_folder / given_path / "gym" / name if given_path else None
    task.set_key("workspace", "source", "workspace")
    task.set_key("", "instructions_file", "instructions.md")
    description = gym / "task/task_description.md" if gym else None
    if gym is not None and description is not None and description.is_file():
        task.copies["instructions.md"] = description
        task.copies["workspace/task"] = gym / "task"
        task.note_field(f"{field}/gym/{name}/task", "mapped", "instructions.md, and workspace/task")
    else:
        instruction = f"the text of gym/{name}/task/task_description.md of the dataset"
        task.texts["instructions.md"] = placeholder_line(instruction)
        instruction = f"put the folder gym/{name}/task of the dataset here, and remove this file"
        task.texts[f"workspace/task/{PLACEHOLDER_FILE}"] = placeholder_line(instruction)
        reason = "the dataset is not there" if gym else "it names no folder"
        remark = f"{reason}: put task_description.md into instructions.md, and the"
        task.note_field(field, "not mapped", f"{remark} folder gym/{name}/task into workspace/task")
    if gym is not None and (gym / "data").is_dir():
        task.set_key("data.mounts", "gym", str((gym / "data").absolute()))
        task.links["workspace/data"] = "/data/gym"
        remark = "mapped read-only at /data/gym; /workspace/data is a link to it, no copy"
        task.note_field(f"{field}/gym/{name}/data", "approximately", remark)
    else:
        remark = f'[data.mounts] gym = "…/gym/{name}/data", and a link workspace/data to /data/gym'
        task.note_field(
            f"{field}/gym/{name}/data", "not mapped", f"it is not there; then: {remark}"
        )
    remark = 'unpack conda/…/conda.tar of the dataset, and name its folder: activate = "…"'
    task.note_field(f"{field}/conda", "not mapped", remark)


def _map_evaluation(task: ImportedTask, fields: Mapping[str, Any], base_folder: Path) -> None:
    """The benchmark's own evaluation, which stays where the agent cannot read it."""
    field, name = "eval_workspace", str(fields["task_name"])
    given_path = _given_path(fields.get(field))
    task.copies["evaluate.py"] = EVALUATOR_FILE
    task.set_key("evaluate", "command", f"python3 evaluate.py {shlex.quote(name)}")
    evaluations = base_folder / given_path if given_path else None
    if evaluations is not None and (evaluations / name / "task/evaluation.py").is_file():
        task.copies[f"evaluations/{name}"] = evaluations / name
        if (evaluations / "base").is_dir():
            task.copies["evaluations/base"] = evaluations / "base"
        remark = "evaluate.py sums TaskBenchmark.validate() up, at most 100, as ResearchGym does"
        task.note_field(field, "mapped", remark)
    else:
        instruction = (
            f"put the folders base and {name} of the evaluations here, and remove this file"
        )
        task.texts[f"evaluations/{PLACEHOLDER_FILE}"] = placeholder_line(instruction)
        reason = "the evaluation is not there" if evaluations else "it names no folder"
        remark = f"{reason}: copy its folders base and {name} into evaluations/"
        task.note_field(field, "not mapped", f"{remark}; evaluate.py runs them as ResearchGym does")


_SEARCH_SETTING = _fixed_mapping("not mapped", f"{_NODE_SETTING}[tools.search]")
_BROWSE_SETTING = _fixed_mapping(
    "not mapped", f"{_NODE_SETTING}[tools.browse]; pages are fetched directly and kept"
)
_NOT_NEEDED = _fixed_mapping(
    "mapped", "not needed: every step is kept, and a rollout goes on by itself"
)
_NO_HTTP_SERVER = _fixed_mapping(
    "not mapped", "sessions are no HTTP server: hosts are reached over SSH"
)
_FIELD_RULES: dict[str, FieldRule] = {
    "task_name": _fixed_mapping("mapped", "name"),
    "launch_type": _map_launch_type,
    "workspace": _map_workspace,
    "max_working_time": _seconds_mapping(
        "budget",
        "active_seconds",
        "approximately",
        ": pauses, downtime and waiting for a slot are not counted here",
    ),
    "max_steps": _count_mapping("steps", "mapped", ""),
    "max_eval_num": _count_mapping(
        "evaluations",
        "approximately",
        "; one without a score uses up none, and a late one ends nothing",
    ),
    "max_eval_time": _seconds_mapping("evaluate", "seconds", "mapped", ", of one evaluation"),
    "env_vars": _map_environment_variables,
    "computer_pool": _map_computers,
    "default_shell": _map_shell,
    "default_http_port": _NO_HTTP_SERVER,
    "cmd_proxy_url": _NO_HTTP_SERVER,
    "start_time": _fixed_mapping("mapped", "not needed: active time begins with the first step"),
    "save_freq": _NOT_NEEDED,
    "resume_from_path": _fixed_mapping("not mapped", "a checkpoint of ResearchGym cannot be read"),
    "checkpoint_base_path": _NOT_NEEDED,
    "actual_workspace": _fixed_mapping(
        "mapped", "not needed: every rollout has a workspace of its own"
    ),
    "tokenizer": _fixed_mapping("not mapped", f"{_NODE_SETTING}`tokenizer` of the engine"),
    "model_name": _fixed_mapping("not mapped", f"{_NODE_SETTING}`model` of the engine"),
    "openai_api_key": _fixed_mapping("not mapped", f"{_NODE_SETTING}[tools.multimodal]"),
    "openai_base_url": _fixed_mapping("not mapped", f"{_NODE_SETTING}[tools.multimodal]"),
    "search_engine": _SEARCH_SETTING,
    "serper_api_key": _SEARCH_SETTING,
    "azure_bing_search_subscription_key": _SEARCH_SETTING,
    "azure_bing_search_mkt": _SEARCH_SETTING,
    "search_max_top_k": _fixed_mapping("mapped", "web_search gives 100 results at most, too"),
    "search_region": _SEARCH_SETTING,
    "search_lang": _SEARCH_SETTING,
    "search_cache_dir": _SEARCH_SETTING,
    "search_cache_duration_days": _SEARCH_SETTING,
    "web_server_host": _BROWSE_SETTING,
    "web_server_port": _BROWSE_SETTING,
    "web_proxy_url": _BROWSE_SETTING,
    "web_cache_dir": _BROWSE_SETTING,
    "web_cache_duration_days": _BROWSE_SETTING,
    "workspace_dataset_path": lambda task, field, value: None,  # said with what lies there
    "eval_workspace": lambda task, field, value: None,
}
