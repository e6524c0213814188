"""Train the fixed translator on the submitted pairs and translate the held-out sentences.

`evaluate.py --format` only says what is wrong with the submission, and exits with 1 then.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "workspace" / "scripts"))

import translator  # noqa: E402  the task's own copy, not the agent's


def submitted() -> Path:
    """The submission, opened where it lies: a link could lead to the held-out data. OSError."""
    file = Path(os.environ["WORKSPACE"]) / "train.jsonl"
    return Path(f"/proc/self/fd/{os.open(file, os.O_RDONLY | os.O_NOFOLLOW)}")


def main() -> int:
    """Print one JSON object, or with --format the problem."""
    try:
        pairs = translator.read(submitted())
    except (ValueError, OSError) as problem:
        print(f"train.jsonl cannot be used: {problem}.")
        return 1
    if "--format" not in sys.argv:
        lexicon = translator.train(pairs)
        test = translator.read(HERE / "held_out" / "test.jsonl")
        raw = round(translator.quality(lexicon, test), 4)
        print(json.dumps({"raw_score": raw, "pairs": len(pairs), "words": len(lexicon)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
