"""Where the power is cut, and what was found: many cuts of one trace, each judged by itself.

`python -m tests.faults.power_cut.cuts TRACE DISK SEED` judges a kept trace again.
"""

import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.power_cut import recovery_check, trace
from tests.faults.power_cut.disk import Cut
from tests.faults.power_cut.recovery_check import Acked, Verdict
from tests.faults.power_cut.replay import Honest, Replay
from tests.faults.power_cut.trace import Record

BEGINNING = 80
"""Records within which a home is made: folders, an empty database, its first tables."""


@dataclass
class Tally:
    """What many cuts showed."""

    cuts: int = 0
    checked: int = 0
    """Acked things that were looked for, over all cuts."""
    lost: int = 0
    corrupt: int = 0
    examples: list[str] = field(default_factory=list)
    """The first findings, each with the cut that shows it again."""
    places: Counter[str] = field(default_factory=Counter)
    """After which kind of record the power was cut."""

    def add(self, verdict: Verdict, acked: int, where: str, kind: str) -> None:
        """Count one cut."""
        self.cuts += 1
        self.checked += acked
        self.lost += len(verdict.lost)
        self.corrupt += bool(verdict.corrupt)
        self.places[kind] += 1
        if not verdict.sound and len(self.examples) < 20:
            self.examples.append(f"{where}: {(verdict.corrupt + verdict.lost)[:3]}")


def chosen(records: list[Record], count: int, dice: random.Random) -> list[int]:
    """After how many records to cut: at the borders of syncs, names and acks, and anywhere.

    A third lies right before or behind the end of a sync, a third right behind an ack or a change
    of a name or a size, a tenth in the making of the home, the rest anywhere.
    """
    syncs = [n + before for n, one in enumerate(records) if one.op == "S" for before in (0, 1)]
    edges = [n + 1 for n, one in enumerate(records) if one.op in "kruomta"]
    third = count // 3
    picked = [dice.choice(syncs) for _ in range(third)]
    picked += [dice.choice(edges) for _ in range(third)]
    picked += [dice.randrange(BEGINNING) for _ in range(count // 10)]
    picked += [dice.randrange(len(records) + 1) for _ in range(count - len(picked))]
    return sorted(picked)


def cut_many(
    records: list[Record],
    root: Path,
    count: int,
    seed: int,
    honest: Honest = lambda path: True,
    scratch: Path | None = None,
) -> Tally:
    """Cut a trace `count` times and judge what is left each time.

    root: the folder that was traced. scratch: where the states are written out.
    """
    tally = Tally()
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for number, (at, replay, acked) in enumerate(_states(records, root, count, seed, honest)):
            place = Path(folder) / "d"
            Cut(random.Random(f"{seed} {number}")).write_out(replay.root, place)
            verdict = recovery_check.judge(recovery_check.home_in(place), acked)
            shutil.rmtree(place)
            where = f"cut {number} of seed {seed}, after record {at}"
            tally.add(verdict, acked.count, where, records[at - 1].op if at else "")
    return tally


def _states(
    records: list[Record], root: Path, count: int, seed: int, honest: Honest
) -> Iterator[tuple[int, Replay, Acked]]:
    replay, acked = Replay(root, honest), Acked()
    done = 0
    for at in chosen(records, count, random.Random(seed)):
        for record in records[done:at]:
            replay.feed(record)
        recovery_check.note_all(acked, records[done:at])
        done = at
        yield at, replay, acked


if __name__ == "__main__":
    found = cut_many(trace.read(Path(sys.argv[1])), Path(sys.argv[2]), 100, int(sys.argv[3]))
    print(found)
