"""Score answer.json: ten points for each of the ten most frequent words that it names."""

import json
import os
import re
from collections import Counter
from pathlib import Path

workspace = Path(os.environ["WORKSPACE"])
corpus = (Path(__file__).parent / "workspace" / "corpus.txt").read_text(encoding="utf-8")
counts = Counter(re.findall(r"[a-z']+", corpus.lower()))
expected = [word for word, _ in counts.most_common(10)]
answer = workspace / "answer.json"
given = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else []
if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
    raise SystemExit("answer.json must hold one JSON list of words")
right = len(set(given[:10]) & set(expected))
print(json.dumps({"overall_score": 10 * right, "words_right": right}))
