"""What an endpoint's refusal means, from its status and its words: many spellings of few things."""

import pytest

from houston_daemon.engines.engine_http import TransientFailure, failure_of_status
from houston_daemon.engines.engine_protocol import ContextOverflow, EngineRefused

TOO_LONG: dict[str, tuple[int, str, str]] = {
    "OpenAI": (
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in"
        " 130000 tokens. Please reduce the length of the messages.",
        "context_length_exceeded invalid_request_error",
    ),
    "OpenAI, of late": (
        400,
        "Your input exceeds the context window of this model. Please adjust your input and try"
        " again.",
        "context_length_exceeded",
    ),
    "vLLM": (
        400,
        "This model's maximum context length is 4096 tokens. However, you requested 4500 tokens"
        " (3988 in the messages, 512 in the completion).",
        "BadRequestError",
    ),
    "vLLM, the engine": (
        400,
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make"
        " sure that `max_model_len` is no smaller than the number of text tokens.",
        "BadRequestError",
    ),
    "SGLang": (
        400,
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "",
    ),
    "TGI": (422, "Input validation error: `inputs` must have less than 1024 tokens.", "validation"),
    "TGI, in all": (422, "`inputs` tokens + `max_new_tokens` must be <= 4097.", "validation"),
    "llama.cpp": (
        400,
        "the request exceeds the available context size, try increasing it",
        "exceed_context_size_error",
    ),
    "llama.cpp, before": (500, "the request exceeds the available context size", "server_error"),
    "Anthropic": (400, "prompt is too long: 205000 tokens > 200000 maximum", ""),
    "Bedrock": (400, "Input is too long for requested model.", "ValidationException"),
    "Gemini": (
        400,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).",
        "INVALID_ARGUMENT",
    ),
    "Mistral": (
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum"
        " context length",
        "",
    ),
    "xAI": (
        400,
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "",
    ),
    "Moonshot": (400, "Invalid request: Your request exceeded model token limit: 131072", ""),
    "MiniMax": (400, "invalid params, context window exceeds limit (2013)", ""),
    "DashScope": (400, "Range of input length should be [1, 30720]", "InvalidParameter"),
    "Zhipu": (400, "Prompt exceeds max length", "1261"),
    "GitHub": (400, "Request body too large for model.", "tokens_limit_reached"),
    "a proxy": (413, "Request Entity Too Large", ""),
}


@pytest.mark.parametrize("case", TOO_LONG)
def test_a_prompt_that_is_too_long(case: str) -> None:
    assert isinstance(failure_of_status(*TOO_LONG[case]), ContextOverflow)


FOR_PEOPLE: dict[str, tuple[int, str, str]] = {
    "the key": (401, "Incorrect API key provided", "invalid_api_key"),
    "the key, at length": (401, "The prompt is too long ago", ""),
    "the account": (402, "Insufficient Balance", ""),
    "the account, as 429": (429, "You exceeded your current quota", "insufficient_quota"),
    "the account, as 400": (400, "Your credit balance is too low", "invalid_request_error"),
    "the region": (403, "Country, region, or territory not supported", ""),
    "the model": (404, "The model `m` does not exist", "model_not_found"),
    "a parameter": (400, "Unsupported parameter: 'max_tokens' is not supported", ""),
    "the limit of an answer": (
        400,
        "max_tokens is too large: 40000. This model supports at most 16384 completion tokens",
        "invalid_value",
    ),
    "images": (400, "Your request exceeds the maximum number of images", ""),
    "a move": (301, "Moved Permanently", ""),
}


@pytest.mark.parametrize("case", FOR_PEOPLE)
def test_what_a_person_mends(case: str) -> None:
    problem = failure_of_status(*FOR_PEOPLE[case])
    assert isinstance(problem, EngineRefused) and not isinstance(problem, ContextOverflow)
    assert problem.status == FOR_PEOPLE[case][0]


PASSING: dict[str, tuple[int, str, str]] = {
    "a rate": (429, "Rate limit reached for requests", "rate_limit_exceeded"),
    "a rate of tokens": (429, "Request too large: input tokens exceed the rate per minute", ""),
    "overload": (503, "The engine is overloaded", ""),
    "a fault": (500, "Internal error", ""),
    "a timeout": (408, "Request Timeout", ""),
}


@pytest.mark.parametrize("case", PASSING)
def test_what_passes_by_itself(case: str) -> None:
    assert isinstance(failure_of_status(*PASSING[case]), TransientFailure)
