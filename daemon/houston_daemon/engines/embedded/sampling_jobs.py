"""Sampling in the embedded server: a token from logits, under a JSON schema, jobs in turn.

Jobs share one thread and, with the same adapter, one forward pass. Each turn computes a slice of
each job's prompt, or one token, so several jobs share a model fairly and an abandoned one ends at
once; jobs beyond a limit wait in order.
Log-probabilities are taken after a grammar's mask and before temperature and top-p, like vLLM's
`raw_logprobs`. Knows no HTTP.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import llguidance
import llguidance.hf
import msgspec
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import DynamicCache

from houston_daemon.engines.embedded.completions_wire import CompletionRequest, SampledPiece
from houston_daemon.engines.embedded.embedded_model import EmbeddedModel
from houston_daemon.engines.embedded.prefix_cache import PrefixCache, PrefixCacheEntry


def draw_token(
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
        token = int(
            torch.multinomial(_keep_nucleus(torch.softmax(row / temperature, -1), top_p), 1)
        )
    return token, float(logprobs[token])


def _keep_nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero everything outside the smallest set whose probability reaches `top_p`."""
    if top_p >= 1:
        return probabilities
    ordered, places = probabilities.sort(descending=True)
    ordered[ordered.cumsum(-1) - ordered >= top_p] = 0
    return torch.zeros_like(probabilities).scatter_(-1, places, ordered)


class GrammarError(ValueError):
    """The schema cannot be made into a grammar."""


class TokenGrammar:
    """One text being written under a schema."""

    def __init__(self, tokenizer: llguidance.LLTokenizer, schema: dict[str, Any] | str) -> None:
        text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
        try:
            compiled = llguidance.LLMatcher.grammar_from_json_schema(
                text, defaults={"whitespace_flexible": False}
            )
        except ValueError as problem:
            raise GrammarError(str(problem)) from problem
        self._matcher = llguidance.LLMatcher(tokenizer, compiled)
        self._size = tokenizer.vocab_size
        if self._matcher.is_error():
            raise GrammarError(self._matcher.get_error())

    def allowed(self, vocabulary: int) -> torch.Tensor:
        """Return which ids may come next, shape (vocabulary,)."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.zeros(vocabulary, dtype=bool)
        allowed_ids = np.unpackbits(bits, bitorder="little")[: min(self._size, vocabulary)]
        mask[: len(allowed_ids)] = allowed_ids
        return torch.from_numpy(mask)

    def accept(self, token: int) -> None:
        """Go on after `token`, which `allowed` had allowed."""
        self._matcher.consume_token(token)


PREFILL_TOKENS = 256
"""Prompt tokens in one turn: about a third of a second for a small model on one core."""


class JobSampler:
    """What every job shares: model, caches and the vocabulary as the grammar sees it."""

    def __init__(self, model: EmbeddedModel, cache_tokens: int) -> None:
        self.model = model
        self.prefixes = PrefixCache(model.config, cache_tokens)
        self._vocabulary: llguidance.LLTokenizer | None = None

    def load_adapter(self, name: str, folder: str) -> None:
        """Load or replace an adapter; what its earlier weights computed is forgotten."""
        self.prefixes.forget(name)
        self.model.load_adapter(name, folder)

    def unload_adapter(self, name: str) -> bool:
        """Forget an adapter; return whether there was one."""
        self.prefixes.forget(name)
        return self.model.unload_adapter(name)

    def grammar(self, request: CompletionRequest) -> TokenGrammar | None:
        """Compile the request's schema. Raises GrammarError."""
        outputs = request.structured_outputs
        if outputs is None or outputs.json is None:
            return None
        if self._vocabulary is None:
            self._vocabulary = llguidance.hf.from_tokenizer(
                self.model.tokenizer, n_vocab=self.model.vocabulary, eos_token=self.model.ends
            )
        return TokenGrammar(self._vocabulary, outputs.json)


class TextStream:
    """The text of tokens as they arrive; an incomplete character waits for its last token.

    As in vLLM, a token is decoded together with those before it. `tokenizers.DecodeStream` raises
    where the next byte makes bytes invalid that were a character before (SentencePiece).
    """

    def __init__(self, skip_special_tokens: bool) -> None:
        self._skips = skip_special_tokens
        self._ids: list[int] = []
        """Those of the last text that was told, and those that were not told yet."""
        self._told = 0

    def step(self, tokenizer: Tokenizer, token: int) -> str:
        """The text that `token` completes."""
        self._ids.append(token)
        text = self._decode(tokenizer, self._ids)
        if text.endswith("\ufffd"):
            return ""
        new = text[len(self._decode(tokenizer, self._ids[: self._told])) :]
        self._ids = self._ids[self._told :]
        self._told = len(self._ids)
        return new

    def _decode(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=self._skips))


class SamplingJob:
    """One request. deliver: called with every piece, or with the exception that ended it."""

    def __init__(
        self,
        request: CompletionRequest,
        prompt: Sequence[int],
        adapter: str,
        deliver: Callable[[SampledPiece | Exception], None],
    ) -> None:
        self.request = request
        self.prompt = list(prompt)
        self.adapter = adapter
        self.deliver = deliver
        self.cancelled = False
        self.cached_tokens = 0
        self.sampled = 0
        self._entry: PrefixCacheEntry | None = None
        self._grammar: TokenGrammar | None = None
        self._feed: list[int] = []
        self._text = TextStream(request.skip_special_tokens)

    def begin(self, sampler: JobSampler) -> None:
        """Take a cache and the grammar, once. Raises GrammarError."""
        if self._entry is not None:
            return
        self._grammar = sampler.grammar(self.request)
        self._entry = sampler.prefixes.take((self.adapter, self.request.cache_salt), self.prompt)
        self.cached_tokens = len(self._entry.ids)
        self._feed = self.prompt[self.cached_tokens :]

    def next_part(self, max_tokens: int) -> tuple[list[int], DynamicCache]:
        """At most `max_tokens` ids to compute next, and the cache that they go into."""
        assert self._entry is not None
        part, self._feed = self._feed[:max_tokens], self._feed[max_tokens:]
        self._entry.ids += part
        return part, self._entry.kv

    def take_logits(self, model: EmbeddedModel, logits: torch.Tensor) -> bool:
        """Sample if the prompt is fully computed; return whether the job is over. logits:
        (vocabulary,)."""
        return not self._feed and self._sample(model, logits)

    def end(self, sampler: JobSampler) -> None:
        """Give the cache back; what was computed serves the next prompt."""
        if self._entry is not None:
            sampler.prefixes.release_entry(self._entry)
            self._entry = None

    def drop_cache(self, sampler: JobSampler) -> None:
        """Forget the cache: nothing may be computed from it any more."""
        if self._entry is not None:
            sampler.prefixes.drop(self._entry)
            self._entry = None

    def _sample(self, model: EmbeddedModel, logits: torch.Tensor) -> bool:
        request = self.request
        allowed = self._grammar.allowed(len(logits)) if self._grammar else None
        token, logprob = draw_token(logits, allowed, request.temperature, request.top_p)
        self.sampled += 1
        self._feed = [token]
        stopped = token in request.stop_token_ids or token in model.ends
        if self._grammar and not stopped:
            self._grammar.accept(token)
        is_shown = not stopped or request.include_stop_str_in_output
        text = self._text.step(model.tokenizer.backend_tokenizer, token) if is_shown else ""
        reason = "stop" if stopped else "length" if self.sampled >= request.max_tokens else None
        stop_reason = token if token in request.stop_token_ids else None
        self.deliver(SampledPiece(text, [token], [logprob], reason, stop_reason))
        return reason is not None


MAX_RUNNING_JOBS = 32
"""Each running job holds a key-value cache of its own."""

Answer = TypeVar("Answer")


class JobScheduler:
    """Runs jobs on one thread; `submit` and `call` may come from any other."""

    def __init__(self, sampler: JobSampler) -> None:
        self.sampler = sampler
        """Touched on the sampling thread only: by jobs, and through `call`."""
        self._inbox: queue.SimpleQueue[SamplingJob | Callable[[], None]] = queue.SimpleQueue()
        self._running: deque[SamplingJob] = deque()
        self._waiting: deque[SamplingJob] = deque()
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: SamplingJob) -> None:
        """Queue a job."""
        self._inbox.put(job)

    def call(self, do: Callable[[], Answer]) -> "Future[Answer]":
        """Run `do` on the sampling thread between two turns."""
        future: Future[Answer] = Future()

        def run() -> None:
            try:
                future.set_result(do())
            except Exception as problem:  # noqa: BLE001 - the caller waits for it
                future.set_exception(problem)

        self._inbox.put(run)
        return future

    def _run(self) -> None:
        while True:
            self._receive()
            while self._waiting and len(self._running) < MAX_RUNNING_JOBS:
                self._running.append(self._waiting.popleft())
            if self._running:
                self._turn()

    def _receive(self) -> None:
        """Take what came in; wait for something when there is nothing to do."""
        while not self._inbox.empty() or not (self._running or self._waiting):
            item = self._inbox.get()
            if isinstance(item, SamplingJob):
                self._waiting.append(item)
            else:
                item()

    def _turn(self) -> None:
        """One pass for the job at the front and every other one with its adapter."""
        for job in [job for job in self._running if job.cancelled]:
            self._end(job)
        adapter = self._running[0].adapter if self._running else ""
        jobs = [job for job in self._running if job.adapter == adapter]
        jobs = [job for job in jobs if self._try_begin(job)]
        if not jobs:
            return
        share = max(1, PREFILL_TOKENS // len(jobs))
        parts = [job.next_part(share) for job in jobs]
        try:
            logits = self.sampler.model.forward(parts, adapter)
        except Exception as problem:  # noqa: BLE001 - nobody knows whose fault it was
            for job in jobs:
                job.drop_cache(self.sampler)  # what lies in it is not known any more
                self._fail(job, problem)
            return
        for job, row in zip(jobs, logits, strict=True):
            try:
                over = job.take_logits(self.sampler.model, row)
            except Exception as problem:  # noqa: BLE001 - one job's failure is that job's answer
                self._fail(job, problem)
                continue
            if over:
                self._end(job)
            else:  # behind those of other adapters
                self._running.remove(job)
                self._running.append(job)

    def _try_begin(self, job: SamplingJob) -> bool:
        try:
            job.begin(self.sampler)
        except Exception as problem:  # noqa: BLE001 - one job's failure is that job's answer
            self._fail(job, problem)
            return False
        return True

    def _fail(self, job: SamplingJob, problem: Exception) -> None:
        job.deliver(problem)
        self._end(job)

    def _end(self, job: SamplingJob) -> None:
        self._running.remove(job)
        job.end(self.sampler)
