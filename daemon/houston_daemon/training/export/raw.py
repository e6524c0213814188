"""Raw: rows as they are, with everything the ledger knows of them.

For programs of one's own and for trainers that want log-probabilities: what these are of stands at
each span (`logprob_kind`, `guided`), because those after a grammar must feed no importance ratio.
"""

import math
from typing import Any

from houston_daemon.training.export.format import Column, Format, Line, nothing, provenance
from houston_daemon.training.rows.row import Row, Span


def lines(row: Row) -> list[Line]:
    """One line a row, also of one that trains nothing."""
    return [
        {
            **provenance(row),
            "group": row.group,
            "domain": row.domain,
            "context": row.context,
            "source": row.source,
            "dialect": row.dialect,
            "tokenizer": row.tokenizer,
            "token_ids": row.token_ids.tolist(),
            "weights": row.weights().tolist(),
            "spans": [_span(row, index, span) for index, span in enumerate(row.spans)],
        }
    ]


def _span(row: Row, index: int, span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {name: getattr(span, name) for name in Span.__slots__}
    logprobs = row.logprobs.get(index)
    made["logprobs"] = None if logprobs is None else logprobs.tolist()
    return made


def wrong(line: Line) -> str:
    """Where the line would contradict itself."""
    ids, weights, end = line["token_ids"], line["weights"], 0
    if len(ids) != len(weights):
        return "ids and weights have different lengths"
    covered = 0.0
    for span in line["spans"]:
        if not end <= span["start"] < span["end"] <= len(ids):
            return "its spans are not in order"
        end = span["end"]
        size = end - span["start"]
        if weights[span["start"] : end].count(span["weight"]) != size:
            return f"step {span['step']} weighs otherwise than its tokens"
        covered += span["weight"] * size
        logprobs = span["logprobs"]
        if logprobs is not None and len(logprobs) != size:
            return f"step {span['step']} has other log-probabilities than tokens"
        if logprobs is not None and not all(map(math.isfinite, logprobs)):
            return f"step {span['step']} has a log-probability that is no number"
    return "" if math.isclose(covered, math.fsum(weights)) else "a token outside its spans weighs"


RAW = Format(
    name="raw",
    says="rows of the ledger: ids, weights, spans, log-probabilities and what they are of",
    of="ids",
    lines=lines,
    wrong=wrong,
    remarks=nothing,
    traps=(
        "Only log-probabilities of kind policy are those with which tokens were drawn. Of any"
        " other kind (before_temperature: the model's at temperature 1, drawn otherwise;"
        " after_grammar; after_temperature), and of guided spans, they are not: recompute them"
        " before any importance ratio. `sampling` and `policy_hash` of a span say how and by which"
        " weights it was drawn.",
    ),
    columns=(
        Column("row", "text"),
        Column("rollout", "text"),
        Column("task", "text"),
        Column("kind", "text"),
        Column("provenance", "text"),
        Column("group", "text"),
        Column("domain", "text"),
        Column("context", "number"),
        Column("source", "text"),
        Column("dialect", "text"),
        Column("tokenizer", "text"),
        Column("token_ids", "ids"),
        Column("weights", "weights"),
        Column("spans", "spans"),
    ),
    card=False,
    untrained=True,
)
