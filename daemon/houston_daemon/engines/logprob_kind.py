"""Whether log-probabilities are those of the sampling itself, judged by sampling parameters.

Engines give log-probabilities of the model at temperature 1 (vLLM's `raw_logprobs`, the embedded
server's too). A token sampled at another temperature, or from a part of the distribution, had
another probability: at 0.7, an answer's differs by 7 to 22 nats. So `policy` means only tokens
sampled from the unchanged distribution; every other kind has its own name and never enters an
importance ratio as the behaviour of the policy that sampled.
"""

from collections.abc import Mapping
from typing import Any

from houston_shared.records import LogprobKind

NEUTRAL_SAMPLING: dict[str, tuple[Any, ...]] = {
    "temperature": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "typical_p": (1,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "grammar": ("",),
}
"""Parameters that bend what is drawn from, and their values that do not."""


def sampling_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a sample's parameters that describe how it was drawn, neutral or not."""
    return {name: value for name in NEUTRAL_SAMPLING if (value := parameters.get(name)) is not None}


def non_neutral_sampling(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a sample's parameters that change the distribution. A temperature that was not set
    is the server's own, and unknown."""
    drawn = {"temperature": "unknown", **sampling_parameters(parameters)}
    return {name: value for name, value in drawn.items() if value not in NEUTRAL_SAMPLING[name]}


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as a refusal names them: `temperature = 0.5, top_k = 20`."""
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


def true_logprob_kind(kind: LogprobKind, parameters: Mapping[str, Any]) -> LogprobKind:
    """The kind that log-probabilities of the model at temperature 1 (`policy`) have for a sample
    drawn with these parameters; any other kind is returned unchanged."""
    return "before_temperature" if kind == "policy" and non_neutral_sampling(parameters) else kind
