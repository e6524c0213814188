"""What taking secrets out of text costs: 1 MB of words, with no, few and many known values.

The raw limit in the same run: one `str.find` of a word that is not there.

    python bench/redaction.py [--repeat 20]
"""

import argparse
import json
import os
import platform
import random
import statistics
import string
import time
from collections.abc import Callable
from pathlib import Path

from houston_shared.secret_redaction import Redactor

BYTES = 1_000_000
KNOWN = (0, 10, 50, 200)
OBSERVATION = 30_000
"""Characters of one observation."""


def text(chance: random.Random) -> str:
    """Words of lower-case letters, 1 MB."""
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randrange(2, 10))) for _ in
             range(5_000)]  # fmt: skip
    return " ".join(chance.choices(words, k=BYTES // 4))[:BYTES]


def median_ms(act: Callable[[], object], repeat: int) -> float:
    """Median duration, milliseconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        act()
        times.append((time.perf_counter() - start) * 1000)
    return round(statistics.median(times), 3)


def main() -> None:
    """Measure, print, keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    chance = random.Random(1)
    whole = text(chance)
    runs = []
    for count in KNOWN:
        values = {f"K{n}_TOKEN": "".join(chance.choices(string.ascii_letters, k=40))
                  for n in range(count)}  # fmt: skip
        redactor = Redactor(values)
        runs.append(
            {
                "known_values": count,
                "ms_a_megabyte": median_ms(lambda r=redactor: r.text(whole), repeat),
                "ms_an_observation": median_ms(
                    lambda r=redactor: r.text(whole[:OBSERVATION]), repeat
                ),
            }
        )
    report = {
        "bench": "redaction",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {"python": platform.python_version()},
        "raw_one_find_ms_a_megabyte": median_ms(lambda: whole.find("Not There At All"), repeat),
        "runs": runs,
    }
    Path(__file__).parent.joinpath("results", "redaction.json").write_text(
        json.dumps(report, indent=1) + "\n"
    )
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
