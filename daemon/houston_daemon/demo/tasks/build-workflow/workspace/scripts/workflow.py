"""The workflow to improve: search with the question, give the best document to the model, once.

`python3 scripts/workflow.py` answers questions.jsonl into answers.jsonl.
"""

import json
from pathlib import Path

from model import ask
from search import Search

HERE = Path(__file__).parent.parent


def answer(question: str, search: Search) -> str:
    """The answer to one question."""
    return ask(question, search.best(question)[0])


def main() -> None:
    """Answer every question."""
    search = Search(HERE / "corpus.jsonl")
    lines = []
    for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        lines.append(json.dumps({"id": row["id"], "answer": answer(row["question"], search)}))
    (HERE / "answers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
