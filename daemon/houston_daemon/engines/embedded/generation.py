"""One request being sampled, a turn at a time: a slice of its prompt, or one token.

A turn is short, so that several requests share one model fairly and an abandoned one ends at once.
Knows the model, the prefix caches and the grammar; knows no HTTP and no threads.
"""

from collections.abc import Callable, Sequence

import llguidance
import torch
from tokenizers.decoders import DecodeStream

from houston_daemon.engines.embedded.grammar import Grammar, grammar_tokenizer
from houston_daemon.engines.embedded.prefix import Entry, Prefixes
from houston_daemon.engines.embedded.sampling import draw
from houston_daemon.engines.embedded.weights import Model
from houston_daemon.engines.embedded.wire import CompletionRequest, Piece

PREFILL = 256
"""Prompt tokens in one turn: about a third of a second for a small model on one core."""


class Sampler:
    """What every job shares: model, caches and the vocabulary as the grammar sees it."""

    def __init__(self, model: Model, cache_tokens: int) -> None:
        self.model = model
        self.prefixes = Prefixes(model.config, cache_tokens)
        self._vocabulary: llguidance.LLTokenizer | None = None

    def load_adapter(self, name: str, folder: str) -> None:
        """Load or replace an adapter; what its earlier weights computed is forgotten."""
        self.prefixes.forget(name)
        self.model.load_adapter(name, folder)

    def unload_adapter(self, name: str) -> bool:
        """Forget an adapter; return whether there was one."""
        self.prefixes.forget(name)
        return self.model.unload_adapter(name)

    def grammar(self, request: CompletionRequest) -> Grammar | None:
        """Compile the request's schema. Raises GrammarError."""
        wanted = request.structured_outputs
        if wanted is None or wanted.json is None:
            return None
        if self._vocabulary is None:
            self._vocabulary = grammar_tokenizer(
                self.model.tokenizer, self.model.vocabulary, self.model.ends
            )
        return Grammar(self._vocabulary, wanted.json)


class Job:
    """One request. deliver: called with every piece, or with the exception that ended it."""

    def __init__(
        self,
        request: CompletionRequest,
        prompt: Sequence[int],
        adapter: str,
        deliver: Callable[[Piece | Exception], None],
    ) -> None:
        self.request = request
        self.prompt = list(prompt)
        self.adapter = adapter
        self.deliver = deliver
        self.cancelled = False
        self.cached_tokens = 0
        self.sampled = 0
        self._entry: Entry | None = None
        self._grammar: Grammar | None = None
        self._feed: list[int] = []
        self._text = DecodeStream(skip_special_tokens=request.skip_special_tokens)

    def turn(self, sampler: Sampler) -> bool:
        """Do a little; return whether the job is over."""
        entry = self._entry or self._begin(sampler)
        part, self._feed = self._feed[:PREFILL], self._feed[PREFILL:]
        logits = sampler.model.forward(part, entry.kv, self.adapter)
        entry.ids += part
        return not self._feed and self._sample(sampler.model, logits)

    def end(self, sampler: Sampler) -> None:
        """Give the cache back; what was computed serves the next prompt."""
        if self._entry is not None:
            sampler.prefixes.give_back(self._entry)
            self._entry = None

    def _begin(self, sampler: Sampler) -> Entry:
        self._grammar = sampler.grammar(self.request)
        self._entry = sampler.prefixes.take((self.adapter, self.request.cache_salt), self.prompt)
        self.cached_tokens = len(self._entry.ids)
        self._feed = self.prompt[self.cached_tokens :]
        return self._entry

    def _sample(self, model: Model, logits: torch.Tensor) -> bool:
        asked = self.request
        allowed = self._grammar.allowed(len(logits)) if self._grammar else None
        token, logprob = draw(logits, allowed, asked.temperature, asked.top_p)
        self.sampled += 1
        self._feed = [token]
        stopped = token in asked.stop_token_ids or token in model.ends
        if self._grammar and not stopped:
            self._grammar.accept(token)
        shown = not stopped or asked.include_stop_str_in_output
        text = self._text.step(model.tokenizer.backend_tokenizer, token) if shown else None
        reason = "stop" if stopped else "length" if self.sampled >= asked.max_tokens else None
        why = token if token in asked.stop_token_ids else None
        self.deliver(Piece(text or "", [token], [logprob], reason, why))
        return reason is not None
