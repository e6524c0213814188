"""What `houston demo` needs: a packaged task, a script that solves it, a recorded sample."""

from pathlib import Path

FOLDER = Path(__file__).parent
TASK = FOLDER / "tasks" / "count-words" / "task.toml"
SOLUTION = FOLDER / "solution.jsonl"
SAMPLE = FOLDER / "samples" / "count-words.jsonl"
