"""Write the data of this task again: `python3 make_data.py` gives the same bytes every time.

Problems differ in how much reasoning they need; the held-out ones are harder on average.
"""

import json
from pathlib import Path

HERE = Path(__file__).parent
NEEDS = (0.7, 1.2, 1.9, 2.8, 3.8)
"""Reasoning that a problem of each kind needs, in the units of a trace's length."""


def main() -> None:
    """The kinds into the workspace, their shares in the test beside it."""
    kinds = {"needs": NEEDS, "shares": (0.3, 0.25, 0.2, 0.15, 0.1)}
    (HERE / "workspace" / "problems.json").write_text(json.dumps(kinds) + "\n")
    (HERE / "held_out" / "problems.json").write_text(
        json.dumps({"needs": NEEDS, "shares": (0.12, 0.18, 0.25, 0.25, 0.2)}) + "\n"
    )
    (HERE / "workspace" / "reward.txt").write_text("correct\n")


if __name__ == "__main__":
    main()
