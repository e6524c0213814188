"""Score the workspace by an evaluation of InnovatorBench: `python3 evaluate.py task_N`.

Lies in an imported task's folder, beside `evaluations/`. It does what ResearchGym does: the sum
of the scores that `TaskBenchmark.validate()` gives, at most 100. What the evaluation prints goes
to stderr; stdout has nothing but the JSON object that Houston reads. Standard library only: it is
copied and runs without Houston.
"""

import contextlib
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main(task: str) -> dict[str, Any]:
    """The object that is printed."""
    sys.path.insert(0, str(HERE))
    with contextlib.redirect_stdout(sys.stderr):
        benchmark = importlib.import_module(f"evaluations.{task}.task.evaluation").TaskBenchmark
        settings = importlib.import_module(f"evaluations.{task}.task.config").TaskConfig
        config = settings(
            eval_workspace=str(HERE / "evaluations"), workspace=os.environ["WORKSPACE"]
        )
        results = [result.to_dict() for result in benchmark(config).validate()]
    scores = [float(result["eval_results"]["score"]) for result in results]
    metrics = {f"metric_{number}": result["eval_results"] for number, result in enumerate(results)}
    return {"overall_score": min(100.0, max(0.0, sum(scores))), **metrics}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1]), default=str) + "\n")
