"""Chooses the engine of a rollout from its settings: the one place that knows all kinds.

Packaged kinds and those that another package registered; checks the parameters and headers that the
configuration adds to each request.

Keys of the settings, all optional besides `kind` and what its kind needs:

- `kind`: `embedded`, `vllm` or `token` (the token client), `chat`, `script`.
- `url`: base address, with or without `/v1`; of a child server, the one it was started on.
- `urls`: base addresses of several servers, one of which answers each request.
- `silence_seconds`: longest silence before a request is sent again.
- `model`: name in requests; for the token client empty, or a folder, means the served one.
- `window`: largest prompt + answer in tokens; 0 for what the server says.
- `api_key_env`: environment variable that holds the key.
- `adapters`, `adapter_hashes`: folder, and hash of the content, by policy name (token client).
- `own_policy`: the policy whose full weights a child was started with.
- `logprobs_mode`: `raw_logprobs` (default) or `processed_logprobs`, as the server was started.
- `reasoning`: whether the model may write reasoning tokens; the request decides, per sample.
- `reasoning_field`: `none` (default), `chat_template`, `effort`: how a chat endpoint is told.
- `max_tokens_field`: `max_tokens` (default) or `max_completion_tokens` (chat).
- `parameters`, `omit_parameters`, `headers`, `headers_env`: see `request_options`.
- `tool_calls`: `native` (default) or `text` (chat).
- `dialect`: how calls are written as text (chat with `tool_calls = "text"`).
- `path`: file of a script.

`tokenizer`, `price`, `port`, `command` and `environment` belong to others and are passed over.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from houston_daemon.engines import chat_engine, token_engine
from houston_daemon.engines.chat_engine import ChatEngine
from houston_daemon.engines.engine_protocol import Engine, EngineUnavailable
from houston_daemon.engines.logprob_kind import NEUTRAL_SAMPLING
from houston_daemon.engines.replicated_engine import ReplicatedEngine
from houston_daemon.engines.script_engine import ScriptEngine
from houston_daemon.engines.token_engine import TokenEngine
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_shared import plugins
from houston_shared.backoff import RetryPolicy
from houston_shared.engine_settings import server_name
from houston_shared.errors import ConfigurationError
from houston_shared.secret_redaction import redact
from houston_shared.wire import EngineReplica

ENGINE_KINDS = ("embedded", "vllm", "token", "chat", "script")
EngineFactory = Callable[[Mapping[str, Any], str], Engine]
"""What an entry point of the group `houston.engines` names: the engine's table of the
configuration, and the name for the ledger, make an engine. Raises ConfigurationError."""


def choose_engine(
    settings: Mapping[str, Any],
    script: str | None = None,
    name: str = "",
    retry: RetryPolicy | None = None,
    replicas: Sequence[EngineReplica] = (),
) -> Engine:
    """Return the engine that `settings` (RolloutSpec.engine_settings) describe.

    script: path of a script, which then is the engine whatever the settings say.
    name: as written into the ledger; empty for the kind. retry: how long a failed request is tried
    again (chat and token client); None for as long as a rollout has it tried. replicas: the servers
    of an engine that has several, as the daemon tells of them.

    Raises ConfigurationError for an unknown kind or a missing key, and
    EngineUnavailable when a variable that holds the API key or a header is not set.
    """
    kind = settings.get("kind", "script" if script else "")
    if replicas or settings.get("urls"):
        return _replicated_engine(settings, name or kind, replicas, retry)
    if script or kind == "script":
        path = Path(script or _required_setting(settings, "path"))
        return ScriptEngine(path, name or "script")
    if kind == "chat":
        return _chat_engine(settings, name or kind, retry)
    if kind in ENGINE_KINDS:
        return _token_engine(settings, name or kind, retry)
    return plugin_factory(kind)(settings, name or kind)


def _chat_engine(settings: Mapping[str, Any], name: str, retry: RetryPolicy | None) -> ChatEngine:
    return ChatEngine(
        name,
        _required_setting(settings, "url"),
        _required_setting(settings, "model"),
        api_key(settings),
        window=settings.get("window") or None,
        tools_mode="native" if has_native_calls(settings) else "text",
        dialect=choose_dialect(
            str(settings.get("dialect") or "chatml-json"), bool(settings.get("reasoning"))
        ),
        reasoning_field=settings.get("reasoning_field", "none"),
        max_tokens_field=settings.get("max_tokens_field", "max_tokens"),
        retry=retry,
        silence_seconds=float(settings.get("silence_seconds") or 0),
        **request_options(settings),
    )


def _token_engine(settings: Mapping[str, Any], name: str, retry: RetryPolicy | None) -> TokenEngine:
    model = str(settings.get("model", ""))
    return TokenEngine(
        name,
        _required_setting(settings, "url"),
        # A child serves one model under its own name: the configured one is its folder.
        "" if settings["kind"] != "token" or Path(model).is_dir() else model,
        settings.get("window") or None,
        api_key(settings),
        adapters=settings.get("adapters"),
        contents=settings.get("adapter_hashes"),
        own_policy=str(settings.get("own_policy") or ""),
        logprobs_mode=settings.get("logprobs_mode", "raw_logprobs"),
        retry=retry,
        silence_seconds=float(settings.get("silence_seconds") or 0),
        **request_options(settings),
    )


def _replicated_engine(
    settings: Mapping[str, Any],
    name: str,
    replicas: Sequence[EngineReplica],
    retry: RetryPolicy | None,
) -> ReplicatedEngine:
    """The client of several servers; without `replicas`, of those at `urls`."""
    one_server = {**settings, "urls": ()}
    at_urls = [EngineReplica(server_name(url), url) for url in settings.get("urls") or ()]

    def make(replica: EngineReplica) -> Engine:
        return choose_engine(
            {**one_server, "url": replica.url}, None, replica.name, RetryPolicy(attempts=1)
        )

    return ReplicatedEngine(name, replicas or at_urls, make, retry)


def request_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the configuration adds to each request: `parameters`, `omit` and `headers`.

    Raises as `check_request_settings` does, and EngineUnavailable for a variable that is not set.
    """
    check_request_settings(settings)
    headers = dict(settings.get("headers") or {})
    for name, variable in (settings.get("headers_env") or {}).items():
        headers[name] = _environment_variable(variable, f"headers_env.{name}")
    return {
        "parameters": settings.get("parameters"),
        "omit": tuple(settings.get("omit_parameters") or ()),
        "headers": headers,
    }


def check_request_settings(settings: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for parameters and headers that no request may have.

    A secret is none that may stand in a file: what is stored of it would be a placeholder.
    """
    kind = settings.get("kind")
    taken_names = (
        chat_engine.RESERVED_CHAT_FIELDS
        if kind == "chat"
        else token_engine.RESERVED_COMPLETION_FIELDS
    )
    parameters: Mapping[str, Any] = settings.get("parameters") or {}
    for key, names in (
        ("parameters", parameters),
        ("omit_parameters", settings.get("omit_parameters") or ()),
    ):
        if wrong := sorted(taken_names.intersection(names)):
            raise ConfigurationError(
                f"`{key}` of an engine of kind {kind!r} may not name {', '.join(wrong)}: "
                "Houston sets that itself."
            )
    if kind == "embedded":
        _refuse_what_embedded_ignores(parameters)
    for name, value in (settings.get("headers") or {}).items():
        if _SECRET_HEADER.search(name) or redact(value) != value:
            raise ConfigurationError(
                f"The header {name!r} of `headers` looks like a secret.",
                next=f'Write it into a variable: export NAME=…, and headers_env = {{ "{name}" = '
                '"NAME" }.',
            )
    for name, value in parameters.items():
        if isinstance(value, str) and redact(value) != value:
            raise ConfigurationError(
                f"`parameters.{name}` looks like a secret.", next="Use `headers_env`, if it is one."
            )


def _refuse_what_embedded_ignores(parameters: Mapping[str, Any]) -> None:
    ignored = [
        name
        for name, value in parameters.items()
        if name in _IGNORED_BY_EMBEDDED and value not in NEUTRAL_SAMPLING.get(name, ())
    ]
    if ignored:
        raise ConfigurationError(
            f"`parameters` of an engine of kind 'embedded' may not name {', '.join(ignored)}: its "
            "server uses only temperature and top_p.",
            next="Leave them out, or use an engine of kind `vllm`.",
        )


_IGNORED_BY_EMBEDDED = {"stop", *NEUTRAL_SAMPLING} - {"temperature", "top_p"}
_SECRET_HEADER = re.compile(r"authorization|cookie|token|secret|password|api-?key|credential", re.I)


def plugin_factory(kind: str) -> EngineFactory:
    """What makes an engine of a kind that another package registered.

    Raises ConfigurationError when there is none of that name, or when it cannot be imported.
    """
    plugin_kinds = plugins.plugin_names(plugins.ENGINE_GROUP)
    if kind not in plugin_kinds:
        kinds = ", ".join((*ENGINE_KINDS, *plugin_kinds))
        raise ConfigurationError(f"There is no engine kind {kind!r}; known: {kinds}.")
    factory: EngineFactory = plugins.load_plugin(plugins.ENGINE_GROUP, kind, "engine kind")
    return factory


def has_native_calls(settings: Mapping[str, Any]) -> bool:
    """Whether tools are sent and calls returned in the endpoint's own form, not a dialect's."""
    return settings.get("kind") == "chat" and settings.get("tool_calls", "native") == "native"


def _required_setting(settings: Mapping[str, Any], key: str) -> str:
    value = str(settings.get(key) or "")
    if not value:
        raise ConfigurationError(
            f"An engine of kind {settings.get('kind')!r} needs the key {key!r}."
        )
    return value


def api_key(settings: Mapping[str, Any]) -> str:
    """The key of an engine; empty where it has none. Raises EngineUnavailable where its variable is
    not set."""
    variable = settings.get("api_key_env")
    return _environment_variable(variable, "api_key_env") if variable else ""


def missing_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Variables for an engine's key and headers that this process does not have, each with the
    setting that names it."""
    headers = settings.get("headers_env") or {}
    named = {variable: f"headers_env.{name}" for name, variable in headers.items()}
    if variable := settings.get("api_key_env"):
        named[variable] = "api_key_env"
    return {variable: key for variable, key in named.items() if variable not in os.environ}


def _environment_variable(variable: str, named_by: str) -> str:
    if variable not in os.environ:
        # Who waits shows the cause alone, so it says what to do, too.
        raise EngineUnavailable(
            f"the variable {variable}, named by `{named_by}`, is not set where the daemon was"
            f" started: export {variable}=…; houston daemon restart.",
            "The rollout waits.",
        )
    return os.environ[variable]
