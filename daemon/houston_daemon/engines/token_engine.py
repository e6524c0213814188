"""The token engine: ids in, ids and log-probabilities out, over vLLM's /v1/completions; adapters.

vLLM and the embedded server behave alike. It never re-tokenises and never sends `seed` (vLLM's CPU
build exits on it with chunked prefill). Log-probabilities are the server's `raw_logprobs`. An
adapter is loaded through a link whose path holds the hash of its content, so a server that outlived
a home is not assumed to have new weights.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from houston_daemon.engines.engine_http import (
    PartialAnswer,
    TransientFailure,
    make_http_client,
    raise_for_failure,
    read_events,
    run_unless_stopped,
    with_retries,
)
from houston_daemon.engines.engine_protocol import (
    DEFAULT_TEMPERATURE,
    EngineRefused,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_daemon.engines.logprob_kind import true_logprob_kind
from houston_shared.backoff import RetryPolicy
from houston_shared.records import LogprobKind

BY_HASH_FOLDER = ".by-hash"


@dataclass(frozen=True, slots=True)
class AdapterLocation:
    """One adapter."""

    folder: str
    """Its files, in a folder of the policy's name."""
    content: str = ""
    """Hash of its files; empty where nobody knows: then the folder alone tells adapters apart."""

    @property
    def path(self) -> str:
        """The path for a server to load."""
        if not self._is_content_hash:
            return self.folder
        folder = Path(self.folder).absolute()
        return str(folder.parent / BY_HASH_FOLDER / self.content / folder.name)

    def made(self) -> str:
        """Make the path if needed, and return it. Raises OSError where that fails."""
        link = Path(self.path)
        if self._is_content_hash and not link.is_symlink():
            folder = Path(self.folder)
            folder.stat()  # no tree of folders for what is not there
            link.parent.parent.mkdir(mode=0o700, exist_ok=True)
            link.parent.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # another process was first
                link.symlink_to(Path("../..", folder.name), target_is_directory=True)
        return self.path

    def loaded_weights(self, root: str) -> Literal["these", "older", "foreign"]:
        """Which weights a server has that loaded `root` under the policy's name.

        `older`: from the same place but perhaps outdated: of an earlier home at the same path, or
        loaded by the folder's own name, which proves nothing; they may be replaced. `foreign`:
        another home's, since homes that share a server all count their policies from 2. A server
        that does not say (an empty `root`) is assumed to have these.
        """
        if not root or self._is_at(root):
            return "these"
        place = Path(root)
        if place.parent.parent.name == BY_HASH_FOLDER:
            place = place.parent.parent.parent / place.name
        return "older" if _is_same_path(place, self.folder) else "foreign"

    def _is_at(self, root: str) -> bool:
        if not self._is_content_hash:
            return _is_same_path(root, self.folder)
        return Path(root).parts[-3:] == Path(self.path).parts[-3:]

    @property
    def _is_content_hash(self) -> bool:
        return self.content.isalnum()  # what becomes a part of a path


def _is_same_path(first: str | Path, second: str | Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)


def is_already_loaded(answer: httpx.Response) -> bool:
    """Whether a server refuses to load an adapter since it has one of that name."""
    return answer.status_code == 400 and "already" in answer.text


LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]
RESERVED_COMPLETION_FIELDS = frozenset(
    {"model", "prompt", "add_special_tokens", "max_tokens", "stop_token_ids", "n", "best_of"}
    | {"skip_special_tokens", "logprobs", "return_token_ids", "structured_outputs", "seed", "echo"}
    | {"stream", "stream_options"}
)
"""Fields that `parameters` and `omit_parameters` may not name: samples are exact by them."""
COMPLETION_READ_SECONDS = 900.0
"""Longest silence: the prefill of a long prompt on a slow machine."""


@dataclass(slots=True)
class _PartialSample(PartialAnswer):
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_ids: tuple[int, ...] | None = None

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        """Ids and log-probabilities of one event belong together."""
        if (prompt := choice.get("prompt_token_ids")) is not None:
            self.prompt_ids = tuple(prompt)
        self.text.append(choice.get("text") or "")
        self.ids += choice.get("token_ids") or ()
        self.logprobs += (choice.get("logprobs") or {}).get("token_logprobs") or ()

    def require_consistent(self) -> None:
        """Raise TransientFailure when it holds what is no text, no id or no log-probability."""
        kinds: tuple[tuple[Iterable[Any], type | tuple[type, ...]], ...] = (
            (self.text, str),
            ((*self.ids, *(self.prompt_ids or ())), int),
            (self.logprobs, (int, float)),
            ((self.finish,), str),
        )
        for values, kind in kinds:
            for value in values:
                if not isinstance(value, kind):
                    raise TransientFailure(f"it sent an event of another form: {value!r:.80}")


class TokenEngine:
    """A server of /v1/completions with token ids.

    url: base address, with or without `/v1`, or `unix:/path`. model: name in requests; empty for
    the first that the server lists. window: 0 or None for what the server says (known after
    `ready`). adapters: folder by policy name, to load again what a restarted server has lost.
    contents: what the weights of a policy are, by its name; its folder where that is not known.
    parameters: added to each request, but for `RESERVED_COMPLETION_FIELDS`. omit: fields that are
    never sent. headers: of each request.
    own_policy: the policy whose full weights the server was started with; empty for a base model.
    logprobs_mode: how the server was started; only `raw_logprobs` are of the policy itself.
    silence_seconds: before a request is sent again; 0 for `COMPLETION_READ_SECONDS`.
    """

    token_ids = True

    def __init__(
        self,
        name: str,
        url: str,
        model: str = "",
        window: int | None = None,
        api_key: str = "",
        *,
        adapters: Mapping[str, str] | None = None,
        contents: Mapping[str, str] | None = None,
        own_policy: str = "",
        logprobs_mode: LogprobsMode = "raw_logprobs",
        parameters: Mapping[str, Any] | None = None,
        omit: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        silence_seconds: float = 0.0,
    ) -> None:
        self.name = name
        self.window = window or None
        self._model = model
        self._adapters = dict(adapters or {})
        self._contents = dict(contents or {})
        self._verified_adapters: set[str] = set()
        """Adapters under whose name the server was seen to have nothing of anybody else's."""
        self._loading = asyncio.Lock()
        self._own = own_policy
        self._mode = logprobs_mode
        self._retry = retry or RetryPolicy()
        self._added, self._omitted = dict(parameters or {}), frozenset(omit)
        self._http = make_http_client(
            url.rstrip("/").removesuffix("/v1"),
            api_key,
            silence_seconds or COMPLETION_READ_SECONDS,
            headers,
        )

    @property
    def model(self) -> str:
        """Name in requests; empty until `ready` or the first sample has looked it up."""
        return self._model

    async def ready(self) -> None:
        """Return when the server answers, its window and model known."""
        try:
            health = await self._http.get("/health", timeout=10.0)
            if health.status_code != 404:  # an equal server may have no such page
                await raise_for_failure(health)
            if not self._model or self.window is None:
                await self._find_model()
        except (httpx.RequestError, TransientFailure) as problem:
            raise EngineUnavailable(
                f"Engine {self.name} does not answer at {self._http.base_url}: "
                f"{str(problem) or type(problem).__name__}.",
                next="See `houston daemon status`.",
            ) from problem

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        """Sample once; see the protocol."""
        if request.prompt_ids is None:
            raise EngineRefused(f"Engine {self.name} takes token ids, but was given none.")
        started = time.monotonic()
        partial, ended = _PartialSample(), False

        async def once() -> bool:
            nonlocal partial
            if not self._model and request.policy in ("", self._own):
                await self._find_model()
            body = self._body(request)
            partial = _PartialSample()
            try:
                return await run_unless_stopped(stop, self._stream(body, partial))
            except (TransientFailure, httpx.RequestError):
                # It may have been started again, and been given others.
                self._verified_adapters.clear()
                raise

        ended = bool(await with_retries(self.name, once, stop, self._retry, request.waiting))
        return EngineSample(
            text="".join(partial.text),
            finish_reason=partial.finish_reason(ended),
            token_ids=tuple(partial.ids),
            logprobs=tuple(partial.logprobs),
            logprob_kind=self._logprob_kind(request),
            prompt_ids=partial.prompt_ids,
            usage=partial.usage,
            seconds=time.monotonic() - started,
            parameters=self._parameters(request),
        )

    async def _load(self, name: str, *, replacing: bool = False) -> None:
        place = self._adapter_location(name)
        with contextlib.suppress(OSError):  # made at its activation; here the home may not be seen
            place.made()
        answer = await self._http.post(
            "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": place.path}
        )
        if is_already_loaded(answer):  # another worker was first
            await self._require_our_adapter(name, replacing=replacing)
            return
        await raise_for_failure(answer)

    def _adapter_location(self, name: str) -> AdapterLocation:
        return AdapterLocation(self._adapters[name], self._contents.get(name, ""))

    async def _require_our_adapter(self, name: str, *, replacing: bool = False) -> None:
        """Raise EngineUnavailable where the server has another home's adapter under the name: the
        ledger would name the wrong one. What an earlier home has left is replaced.
        """
        root = (await self._served_roots()).get(name)
        if root is None:
            return
        weights = self._adapter_location(name).loaded_weights(root)
        if weights == "these":
            self._verified_adapters.add(name)
        elif weights == "older" and not replacing:
            await self._replace(name)
        else:
            raise EngineUnavailable(
                f"Engine {self.name} already has another {name}, from {root}.",
                "Nothing was sampled.",
                "Unload it there, or give the policies of each home other names: --name.",
            )

    async def _served_roots(self) -> dict[str, str]:
        """What the server has, by name, with the folder that it says."""
        cards = await self._model_cards()
        return {str(card.get("id")): str(card.get("root") or "") for card in cards}

    async def _replace(self, name: str) -> None:
        """Have the adapter loaded anew; another worker may do the same meanwhile."""
        answer = await self._http.post("/v1/unload_lora_adapter", json={"lora_name": name})
        if answer.status_code != 404:
            await raise_for_failure(answer)
        await self._load(name, replacing=True)

    async def _stream(self, body: dict[str, Any], partial: _PartialSample) -> None:
        name = body["model"]
        if name in self._adapters and name not in self._verified_adapters:
            await self._require_our_adapter(name)
        try:
            await self._stream_once(body, partial)
        except _ModelNotLoaded as problem:
            if name not in self._adapters:
                raise EngineRefused(
                    f"Engine {self.name} does not know {name!r}: {problem}.",
                    next="Load the policy first: houston policy list.",
                ) from problem
            await self._load_missing(name)
            await self._stream_loaded(body, partial)

    async def _load_missing(self, name: str) -> None:
        """Load an adapter once, however many requests miss it: a server may replace what it has,
        and then it has none for a moment."""
        async with self._loading:
            if name not in await self._served_roots():
                await self._load(name)

    async def _stream_loaded(self, body: dict[str, Any], partial: _PartialSample) -> None:
        try:
            await self._stream_once(body, partial)
        except _ModelNotLoaded as problem:  # somebody unloaded or replaced it meanwhile
            raise EngineUnavailable(
                f"Engine {self.name} had {body['model']} but has lost it: {problem}.",
                "Nothing was sampled.",
                "See `houston daemon status`.",
            ) from problem

    async def _stream_once(self, body: dict[str, Any], partial: _PartialSample) -> None:
        async with self._http.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code == 404:
                raise _ModelNotLoaded((await response.aread()).decode(errors="replace")[:300])
            await raise_for_failure(response)
            await partial.read(read_events(response))
        partial.require_consistent()
        if len(partial.logprobs) != len(partial.ids):
            raise EngineRefused(
                f"Engine {self.name} returned {len(partial.ids)} token ids with "
                f"{len(partial.logprobs)} log-probabilities.",
                "The sample was not used.",
                "An engine of kind `token` must honour return_token_ids and logprobs.",
            )

    async def _find_model(self) -> None:
        cards = await self._model_cards()
        if not cards:
            raise TransientFailure("it lists no model")
        self._model = self._model or str(cards[0].get("id") or "")
        self.window = self.window or cards[0].get("max_model_len")

    async def _model_cards(self) -> list[dict[str, Any]]:
        """What the server lists: its model, then adapters. Raises TransientFailure where its answer
        is no list of models: so answers what is not up yet, or is no such server."""
        answer = await self._http.get("/v1/models", timeout=10.0)
        await raise_for_failure(answer)
        try:
            return [dict(card) for card in answer.json()["data"] or ()]
        except (ValueError, LookupError, TypeError):
            raise TransientFailure("its /v1/models is not a list of models") from None

    def _body(self, request: SampleRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model if request.policy == self._own else request.policy or self._model,
            "prompt": list(request.prompt_ids or ()),
            "add_special_tokens": False,
            "max_tokens": request.max_tokens,
            "temperature": DEFAULT_TEMPERATURE
            if request.temperature is None
            else request.temperature,
            "top_p": 1.0 if request.top_p is None else request.top_p,
            "stop_token_ids": list(request.stop_token_ids),
            "skip_special_tokens": False,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.grammar is not None:
            body["structured_outputs"] = {"json": request.grammar}
        if request.cache_salt:
            body["cache_salt"] = self._cache_salt(request.cache_salt)
        body |= self._added
        return {name: value for name, value in body.items() if name not in self._omitted}

    def _cache_salt(self, model: str) -> str:
        """What a policy is and not only its name: another one may have had that here.

        As letters and digits: a policy's name has an `@`, which vLLM takes no salt with.
        """
        content = self._contents.get(model) or self._adapters.get(model, "")
        return hashlib.sha256(f"{model}\0{content}".encode()).hexdigest()[:32]

    def _logprob_kind(self, request: SampleRequest) -> LogprobKind:
        if request.grammar is not None:
            return "after_grammar"
        sent = self._body(request)
        scaled = sent.get("temperature", 1) not in (0, 1) or sent.get("top_p", 1) < 1
        if self._mode == "processed_logprobs" and scaled:
            return "after_temperature"
        return true_logprob_kind("policy", self._parameters(request))

    def _parameters(self, request: SampleRequest) -> dict[str, Any]:
        sent = self._body(request)
        names = ("temperature", "top_p", "max_tokens", "stop_token_ids", *self._added)
        parameters = {name: sent[name] for name in names if name in sent}
        if request.grammar is not None:
            schema = json.dumps(request.grammar, sort_keys=True).encode()
            parameters["grammar"] = hashlib.sha256(schema).hexdigest()
        return parameters


class _ModelNotLoaded(Exception):
    """The server does not know the model or adapter of the request."""
