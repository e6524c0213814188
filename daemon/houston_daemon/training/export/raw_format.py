"""The raw format: rows as they are, with everything the ledger knows of them.

For your own programs and for trainers that need log-probabilities: each span says which kind its
log-probabilities are (`logprob_kind`, `guided`), because those sampled under a grammar must not
enter an importance ratio.
"""

import math
from typing import Any

from houston_daemon.training.export.export_format import (
    PROVENANCE_COLUMNS,
    ExportColumn,
    ExportFormat,
    ExportLine,
    no_remarks,
    row_provenance,
)
from houston_daemon.training.rows.training_row import SampledSpan, TokenRow


def raw_lines(row: TokenRow) -> list[ExportLine]:
    """One line a row, also of one that trains nothing."""
    return [
        {
            **row_provenance(row),
            "group": row.group,
            "domain": row.domain,
            "context": row.context,
            "source": row.source,
            "dialect": row.dialect,
            "tokenizer": row.tokenizer,
            "token_ids": row.token_ids.tolist(),
            "weights": row.weights().tolist(),
            "spans": [_raw_span(row, index, span) for index, span in enumerate(row.spans)],
        }
    ]


def _raw_span(row: TokenRow, index: int, span: SampledSpan) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(span, name) for name in SampledSpan.__slots__}
    logprobs = row.logprobs.get(index)
    fields["logprobs"] = None if logprobs is None else logprobs.tolist()
    return fields


def raw_problem(line: ExportLine) -> str:
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
            return f"step {span['step']} has another weight than its tokens"
        covered += span["weight"] * size
        logprobs = span["logprobs"]
        if logprobs is not None and len(logprobs) != size:
            return f"step {span['step']} does not have one log-probability per token"
        if logprobs is not None and not all(map(math.isfinite, logprobs)):
            return f"step {span['step']} has a log-probability that is no number"
    return "" if math.isclose(covered, math.fsum(weights)) else "a weight lies outside its spans"


RAW = ExportFormat(
    name="raw",
    description="rows of the ledger: ids, weights, spans, log-probabilities and what they are of",
    unit="ids",
    lines=raw_lines,
    line_problem=raw_problem,
    remarks=no_remarks,
    warnings=(
        "Only log-probabilities of kind policy are those with which tokens were drawn. Of any"
        " other kind (before_temperature: the model's at temperature 1, drawn otherwise;"
        " after_grammar; after_temperature), and of guided spans, they are not: recompute them"
        " before any importance ratio. `sampling` and `policy_hash` of a span say how and by which"
        " weights it was drawn.",
    ),
    columns=(
        *PROVENANCE_COLUMNS,
        ExportColumn("group", "text"),
        ExportColumn("domain", "text"),
        ExportColumn("context", "number"),
        ExportColumn("source", "text"),
        ExportColumn("dialect", "text"),
        ExportColumn("tokenizer", "text"),
        ExportColumn("token_ids", "ids"),
        ExportColumn("weights", "weights"),
        ExportColumn("spans", "spans"),
    ),
    card=False,
    untrained=True,
)
