"""Train on train.jsonl and translate seed.jsonl: `python3 scripts/try_it.py`.

The seed is small and uses few nouns; the test uses all of them.
"""

from pathlib import Path

import translator

HERE = Path(__file__).parent.parent


def main() -> None:
    """Print how many pairs and words there are, and the quality on the seed."""
    pairs = translator.read(HERE / "train.jsonl")
    lexicon = translator.train(pairs)
    seed = translator.quality(lexicon, translator.read(HERE / "seed.jsonl"))
    print(f"{len(pairs)} pairs, {len(lexicon)} Vessi words; word F1 on the seed {seed:.1f}")


if __name__ == "__main__":
    main()
