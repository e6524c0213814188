"""A row that is cut at a length, as who trains on it cuts it (`training.sft.sft_dataset`)."""

from dataclasses import replace

from houston_daemon.training.rows.training_row import TokenRow


def truncated(row: TokenRow, length: int) -> TokenRow:
    """The first `length` tokens of a row, with the weights that they had.

    A span that is cut keeps its first tokens and so has no stop token: nothing else is invented.
    The row comes back as it is when it is not longer. length: 0 or more.
    """
    if length >= len(row.token_ids):
        return row
    inside = (span for span in row.spans if span.start < length)
    spans = tuple(replace(span, end=min(span.end, length)) for span in inside)
    logprobs = {
        index: values[: spans[index].end - spans[index].start]
        for index, values in row.logprobs.items()
        if index < len(spans)
    }
    return replace(row, token_ids=row.token_ids[:length], spans=spans, logprobs=logprobs)
