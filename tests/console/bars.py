"""Progress bars as programs draw them: `bars.py tqdm|nested|wide|rich`, for `record_terminals`."""

import sys
import time

kind = sys.argv[1]
if kind == "rich":
    from rich.progress import track

    for _ in track(range(40), description="training", refresh_per_second=50):
        time.sleep(0.01)
else:
    from tqdm import tqdm  # type: ignore[import-untyped]

    label = "a label that is longer than the rest " * 4 if kind == "wide" else "epoch"
    for epoch in tqdm(range(3), desc=label, mininterval=0, ncols=200 if kind == "wide" else 80):
        for _ in tqdm(range(20), desc=f"part {epoch}", leave=False, disable=kind != "nested"):
            time.sleep(0.005)
