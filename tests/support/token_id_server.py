"""What a server of token ids says on `Endpoint`: vLLM's part, and SGLang's from its source.

Its tokenizer has one token for each byte and ChatML's two marks. It is no model: a test decides
what it writes. SGLang itself (0.5.23) needs a GPU and was not run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tests.integration.agent.endpoint import Answer, Endpoint, Page

MODEL, WINDOW = "some-model", 8_192
NOOP = '{"thought": "", "calls": [{"name": "noop", "arguments": {"text": "x"}}]}'
NOTE = '{"thought": "", "calls": [{"name": "note", "arguments": {"text": "ready"}}]}'
STREAM = {"content-type": "text/event-stream"}


def byte_tokenizer(folder: Path, name: str = "tokenizer.json", first: str = "<|im_end|>") -> Path:
    """A tokenizer file. first: the mark with the lowest id; another one makes another tokenizer."""
    letters = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    marks = sorted(("<|im_start|>", "<|im_end|>"), key=lambda mark: mark != first)
    tokenizer.add_special_tokens(marks)
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(file))
    return file


class IdServer:
    """An endpoint with ids. tokenizer: the server's own."""

    def __init__(
        self,
        tokenizer: Path,
        *,
        logprobs: bool = True,
        after_temperature: bool = False,
        adapters: bool = True,
    ) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._logprobs = logprobs
        self._bent = after_temperature
        card = {"id": MODEL, "object": "model", "max_model_len": WINDOW}
        pages: dict[str, Callable[[Any], Answer]] = {
            "/models": lambda _: (200, {"data": [card]}),
            "/health": lambda _: (200, {}),
            "/tokenize": lambda body: (200, {"tokens": self.encode(body["prompt"])}),
            "/load_lora_adapter": lambda _: (405 if adapters else 404, {"detail": "no"}),
        }
        self.endpoint = Endpoint(self.complete, pages=pages)
        self.answer = NOOP

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def complete(self, body: dict[str, Any]) -> Answer:
        """What it writes, cut at `max_tokens`, with the log-probabilities of its temperature."""
        text = self.answer if body["stop_token_ids"] else "a tale"
        ids = [*self.encode(text), *self.encode("<|im_end|>")][: body["max_tokens"]]
        own = -0.7
        scaled = own * body["temperature"] if self._bent and body["temperature"] else own
        choice = {
            "index": 0,
            "text": text,
            "token_ids": ids,
            "prompt_token_ids": body["prompt"],
            "finish_reason": "stop",
        }
        if self._logprobs:
            choice["logprobs"] = {"token_logprobs": [scaled] * len(ids)}
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids)}
        events = [{"choices": [choice]}, {"choices": [], "usage": usage}]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return Page("".join((*lines, "data: [DONE]\n\n")), headers=STREAM)

    def settings(self, tokenizer: Path) -> dict[str, Any]:
        """An `[engines.NAME]` table with this tokenizer."""
        url = self.endpoint.url
        return {"kind": "token", "url": url, "model": MODEL, "tokenizer": str(tokenizer)}
