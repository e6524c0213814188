"""Train with reward.txt and measure on the same problems: `python3 scripts/try_it.py`."""

from pathlib import Path

import train

HERE = Path(__file__).parent.parent


def main() -> None:
    """Print accuracy, mean length, and the measure that the evaluation takes."""
    problems = train.read(HERE / "problems.json")
    accuracy, length = train.outcome(train.reward(HERE / "reward.txt"), problems, problems)
    measure = accuracy - train.PER_UNIT * length
    print(f"accuracy {accuracy:.1f}, mean length {length:.2f}, measure {measure:.2f}")


if __name__ == "__main__":
    main()
