"""Scores kept.txt: a bad row that is left and a good row that is gone cost the same."""

import json
import os
import sys
from pathlib import Path

here = Path(__file__).parent
bad = set(json.loads((here / "truth.json").read_text()))
rows = (here / "workspace" / "data" / "reviews.tsv").read_text().splitlines()
every = {row.split("\t", 1)[0] for row in rows}
file = Path(os.environ["WORKSPACE"]) / "kept.txt"
if not file.is_file():
    sys.exit("there is no kept.txt")
kept = set(file.read_text().split())
if not kept <= every:
    sys.exit("kept.txt names rows that do not exist")
removed = every - kept
right, wrong = len(removed & bad), len(removed - bad)
score = max(0.0, 100 * (right - wrong) / len(bad))
report = {"overall_score": round(score, 1), "bad_removed": right, "good_removed": wrong}
sys.stdout.write(json.dumps(report) + "\n")
