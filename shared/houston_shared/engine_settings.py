"""The settings of an engine: `[engines.NAME]` of `houston.toml`, with its price.

A struct with a sentence under each key, which the documentation is made from, and the check that an
engine's kind is Houston's own or registered.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec

from houston_shared.errors import ConfigurationError
from houston_shared.toml_file import Settings

ReasoningField = Literal["none", "chat_template", "effort"]
Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_MILLION = 1_000_000


class EnginePrice(Settings, frozen=True):
    """What an engine's tokens cost, by the million, in `currency`: `[engines.NAME.price]`."""

    input: Price
    """A million tokens of prompts that were not in the engine's cache."""
    output: Price
    """A million sampled tokens, those of reasoning included."""
    cached: Price | None = None
    """A million prompt tokens that were in its cache; left out, as `input`."""

    def cost(self, prompt: int, cached: int, sampled: int) -> float:
        """What one request cost. prompt: all of its tokens, `cached` of them from the cache."""
        cached = min(cached, prompt)
        reread = self.input if self.cached is None else self.cached
        sums = (prompt - cached) * self.input + cached * reread + sampled * self.output
        return sums / _MILLION


class EngineSettings(Settings, frozen=True):
    """One engine. Which keys matter depends on `kind`."""

    kind: str
    """`embedded`: our transformers server, a child process. `vllm`: `vllm serve` as a child.
    `token`: a vLLM (or equal) that already runs at `url`. `chat`: any OpenAI-compatible endpoint
    at `url`. `script`: plays the actions in the file `path`. `recorded`: plays back a recording.
    Packages register more (docs/extending.md)."""
    url: str = ""
    """Base address, e.g. `http://127.0.0.1:8000/v1`."""
    urls: tuple[str, ...] = ()
    """Instead of `url`: base addresses of several servers that serve the same model, one replica
    each. A rollout keeps to one of them, and moves when that one is away (docs/engines.md)."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """How many servers a child is (`embedded` and `vllm`): each with a port, a log and `gpus` of
    its own. The first is called as the engine, the others `NAME#2`, `NAME#3`, …"""
    silence_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Longest silence of a server that is at work, before its request is sent again; 0: 900 s with
    token ids, 600 s for `chat`. A long prompt on a slow machine is silent for long."""
    port: int = 0
    """Port of a child on the loopback address; 0 takes a free one."""
    command: tuple[str, ...] = ()
    """Command of a `vllm` child; empty for the one that `doctor --install-engine` made."""
    args: tuple[str, ...] = ()
    """Further arguments of `vllm serve`, after Houston's own, e.g. `["--max-model-len", "8192"]`.
    `--host`, `--port`, `--uds`, `--model`, `--served-model-name`, `--api-key`, `--config`,
    `--logprobs-mode` and `--headless` are Houston's. A `command` of your own takes none.
    """
    model: str = ""
    """Model name in requests, or the model of a child: its folder, or `org/name` or
    `org/name@revision` of the Hugging Face hub (docs/your-model.md), which a folder of that name
    beside this file comes before; empty for SmolLM2-135M-Instruct."""
    tokenizer: str = ""
    """tokenizer.json of the model, its folder, or the model on the hub (`org/name@revision`), of
    which no weights are fetched; empty for the one in the model folder. A `token` engine needs it,
    unless `model` is a folder; `chat` has no use for it."""
    dialect: str = "chatml-json"
    """How the model's family writes prompts and calls, for engines that take token ids (and `chat`
    with `tool_calls = "text"`). `chatml-json`: models with `<|im_end|>` that write JSON under a
    schema (SmolLM2, any small ChatML model). `hermes`: `<tool_call>` with JSON (Hermes, Qwen2.5).
    `qwen3`: as that, with thinking switched by `reasoning` (Qwen3). `glm45`: GLM-4.5 and 4.6.
    `chatml-calls`: one call a line and a short head, for small ChatML models in short contexts.
    `words`: tiny policies (`houston policy tiny`). Other families (Llama 3, Mistral, DeepSeek,
    Gemma, GLM, Kimi, MiniMax, Nemotron, Qwen3.5, …) as their templates say: docs/families.md."""
    window: int = 0
    """Largest prompt + answer in tokens; 0 for what the model or server says. A `chat` endpoint
    that is not said to have one refuses what is too long, and the context is then forked."""
    api_key_env: str = ""
    """Environment variable that holds the key; the key itself is never stored. It is read from the
    daemon's environment: after a change `export NAME=…; houston daemon restart`."""
    parameters: dict[str, Any] = {}
    """For `chat`, `token`, `vllm` and `embedded`: added to each request, over what the task file
    says, e.g. `{ temperature = 1.0, max_completion_tokens = 8192, reasoning_effort = "high" }`.
    `embedded` samples by `temperature` and `top_p` alone. Nothing else is sent to a `chat` endpoint
    than the model, messages, tools, `temperature`, `top_p` and the limit of an answer where the
    task file sets them, and `stream` with `stream_options` (for the count of tokens), which an
    endpoint that refuses them by name is not sent again; `{ stream = false }` asks for whole
    answers."""
    omit_parameters: tuple[str, ...] = ()
    """Names that are never sent, whoever asks for them, e.g. `["temperature", "stream_options"]`:
    what `null` would say, which TOML does not have."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """For `chat`: by which name a task's `budget.answer_tokens` is sent; OpenAI's reasoning models
    want the second."""
    headers: dict[str, str] = {}
    """Sent with each request of `chat` and `token`. What looks like a secret is refused here."""
    headers_env: dict[str, str] = {}
    """Header → environment variable of the daemon that holds its value, for secrets, e.g.
    `{ "x-api-key" = "GATEWAY_KEY" }`. They are neither stored nor shown, and redacted like keys."""
    reasoning: bool = False
    """Let the model write reasoning tokens."""
    reasoning_field: ReasoningField = "none"
    """For `chat`: how `reasoning` is told. `none`: not at all, the model decides. `chat_template`:
    `chat_template_kwargs.enable_thinking`, on and off (vLLM, SGLang). `effort`: `reasoning_effort`
    where it is on (OpenAI; `parameters` may say how much)."""
    tool_calls: Literal["native", "text"] = "native"
    """For `chat`: the endpoint's own tool calls; or, for one that has none, `text`: the first
    message lists the tools and the form of an answer, which the dialect then reads."""
    path: str = ""
    """For `script` and `recorded`: the JSON Lines file, from the folder of this file."""
    environment: dict[str, str] = {}
    """Extra environment of a child; it wins over what Houston sets, e.g. `HF_HUB_OFFLINE = "0"`.
    """
    settings: dict[str, Any] = {}
    """Settings of a kind that another package brings, as that package documents them."""
    price: EnginePrice | None = None
    """What its tokens cost, e.g. `{ input = 3.0, cached = 0.3, output = 15.0 }`; left out, the cost
    of its samples is not known, and no task with `budget.cost` runs on it."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """GPUs of this machine that a child leases and alone sees; 0 leases none and sees all."""
    gpus_shared: bool = False
    """Whether they may be shared with rollouts and trainers that say the same."""
    max_adapters: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """Policies that may be live on it at once; 0: 8 for `embedded` and `vllm`, what `command` says
    (`--max-cpu-loras`, `--max-loras`), and any number where only the server knows."""
    lora: bool = True
    """Whether a `vllm` child takes LoRA adapters. One that takes none samples the base 1.6 times
    as fast on the CPU as one that does and has none active (with one active it is slower again),
    and only full weights can be activated for it. With a `command` of your own, say what that does.
    """

    @property
    def addressed(self) -> bool:
        """Whether it is at an address, or at several, that somebody else keeps."""
        return bool(self.url or self.urls)

    @property
    def is_daemon_child(self) -> bool:
        """Whether the daemon starts it itself."""
        return self.kind in ("embedded", "vllm") and not self.addressed


def server_name(url: str) -> str:
    """Host and port of a URL: what may be shown of it, since the rest may hold a key."""
    from urllib.parse import urlsplit  # 3 ms that nobody pays without engines at addresses

    return urlsplit(url).netloc.rpartition("@")[2] or url


REQUEST_KEYS = (
    "api_key_env", "parameters", "omit_parameters", "max_tokens_field", "headers", "headers_env",
    "reasoning_field", "price", "silence_seconds",
)  # fmt: skip
"""Keys of an engine that say how it is asked and not what it is: running rollouts go by what the
configuration says as the daemon starts, so that a wrong one can be mended."""


ENGINE_KINDS = ("embedded", "vllm", "token", "chat", "script", "recorded")
"""Houston's own, which the daemon and the workers know each for itself."""


class _HasKind(Protocol):
    @property
    def kind(self) -> str: ...


def check_engine_kinds(engines: Mapping[str, _HasKind], source: str) -> None:
    """Raise ConfigurationError for a kind that is none; source: the file that is to blame."""
    for name, engine in engines.items():
        if engine.kind in ENGINE_KINDS:
            continue
        from houston_shared import plugins  # 20 ms that nobody pays without such an engine

        plugin_kinds = plugins.plugin_names(plugins.ENGINE_GROUP)
        if engine.kind not in plugin_kinds:
            raise ConfigurationError(
                f"{source}: `engines.{name}.kind` is {engine.kind!r}; allowed: "
                f"{', '.join((*ENGINE_KINDS, *plugin_kinds))}.",
                next="Install the package that provides it next to Houston, or correct the kind.",
            )
