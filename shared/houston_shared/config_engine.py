"""One engine as `houston.toml` has it: `[engines.NAME]`."""

from typing import Annotated, Any, Literal

import msgspec

from houston_shared.toml_file import Settings

ReasoningField = Literal["none", "chat_template", "effort"]


class Engine(Settings, frozen=True):
    """One engine. Which keys matter depends on `kind`."""

    kind: str
    """`embedded`: our transformers server, a child process. `vllm`: `vllm serve` as a child.
    `token`: a vLLM (or equal) that already runs at `url`. `chat`: any OpenAI-compatible endpoint
    at `url`. `script`: plays the actions in the file `path`. `recorded`: plays back a recording.
    Packages register more (docs/extending.md)."""
    url: str = ""
    """Base address, e.g. `http://127.0.0.1:8000/v1`."""
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
    """Model name in requests, or the model folder of a child; empty for SmolLM2-135M-Instruct."""
    tokenizer: str = ""
    """tokenizer.json of the model, or its folder; empty for the one in the model folder. A `token`
    engine needs it, unless `model` is a folder; `chat` has no use for it."""
    dialect: str = "chatml-json"
    """How the model's family writes prompts and calls, for engines that take token ids (and `chat`
    with `tool_calls = "text"`). `chatml-json`: models with `<|im_end|>` that write JSON under a
    schema (SmolLM2, any small ChatML model). `hermes`: `<tool_call>` with JSON (Hermes, Qwen2.5).
    `qwen3`: as that, with thinking switched by `reasoning` (Qwen3). `glm45`: GLM-4.5 and 4.6."""
    window: int = 0
    """Largest prompt + answer in tokens; 0 for what the model or server says. A `chat` endpoint
    that is not said to have one refuses what is too long, and the context is then forked."""
    api_key_env: str = ""
    """Environment variable that holds the key; the key itself is never stored. It is read from the
    daemon's environment: after a change `export NAME=…; houston daemon restart`."""
    parameters: dict[str, Any] = {}
    """For `chat`, `token`, `vllm` and `embedded`: added to each request, over what the task file
    says, e.g. `{ temperature = 1.0, max_completion_tokens = 8192, reasoning_effort = "high" }`.
    Nothing else is sent to a `chat` endpoint than the model, messages, tools, `temperature`,
    `top_p` and the limit of an answer where the task file sets them, and `stream` with
    `stream_options` (for the count of tokens), which an endpoint that refuses them by name is not
    sent again; `{ stream = false }` asks for whole answers."""
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
    """For `chat`: the endpoint's own tool calls, or text parsed by the dialect."""
    path: str = ""
    """For `script` and `recorded`: the JSON Lines file, from the folder of this file."""
    environment: dict[str, str] = {}
    """Extra environment of a child; it wins over what Houston sets, e.g. `HF_HUB_OFFLINE = "0"`.
    """
    settings: dict[str, Any] = {}
    """Settings of a kind that another package brings, as that package documents them."""
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


REQUEST_KEYS = (
    "api_key_env", "parameters", "omit_parameters", "max_tokens_field", "headers", "headers_env",
    "reasoning_field",
)  # fmt: skip
"""Keys of an engine that say how it is asked and not what it is: running rollouts go by what the
configuration says as the daemon starts, so that a wrong one can be mended."""
