"""A solution: the generalised cross-entropy of Zhang and Sabuncu (2018), weighted by class.

(1 - p^q) / q is nearly bounded, so that wrong labels far out pull little; the weights make both
classes count the same. Run in a copy of the workspace: `python3 solve.py FOLDER`.
"""

import sys
from pathlib import Path

LOSS = "(1 - p**0.7) / 0.7 / share if y == 1 else (1 - (1 - p)**0.7) / 0.7 / (1 - share)"


def main() -> None:
    """Write loss.txt."""
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (workspace / "loss.txt").write_text(LOSS + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
