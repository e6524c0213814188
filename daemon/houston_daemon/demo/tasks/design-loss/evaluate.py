"""Train with the submitted loss and classify held-out examples with right labels.

`evaluate.py --format` only says what is wrong with the submission, and exits with 1 then. A loss is
arithmetic that is read, not code that is run.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "workspace" / "scripts"))

import train  # noqa: E402  the task's own copy, not the agent's


def main() -> int:
    """Print one JSON object, or with --format the problem."""
    rows = train.read(HERE / "workspace" / "train.jsonl")
    try:
        loss = train.loss(Path(os.environ["WORKSPACE"]) / "loss.txt")
        weights = [] if "--format" in sys.argv else train.train(rows, loss)
    except (ValueError, OSError) as problem:
        print(f"loss.txt cannot be used: {problem}.")
        return 1
    if weights:
        raw = train.balanced(weights, train.read(HERE / "held_out" / "test.jsonl"))
        fitted = train.balanced(weights, rows)
        print(json.dumps({"raw_score": round(raw, 4), "on_training_labels": round(fitted, 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
