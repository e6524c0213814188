"""The HTTP side of the embedded server: routes, admission, streams.

Gives the same answers as vLLM to the same requests, errors included. It samples nothing itself: a
job goes to the scheduler and comes back in pieces. When a client disconnects, its job ends.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from houston_daemon.engines.embedded import completions_wire
from houston_daemon.engines.embedded.embedded_model import (
    AdapterRefused,
    AdaptersUnavailable,
    EmbeddedModel,
)
from houston_daemon.engines.embedded.sampling_jobs import GrammarError, JobScheduler, SamplingJob


class EmbeddedServer:
    """The routes of one model. name: what requests call it."""

    def __init__(self, model: EmbeddedModel, scheduler: JobScheduler, name: str) -> None:
        self._model = model
        self._scheduler = scheduler
        self._name = name

    def app(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/load_lora_adapter", self.load_adapter, methods=["POST"]),
                Route("/v1/unload_lora_adapter", self.unload_adapter, methods=["POST"]),
            ],
            exception_handlers={msgspec.DecodeError: _malformed_request},
        )

    async def health(self, request: Request) -> Response:
        """200 when the server can sample."""
        return Response()

    async def models(self, request: Request) -> Response:
        """The model and its adapters, with the window."""
        base = {"id": self._name, "object": "model", "max_model_len": self._model.window}
        cards = [base] + [
            {"id": name, "object": "model", "parent": self._name, "root": folder}
            for name, folder in self._model.adapters.items()
        ]
        return JSONResponse({"object": "list", "data": cards})

    async def completions(self, request: Request) -> Response:
        """Sample once, streamed or whole."""
        request_body = msgspec.json.decode(
            await request.body(), type=completions_wire.CompletionRequest
        )
        if request_body.model not in ("", self._name, *self._model.adapters):
            return _error_response(
                f"The model `{request_body.model}` does not exist.", 404, "NotFoundError"
            )
        if isinstance(request_body.prompt, str):
            ids = self._model.tokenizer.encode(
                request_body.prompt, add_special_tokens=request_body.add_special_tokens
            )
        else:
            ids = request_body.prompt
        if unfit := self._request_problem(ids, request_body):
            return _error_response(unfit, 400)
        pieces: asyncio.Queue[completions_wire.SampledPiece | Exception] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(piece: completions_wire.SampledPiece | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        adapter = request_body.model if request_body.model in self._model.adapters else ""
        request_body = msgspec.structs.replace(request_body, model=request_body.model or self._name)
        job = SamplingJob(request_body, ids, adapter, deliver)
        self._scheduler.submit(job)
        if request_body.stream:
            return StreamingResponse(_stream_response(job, pieces), media_type="text/event-stream")
        return await _whole_response(job, pieces, request)

    async def tokenize(self, request: Request) -> Response:
        """The token ids of a text, as vLLM gives them."""
        text = msgspec.json.decode(await request.body(), type=completions_wire.TokenizeRequest)
        ids = self._model.tokenizer.encode(text.prompt, add_special_tokens=text.add_special_tokens)
        answer = {"count": len(ids), "max_model_len": self._model.window, "tokens": ids}
        return JSONResponse(answer)

    def _request_problem(self, ids: list[int], request: completions_wire.CompletionRequest) -> str:
        if not ids:
            return "the prompt is empty"
        if min(ids) < 0 or max(ids) >= self._model.vocabulary:
            return f"a token id is outside the vocabulary of {self._model.vocabulary}"
        if len(ids) + request.max_tokens > self._model.window:
            return (
                f"This model's maximum context length is {self._model.window} tokens; the request "
                f"has {len(ids)} prompt tokens and max_tokens {request.max_tokens}."
            )
        return ""

    async def load_adapter(self, request: Request) -> Response:
        """Load a LoRA adapter under a name that requests then use as their model."""
        request_body = msgspec.json.decode(
            await request.body(), type=completions_wire.AdapterRequest
        )
        try:
            await asyncio.wrap_future(
                self._scheduler.call(
                    lambda: self._scheduler.sampler.load_adapter(
                        request_body.lora_name, request_body.lora_path
                    )
                )
            )
        except AdaptersUnavailable as problem:
            return _error_response(str(problem), 501, "NotImplementedError")
        except AdapterRefused as problem:
            return _error_response(str(problem), 400)
        return PlainTextResponse(
            f"Success: LoRA adapter '{request_body.lora_name}' added successfully."
        )

    async def unload_adapter(self, request: Request) -> Response:
        """Forget an adapter."""
        request_body = msgspec.json.decode(
            await request.body(), type=completions_wire.AdapterRequest
        )
        is_loaded = await asyncio.wrap_future(
            self._scheduler.call(
                lambda: self._scheduler.sampler.unload_adapter(request_body.lora_name)
            )
        )
        if not is_loaded:
            return _error_response(
                f"The adapter `{request_body.lora_name}` does not exist.", 404, "NotFoundError"
            )
        return PlainTextResponse(
            f"Success: LoRA adapter '{request_body.lora_name}' removed successfully."
        )


async def _malformed_request(request: Request, problem: Exception) -> Response:
    return _error_response(str(problem), 400)


async def _stream_response(
    job: SamplingJob, pieces: "asyncio.Queue[completions_wire.SampledPiece | Exception]"
) -> AsyncIterator[bytes]:
    """Server-sent events. Left early (the client is gone), it cancels the job."""
    response, request, first = completions_wire.new_response_id(), job.request, True
    try:
        while True:
            piece = await pieces.get()
            if isinstance(piece, Exception):
                yield _server_sent_event(_failure_response(piece))
                break
            yield _server_sent_event(
                completions_wire.completion_chunk(
                    response, request, piece, job.prompt if first else None
                )
            )
            first = False
            if piece.finish_reason:
                if request.stream_options and request.stream_options.include_usage:
                    yield _server_sent_event(_usage_event(response, job))
                break
        yield b"data: [DONE]\n\n"
    finally:
        job.cancelled = True


async def _whole_response(
    job: SamplingJob,
    pieces: "asyncio.Queue[completions_wire.SampledPiece | Exception]",
    request: Request,
) -> Response:
    """One answer, when all of it is there; asks now and then whether the client is."""
    sampled: list[completions_wire.SampledPiece] = []
    while not (sampled and sampled[-1].finish_reason):
        try:
            piece = await asyncio.wait_for(pieces.get(), 0.5)
        except TimeoutError:
            if await request.is_disconnected():
                job.cancelled = True
                return Response(status_code=499)
            continue
        if isinstance(piece, Exception):
            failure = _failure_response(piece)
            return JSONResponse(failure, failure["error"]["code"])
        sampled.append(piece)
    response = completions_wire.new_response_id()
    whole_piece = completions_wire.SampledPiece(
        "".join(piece.text for piece in sampled),
        [token for piece in sampled for token in piece.token_ids],
        [logprob for piece in sampled for logprob in piece.logprobs],
        sampled[-1].finish_reason,
        sampled[-1].stop_reason,
    )
    answer = completions_wire.completion_chunk(response, job.request, whole_piece, job.prompt)
    return JSONResponse(answer | {"usage": _usage_event(response, job)["usage"]})


def _usage_event(response: str, job: SamplingJob) -> dict[str, Any]:
    return completions_wire.usage_chunk(
        response, job.request.model, len(job.prompt), job.sampled, job.cached_tokens
    )


def _server_sent_event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _failure_response(problem: Exception) -> dict[str, Any]:
    if isinstance(problem, GrammarError):
        return completions_wire.error_body(
            f"the schema is no grammar: {problem}", "BadRequestError", 400
        )
    return completions_wire.error_body(
        f"{type(problem).__name__}: {problem}", "InternalServerError", 500
    )


def _error_response(message: str, code: int, kind: str = "BadRequestError") -> JSONResponse:
    return JSONResponse(completions_wire.error_body(message, kind, code), code)
