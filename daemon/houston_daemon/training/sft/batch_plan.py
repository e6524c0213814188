"""Decides which rows each optimizer step trains, and which of them share one forward pass
(packing).

An optimizer step always has the same rows, however many passes and processes compute them: packing
and data parallelism change the speed and not what is learned. The order depends on the seed alone,
so that a resumed run continues with the same rows
(docs/decisions.md#an-optimizer-step-is-a-fixed-set-of-rows). It knows lengths and nothing of
tokens.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

RowPack = tuple[int, ...]
"""Rows of one pass, by number; empty where a process only keeps the others company."""


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """One optimizer step."""

    passes_per_process: tuple[tuple[RowPack, ...], ...]
    """By process its passes; every process has the same number, as collectives ask for."""
    tokens: int
    """Of all its rows."""
    epoch: float
    """Share of the data that was seen when it ends; 1.0 after the first epoch."""


def epoch_order(times: Sequence[int], epoch: int, seed: int) -> list[int]:
    """The rows of one epoch, shuffled; `times` is how often each comes."""
    rows = [row for row, often in enumerate(times) for _ in range(often)]
    random.Random(f"{seed}:{epoch}").shuffle(rows)
    return rows


def plan_steps(
    lengths: Sequence[int],
    times: Sequence[int],
    *,
    epochs: int,
    batch: int,
    budget: int,
    seed: int,
    processes: int = 1,
    limit: int = 0,
) -> list[OptimizerStep]:
    """All steps of a run.

    lengths: tokens of each row. batch: rows of a step; the last of an epoch may have fewer.
    budget: tokens of a pass, 0 for one row each. limit: end after so many steps; 0 for all.
    """
    steps: list[OptimizerStep] = []
    for epoch in range(epochs):
        rows = epoch_order(times, epoch, seed)
        for start in range(0, len(rows), batch):
            if limit and len(steps) == limit:
                return steps
            chosen = rows[start : start + batch]
            epoch_share = epoch + (start + len(chosen)) / len(rows)
            shares = _deal_packs(chosen, lengths, budget, processes)
            steps.append(OptimizerStep(shares, sum(lengths[row] for row in chosen), epoch_share))
    return steps


def pack_rows(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[RowPack]:
    """Rows put together by best fit, longest first; one longer than `budget` stays alone."""
    packs: list[list[int]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda row: -lengths[row]):
        fits = [n for n, free in enumerate(room) if free >= lengths[row]]
        if fits:
            best = min(fits, key=lambda n: room[n])
            packs[best].append(row)
            room[best] -= lengths[row]
        else:
            packs.append([row])
            room.append(budget - lengths[row])
    return [tuple(pack) for pack in packs]


def _deal_packs(
    rows: Sequence[int], lengths: Sequence[int], budget: int, processes: int
) -> tuple[tuple[RowPack, ...], ...]:
    """The passes of a step dealt out: always to the process with the least to compute."""
    total = sum(lengths[row] for row in rows)
    even = -(-total // processes) if processes > 1 else budget
    shares: list[list[RowPack]] = [[] for _ in range(processes)]
    load = [0] * processes
    packs = pack_rows(rows, lengths, min(budget, even))
    for pack in sorted(packs, key=lambda pack: -sum(lengths[row] for row in pack)):
        least = load.index(min(load))
        shares[least].append(pack)
        load[least] += sum(lengths[row] for row in pack)
    most = max(len(share) for share in shares)
    return tuple(tuple(share) + ((),) * (most - len(share)) for share in shares)
