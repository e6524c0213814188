"""One token from one row of logits: mask, log-probability, temperature, top-p.

The log-probability is of the model as it is: after a grammar's mask, before temperature and top-p,
which is what vLLM's `raw_logprobs` are. It keeps no state besides torch's random generator.
"""

import torch


def draw(
    logits: torch.Tensor, allowed: torch.Tensor | None, temperature: float, top_p: float
) -> tuple[int, float]:
    """Return the sampled id and its natural-log probability.

    logits: shape (vocabulary,). allowed: boolean of the same shape, or None for all.
    temperature: 0 takes the most probable id.
    """
    row = logits.float()
    if allowed is not None:
        row = row.masked_fill(~allowed, float("-inf"))
    logprobs = torch.log_softmax(row, -1)
    if temperature == 0:
        token = int(row.argmax())
    else:
        token = int(torch.multinomial(_nucleus(torch.softmax(row / temperature, -1), top_p), 1))
    return token, float(logprobs[token])


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero everything outside the smallest set whose probability reaches `top_p`."""
    if top_p >= 1:
        return probabilities
    ordered, places = probabilities.sort(descending=True)
    ordered[ordered.cumsum(-1) - ordered >= top_p] = 0
    return torch.zeros_like(probabilities).scatter_(-1, places, ordered)
