"""What the embedded server reads and writes: the part of vLLM's /v1/completions that it answers.

Knows JSON only. Fields that it does not list are ignored, as vLLM ignores those it does not know.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec


class StructuredOutputs(msgspec.Struct, frozen=True):
    """What the sampled text must follow."""

    json: dict[str, Any] | str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream ends with."""

    include_usage: bool = False


class CompletionRequest(msgspec.Struct, frozen=True):
    """One request; the prompt is token ids, or text that the server encodes."""

    prompt: list[int] | str
    model: str = ""
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 16
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    stop_token_ids: list[int] = []
    structured_outputs: StructuredOutputs | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    logprobs: int | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    add_special_tokens: bool = True
    cache_salt: str = ""
    n: Literal[1] = 1


class TokenizeRequest(msgspec.Struct, frozen=True):
    """A text whose token ids are asked for."""

    prompt: str
    add_special_tokens: bool = True


class AdapterRequest(msgspec.Struct, frozen=True):
    """Load or unload an adapter."""

    lora_name: str
    lora_path: str = ""


class SampledPiece(msgspec.Struct, frozen=True):
    """What one turn of a job produced; the last one has a finish reason."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str | None = None
    stop_reason: int | None = None


def new_response_id() -> str:
    """Return an id for a response."""
    return f"cmpl-{uuid.uuid4().hex}"


def completion_chunk(
    response: str, request: CompletionRequest, piece: SampledPiece, prompt_ids: Sequence[int] | None
) -> dict[str, Any]:
    """One `text_completion` object. prompt_ids: echoed with the first piece of a stream."""
    choice: dict[str, Any] = {
        "index": 0,
        "text": piece.text,
        "finish_reason": piece.finish_reason,
        "stop_reason": piece.stop_reason,
    }
    if request.logprobs is not None:
        choice["logprobs"] = {"token_logprobs": list(piece.logprobs)}
    if request.return_token_ids:
        choice["token_ids"] = list(piece.token_ids)
        if prompt_ids is not None:
            choice["prompt_token_ids"] = list(prompt_ids)
    return _completion_object(response, request.model) | {"choices": [choice]}


def usage_chunk(
    response: str, model: str, prompt: int, sampled: int, cached: int
) -> dict[str, Any]:
    """The object that ends a stream: token counts."""
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return _completion_object(response, model) | {"choices": [], "usage": counts}


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    """An error in vLLM's form."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _completion_object(response: str, model: str) -> dict[str, Any]:
    return {
        "id": response,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
    }
