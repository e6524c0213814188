"""Train the fixed classifier on the selected candidates and classify the held-out messages.

`evaluate.py --format` only says what is wrong with the submission, and exits with 1 then.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "workspace" / "scripts"))

import classifier  # noqa: E402  the task's own copy, not the agent's


def main() -> int:
    """Print one JSON object, or with --format the problem."""
    rows = classifier.read(HERE / "workspace" / "candidates.jsonl")
    try:
        chosen = classifier.selection(Path(os.environ["WORKSPACE"]) / "selected.json", len(rows))
    except (ValueError, OSError) as problem:
        print(f"selected.json cannot be used: {problem}.")
        return 1
    if "--format" not in sys.argv:
        model = classifier.train([rows[one] for one in chosen])
        raw = classifier.accuracy(model, classifier.read(HERE / "held_out" / "test.jsonl"))
        print(json.dumps({"raw_score": round(raw, 4), "vocabulary": model.vocabulary}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
