"""A solution: one fact at a time, from inside out, one sentence at a time, and a vote over samples.

Run in a copy of the workspace: `python3 solve.py FOLDER`.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

SAMPLES = 25


def main() -> None:
    """Write answers.jsonl."""
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    sys.path.insert(0, str(workspace / "scripts"))
    from model import ask
    from search import Search

    search = Search(workspace / "corpus.jsonl")

    def fact(relation: str, subject: str) -> str:
        about = re.compile(rf"\bof {subject}\b|\b{subject} has\b")
        question = f"What is the {relation} of {subject}?"
        passages = [
            sentence.strip()
            for text in search.best(question, 6)
            for sentence in re.findall(r"[^.]+\.", text)
            if relation in sentence and about.search(sentence)
        ]
        votes = Counter(
            ask(question, passage, seed) for passage in passages for seed in range(SAMPLES)
        )
        votes.pop(subject, None)
        return votes.most_common(1)[0][0] if votes else ""

    lines = []
    for line in (workspace / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        *relations, subject = re.findall(r"the (\w+) of|(\w+)\?$", row["question"])
        value = subject[1]
        for relation, _ in reversed(relations):
            value = fact(relation, value)
        lines.append(json.dumps({"id": row["id"], "answer": value}))
    (workspace / "answers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
