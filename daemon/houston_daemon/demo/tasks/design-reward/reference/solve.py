"""A solution: short traces are worth more, but only where nearly all of the group is right.

So hard problems feel no pressure, and being right is always worth more than being short. Run in a
copy of the workspace: `python3 solve.py FOLDER`.
"""

import sys
from pathlib import Path

REWARD = "2 * correct - 1.2 * share**4 * length / longest"


def main() -> None:
    """Write reward.txt."""
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (workspace / "reward.txt").write_text(REWARD + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
