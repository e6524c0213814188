"""A task file of InnovatorBench's shape becomes a task that runs; each field is accounted for."""

from pathlib import Path

import pytest

from houston_shared.task import load_task
from tests.support.station import Station

TASK = """
task_name: "task_1"
launch_type: "direct_http"  # ["direct_http", "load_checkpoint"]
workspace: "/workspace"
max_working_time: 172800
start_time: "now"
max_steps: 4000
save_freq: -1
resume_from_path: null
tokenizer: "Qwen/Qwen2.5-7B-Instruct"
checkpoint_base_path: "<base_dir_path_to_save_checkpoints>"
workspace_dataset_path: "{dataset}"
actual_workspace: "<symbolic_link>"
env_vars:
  OPENAI_API_KEY: "sk-not-for-the-file"
  HF_HOME: "/workspace/hf \\u007f"
cmd_proxy_url: "http://<cmd_proxy_url>:8101"
computer_pool:
  - computer_ip: "10.0.0.7"
    computer_port: 8123
    computer_type: "gpu"
    available: true
  - {{computer_ip: "10.0.0.8", computer_type: "localhost_cpu", available: true}}
  - {{computer_ip: "127.0.0.1", port: 8124, type: "cpu", available: true}}
default_shell: "/bin/bash"
default_http_port: null
openai_api_key: null
eval_workspace: "{evaluations}"
max_eval_time: 50
search_engine: "google"
serper_api_key: "<search_engine_api_key>"
search_max_top_k: 100
web_server_host: "<web_server_host>"
web_server_port: 8124
something_new: 3
"""
EVALUATION = """
from pathlib import Path

class Result:
    def __init__(self, score): self.score = score
    def to_dict(self):
        return {"task_name": "task_1", "eval_results": {"score": self.score, "kind": "f1"}}

class TaskBenchmark:
    def __init__(self, config): self.config = config
    def validate(self):
        print("chatter that is no JSON")
        words = (Path(self.config.workspace) / "task/words.txt").read_text().split()
        given = (Path("/data/gym") / "words.txt").read_text().split()
        return [Result(60 if words == given else 0), Result(70 if words else 0)]
"""
CONFIG = """
class TaskConfig:
    def __init__(self, eval_workspace, workspace):
        self.eval_workspace, self.workspace = eval_workspace, workspace
"""


@pytest.fixture
def bench(station: Station) -> Path:
    """A checkout with one task, its data and its evaluation; returns the task file."""
    root = station.folder / "bench"
    files = {
        "datasets/gym/task_1/task/task_description.md": "Copy the words of /workspace/data.\n",
        "datasets/gym/task_1/data/words.txt": "one two\n",
        "evaluations/task_1/task/evaluation.py": EVALUATION,
        "evaluations/task_1/task/config.py": CONFIG,
        "evaluations/base/__init__.py": "",
        "task_1.yaml": TASK.format(dataset="datasets", evaluations="./evaluations"),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "task_1.yaml"


@pytest.mark.slow
def test_an_imported_task_runs_and_is_scored_as_there(station: Station, bench: Path) -> None:
    words = ["task", "import", str(bench), "--from", str(bench.parent), "--out", "made"]
    (told,) = station.json(*words)
    how = {one["field"]: one["how"] for one in told["fields"]}
    assert how["max_steps"] == "mapped"
    assert how["max_working_time"] == "approximately"
    assert how["tokenizer"] == how["something_new"] == how["computer_pool[1]"] == "not mapped"
    assert how["computer_pool[2]"] == how["computer_pool[3]"] == "mapped"
    assert set(how) >= {"serper_api_key", "web_server_port", "resume_from_path", "eval_workspace"}
    file = station.folder / "made/task.toml"
    assert "sk-not-for-the-file" not in file.read_text()
    task = load_task(file).task
    assert (task.name, task.budget.steps, task.budget.evaluations) == ("task-1", 4000, 3)
    assert (task.budget.active_seconds, task.evaluate.seconds) == (172_800, 50)
    assert task.page_hosts == ("*",), "its agents browse the web"
    assert task.environment_variables == {
        "OPENAI_API_KEY": "[secret:OPENAI_API_KEY]",
        "HF_HOME": "/workspace/hf \x7f",
    }
    station.environment["OPENAI_API_KEY"] = "sk-0123456789abcdef"
    station.run("task", "validate", "made")
    station.start()
    command = "cp data/words.txt task/words.txt; cat /data/gym/words.txt; touch data/x; ls /data"
    copy = {"name": "run_command", "arguments": {"command": command}}
    (rollout,) = station.rollout(file, station.script([{"thought": "copy", "calls": [copy]}]))
    shown = station.ended(rollout)
    first, last = station.steps(rollout)
    assert "one two" in first["observation"]
    assert "Read-only file system" in first["observation"]
    assert "overall_score: 100" in last["observation"]
    assert (shown["state"], shown["best_score"], shown["final_score"]) == ("finished", 100, 100)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("task_name: [", "is not valid YAML"),
        ("steps: 3", "has no `task_name`"),
        ("task_name: !!python/object/apply:os.system ['true']", "is not valid YAML"),
        ("task_name: t\nmax_steps: -1", "not a number above 0"),
        ("task_name: t\nmax_steps: 0.5", "`max_steps` is 0.5, not a whole number"),
        ("task_name: t\nmax_eval_num: 1.5", "`max_eval_num` is 1.5, not a whole number"),
        ("task_name: '???'", "no task name can be made"),
        ("task_name: ../../task_1", "not a valid folder name"),
    ],
)
def test_what_is_no_task_file_is_said(station: Station, text: str, cause: str) -> None:
    (station.folder / "bad.yaml").write_text(text)
    done = station.run("task", "import", "bad.yaml", code=78)
    assert cause in done.stderr
    assert not (station.folder / "t").exists()


def test_without_the_dataset_the_folder_says_what_to_put_where(station: Station) -> None:
    (station.folder / "task_2.yaml").write_text("task_name: task_2\nmax_eval_num: 4\n")
    (told,) = station.json("task", "import", "task_2.yaml")
    missing = [one["field"] for one in told["fields"] if one["how"] == "not mapped"]
    assert missing == [
        "workspace_dataset_path",
        "workspace_dataset_path/gym/task_2/data",
        "workspace_dataset_path/conda",
        "eval_workspace",
    ]
    said = {one["field"]: one["said"] for one in told["fields"]}
    assert said["workspace_dataset_path"].startswith("it names no folder")
    assert told["file"] == "task-2/task.toml"
    station.start()
    left = ["instructions.md", "evaluations/FILL_IN.md", "workspace/task/FILL_IN.md"]
    for command in (["task", "validate"], ["rollout", "start"]):
        refused = station.run(*command, "task-2", code=78).stderr
        assert [place for place in left if f"task-2/{place}, line 1: " in refused] == left
    (station.folder / "task-2/instructions.md").write_text("Count.\n\nIn words: [fill in] x.\n")
    for place in left[1:]:
        (station.folder / "task-2" / place).unlink()
    station.run("task", "validate", "task-2")
    again = station.run("task", "import", "task_2.yaml", code=1)
    assert "already exists" in again.stderr
