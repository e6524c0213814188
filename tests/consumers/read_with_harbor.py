"""Run in Harbor's environment: FOLDER. Prints what its own validator says of each trajectory there
(`*.json`), and of each task folder whether Harbor takes it, with its name."""

import json
import sys
from pathlib import Path

from harbor.models.task.task import Task
from harbor.utils.trajectory_validator import TrajectoryValidator


def read(folder: Path) -> dict[str, dict[str, object]]:
    trajectories: dict[str, object] = {}
    for file in sorted(folder.glob("*.json")):
        validator = TrajectoryValidator()
        valid = validator.validate(file)
        trajectories[file.stem] = [] if valid else validator.get_errors()
    tasks: dict[str, object] = {}
    for file in sorted(folder.glob("*/task.toml")):
        tasks[file.parent.name] = Task(file.parent).name if Task.is_valid_dir(file.parent) else ""
    return {"trajectories": trajectories, "tasks": tasks}


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]))))
