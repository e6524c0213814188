"""Power cuts over the recorder's real write path: what was acked and lost, what is corrupt.

As tests/faults/power_cut, with several traces and many more cuts. Beside it the same cuts on a disk
whose syncs of the WAL do nothing: the raw proof that the checks see what is to be seen.
"""

import shutil
from pathlib import Path
from typing import Any

from tests.faults.power_cut import cuts, trace, traced_recorder
from tests.faults.power_cut.replay import Honest

TRACES = 8
CUTS_EACH = 160
LYING_CUTS = 100


def measure(folder: Path) -> dict[str, Any]:
    """Aim: at least 1,000 cuts, nothing lost, nothing corrupt."""
    tracer = trace.compiled(folder)
    whole = cuts.Tally()
    for number in range(TRACES):
        place = folder / f"trace {number}"
        place.mkdir()
        traced_recorder.lead(place / "disk", place / "trace", tracer)
        whole = _added(whole, _cut(place, CUTS_EACH, 1_000 + number))
        if number < TRACES - 1:
            shutil.rmtree(place)
    lying = _cut(place, LYING_CUTS, 1, lambda path: not path.endswith("houston.db-wal"))
    return {
        "cuts": whole.cuts,
        "traces": TRACES,
        "acked_rows_checked": whole.checked,
        "acked_lost": whole.lost,
        "corrupt": whole.corrupt,
        "cut_after": dict(whole.places.most_common()),
        "examples": whole.examples,
        "same_with_a_wal_that_is_never_synced": {
            "cuts": lying.cuts,
            "acked_lost": lying.lost,
            "corrupt_or_refused": lying.corrupt,
        },
        "aim": "at least 1,000 cuts, 0 lost, 0 corrupt",
        "met": whole.cuts >= 1_000 and not whole.lost and not whole.corrupt,
    }


def _cut(place: Path, count: int, seed: int, honest: Honest = lambda path: True) -> cuts.Tally:
    records = trace.read(place / "trace")
    return cuts.cut_many(records, place / "disk", count, seed, honest, place)


def _added(one: cuts.Tally, more: cuts.Tally) -> cuts.Tally:
    return cuts.Tally(
        one.cuts + more.cuts,
        one.checked + more.checked,
        one.lost + more.lost,
        one.corrupt + more.corrupt,
        one.examples + more.examples,
        one.places + more.places,
    )
