"""Compare answers.jsonl with the right answers, case and spaces aside.

`evaluate.py --format` only says what is wrong with the submission, and exits with 1 then.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
LONGEST = 80


def read(file: Path, wanted: set[str]) -> dict[str, str]:
    """Answers by id. Raises ValueError with a sentence."""
    found: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            key, text = str(row["id"]), row["answer"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"line {number} is no object with `id` and `answer`") from None
        if not isinstance(text, str) or len(text) > LONGEST:
            raise ValueError(f"the answer of line {number} is no text of at most {LONGEST} letters")
        if key in found or key not in wanted:
            raise ValueError(f"line {number} has an id that is unknown or was there before")
        found[key] = " ".join(text.casefold().split())
    if missing := wanted - found.keys():
        raise ValueError(f"{len(missing)} of {len(wanted)} questions have no answer")
    return found


def main() -> int:
    """Print one JSON object, or with --format the problem."""
    answers = json.loads((HERE / "held_out" / "answers.json").read_text(encoding="utf-8"))
    try:
        given = read(Path(os.environ["WORKSPACE"]) / "answers.jsonl", set(answers))
    except (ValueError, OSError) as problem:
        print(f"answers.jsonl cannot be used: {problem}.")
        return 1
    if "--format" not in sys.argv:
        right = sum(given[key] == answers[key].casefold() for key in answers)
        print(json.dumps({"raw_score": round(100 * right / len(answers), 4), "right": right}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
