"""Other consoles on the same steps, in a virtual environment of their own, from PyPI.

mini-swe-agent's inspector reads one JSON file and shows a step at a time; it has no live mode, no
search and no way to the middle, so its `last` is `$` and its `append` is `R`, which reads the file
again. One Collapsible a step is `collapsible`.
"""

import json
import subprocess
import venv
from pathlib import Path
from typing import Any

from bench.annotating.houston import ROOT, moved, spread
from bench.annotating.stored import output, thought, trajectory
from bench.annotating.terminal import Terminal

ENVIRONMENT = ROOT / ".venv-bench"
PYTHON = ENVIRONMENT / "bin" / "python"
INSPECTOR = "mini-swe-agent==2.4.6"
NEEDS = ("textual==8.2.8", "typer", "python-dotenv", "platformdirs", "requests", "pyyaml", "jinja2")
"""What the inspector imports, of all that the agent needs; Textual as Houston pins it."""
KEYS = 25
APPENDS = 5


def prepared() -> str:
    """Make the environment where there is none; the inspector's version. Needs PyPI once."""
    mark = ENVIRONMENT / "of"
    wanted = "\n".join((INSPECTOR, *NEEDS))
    if not mark.is_file() or mark.read_text() != wanted:
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        install = [str(PYTHON), "-m", "pip", "install", "-q"]
        subprocess.run([*install, *NEEDS], check=True)
        subprocess.run([*install, "--no-deps", INSPECTOR], check=True)
        mark.write_text(wanted)
    return INSPECTOR


def measure(folder: Path, small: int, steps: int, lines: int) -> dict[str, Any]:
    """Both at `small` steps, and the inspector at all of them: one widget a step never gets there.

    folder: where the files lie.
    """
    files = {count: trajectory(folder / f"{count}.traj.json", count, lines) for count in
             (small, steps)}  # fmt: skip
    return {
        "empty Textual app, start_to_first_paint_ms": _empty(folder),
        f"one Collapsible a step, {small} steps": collapsible(folder, files[small], small),
        f"mini-swe-agent inspector, {small} steps": inspector(folder, files[small], small, lines),
        f"mini-swe-agent inspector, {steps} steps": inspector(folder, files[steps], steps, lines),
    }


def _run(folder: Path, *words: str) -> Terminal:
    quiet = {"MSWEA_GLOBAL_CONFIG_DIR": str(folder / "mini"), "MSWEA_SILENT_STARTUP": "1"}
    return Terminal([str(PYTHON), *words], folder, quiet)


def _empty(folder: Path) -> float:
    """What starting Python and Textual takes, of every first paint."""
    app = (
        "from textual.app import App\nfrom textual.widgets import Static\n"
        "class Empty(App):\n    def compose(self):\n        yield Static('here it is')\n"
        "Empty().run()"
    )
    with _run(folder, "-c", app) as terminal:
        return round(terminal.until("here it is", since=terminal.began), 1)


def collapsible(folder: Path, file: Path, steps: int) -> dict[str, Any]:
    """One widget a step."""
    script = str(ROOT / "bench/annotating/collapsible.py")
    with _run(folder, script, str(file)) as terminal:
        found: dict[str, Any] = {
            "start_to_first_paint_ms": round(
                terminal.until(f"step {steps} of", since=terminal.began), 1
            )
        }
        terminal.quiet(1.0)
        middle = steps // 2 + 1
        found["jump"] = spread([terminal.press("m", f"step {middle} of")])
        found["key"] = moved(terminal, "j", list(range(middle + 1, middle + 1 + KEYS)))
        added = range(steps + 1, steps + 1 + APPENDS)
        found["append"] = spread([terminal.press("a", f"step {step} of {step}") for step in added])
        return {**found, "memory_mb": terminal.memory_mb()}


def inspector(folder: Path, file: Path, steps: int, lines: int) -> dict[str, Any]:
    """mini-swe-agent's, as `mini-extra inspector FILE` starts it."""
    module = "minisweagent.run.utilities.inspector"
    with _run(folder, "-m", module, str(file)) as terminal:
        first = f"Step 1/{steps + 1}"
        found: dict[str, Any] = {
            "start_to_first_paint_ms": round(terminal.until(first, since=terminal.began), 1)
        }
        terminal.quiet()
        last = terminal.press("$", f"Step {steps + 1}/{steps + 1}")
        terminal.press("0", first)
        found["jump"] = spread([last])
        ons = [terminal.press("l", f"Step {step}/") for step in range(2, 2 + KEYS)]
        found["key"] = spread(ons)
        data = json.loads(file.read_text())
        data["messages"].append({"role": "assistant", "content": thought(steps + 1)})
        data["messages"].append({"role": "user", "content": output(steps + 1, lines)})
        file.write_text(json.dumps(data))
        found["append"] = spread([terminal.press("R", f"/{steps + 2}")])
        return {**found, "memory_mb": terminal.memory_mb()}
