"""Synthetic rows, for tests of what is made of rows: exporters, collators, losses."""

from array import array
from collections.abc import Sequence

from houston_daemon.training.rows.training_row import RowKind, SampledSpan, TokenRow

KEPT, MASKED = 1.0, 0.0


def span(
    start: int, end: int, step: int, weight: float = KEPT, why: str = "", role: str = "policy"
) -> SampledSpan:
    """One answer; a weight of 0 says that a rule masked it unless `why` says otherwise."""
    return SampledSpan(
        start=start,
        end=end,
        step=step,
        attempt=1,
        role="summary" if role == "summary" else "policy",
        sample_seq=10 * step,
        policy="policy@1",
        policy_hash="",
        weight=weight,
        why="" if weight else why or "mask: rule error_observation@1: it failed",
        logprob_kind="policy",
        sampling={"temperature": 1.0, "top_p": 1.0},
        guided=False,
    )


def made(
    answers: Sequence[tuple[int, float]] = ((5, KEPT), (4, MASKED), (6, KEPT)),
    *,
    rollout: str = "r-1",
    task: str = "probe",
    id: str = "",
    kind: RowKind = "react",
    head: int = 7,
    observation: int = 3,
    context: int = 0,
    first: int = 100,
    step: int = 1,
) -> TokenRow:
    """A row: a head, then answers of (tokens, weight), an observation after each.

    Every token has an id of its own, counted up from `first`, so that a test can tell them apart.
    step: the number of the first answer's step.
    """
    spans: list[SampledSpan] = []
    at = head
    role = "summary" if kind == "summary" else "policy"
    for number, (length, weight) in enumerate(answers, step):
        spans.append(span(at, at + length, number, weight, role=role))
        at += length + observation
    name = f"summary.{context + 1}" if kind == "summary" else f"{context}.0"
    return TokenRow(
        id=id or f"{rollout}/{name}",
        kind=kind,
        rollout=rollout,
        task=task,
        group="",
        domain="",
        context=context,
        source="ledger",
        provenance="sandbox",
        token_ids=array("i", range(first, first + at)),
        spans=tuple(spans),
        logprobs={
            index: array("f", [-0.5] * (one.end - one.start)) for index, one in enumerate(spans)
        },
        dialect="chatml-json",
        tokenizer="/models/small/tokenizer.json",
    )
