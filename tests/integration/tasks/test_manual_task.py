"""The manual's task, exactly as it stands there, scores its baseline 0 and a solution 100."""

import re
from pathlib import Path

from tests.support.station import Station

MANUAL = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()
(TASK,) = re.findall(r"```toml\n(.*?)```", MANUAL, re.DOTALL)
(EVALUATOR,) = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)


def test_the_manuals_task_can_be_tried(station: Station) -> None:
    folder = station.folder / "mean"
    for place, text in (("workspace", "10.0\n"), ("solution", "20.0\n"), ("words", "much\n")):
        (folder / place / "out").mkdir(parents=True)
        (folder / place / "out/mean.txt").write_text(text)
    (folder / "numbers").mkdir()
    (folder / "task.toml").write_text(TASK)
    (folder / "evaluate.py").write_text(EVALUATOR)
    baseline = station.run("task", "validate", "mean", "--run").stdout
    assert "overall_score: 0 of 100 (3 submissions left)" in baseline
    solution = station.json("task", "validate", "mean", "--run", "mean/solution")[0]["evaluation"]
    assert "overall_score: 100 of 100" in solution
    refused = station.run("task", "validate", "mean", "--run", "mean/words", code=1).stdout
    assert "wrong: out/mean.txt holds no number" in refused and "No submission was" in refused
