"""Train with the submitted reward and measure the policy on the held-out problems.

`evaluate.py --format` only says what is wrong with the submission, and exits with 1 then. A reward
is arithmetic that is read, not code that is run.
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
    problems = train.read(HERE / "workspace" / "problems.json")
    test = train.read(HERE / "held_out" / "problems.json")
    try:
        reward = train.reward(Path(os.environ["WORKSPACE"]) / "reward.txt")
        found = () if "--format" in sys.argv else train.outcome(reward, problems, test)
    except (ValueError, OSError) as problem:
        print(f"reward.txt cannot be used: {problem}.")
        return 1
    if found:
        accuracy, length = found
        raw = round(accuracy - train.PER_UNIT * length, 4)
        told = {"accuracy": round(accuracy, 2), "mean_length": round(length, 2)}
        print(json.dumps({"raw_score": raw, **told}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
