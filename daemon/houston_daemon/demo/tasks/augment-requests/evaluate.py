"""Train the fixed classifier on the submitted rows and classify the held-out requests.

`evaluate.py --format` only says what is wrong with the submission, and exits with 1 then.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "workspace" / "scripts"))

import classifier  # noqa: E402  the task's own copy, not the agent's


def submitted() -> Path:
    """The submission, opened where it lies: a link could lead to the held-out data. OSError."""
    file = Path(os.environ["WORKSPACE"]) / "augmented.jsonl"
    return Path(f"/proc/self/fd/{os.open(file, os.O_RDONLY | os.O_NOFOLLOW)}")


def main() -> int:
    """Print one JSON object, or with --format the problem."""
    try:
        rows = classifier.read(submitted())
    except (ValueError, OSError) as problem:
        print(f"augmented.jsonl cannot be used: {problem}.")
        return 1
    if "--format" not in sys.argv:
        test = classifier.read(HERE / "held_out" / "test.jsonl")
        raw = classifier.accuracy(classifier.train(rows), test)
        print(json.dumps({"raw_score": round(raw, 4), "rows": len(rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
