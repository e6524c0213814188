"""Loads a policy's adapter into a running engine, and samples one token with it as a check.

It uses vLLM's calls (`/v1/load_lora_adapter`), which the embedded server also answers. It blocks,
so it runs in a thread. The caller chooses the engine and checks everything else.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from houston_daemon.training.policies import policy_constraints
from houston_shared.errors import HoustonError

if TYPE_CHECKING:
    import httpx

    from houston_daemon.engines.token_engine import AdapterLocation

ANSWER_TIMEOUT_SECONDS = 300.0
"""For one answer: a large adapter from a slow disk, and a first token behind long prompts."""


class AdapterServer(NamedTuple):
    """Where an engine answers."""

    name: str
    url: str
    """With or without `/v1`."""
    key: str = ""
    limit: int = 0
    """Adapters that it holds at once; 0 where nobody knows."""


class ServedModels(NamedTuple):
    """What a server says that it serves."""

    model: str
    root: str
    """Where its weights lie, on its own machine."""
    adapters: Mapping[str, str]
    """Name → the folder it was loaded from; empty where the server does not say."""


def key_from_variable(variable: str) -> str:
    """The key in an environment variable; empty without one."""
    return os.environ.get(variable, "") if variable else ""


def served_models(server: AdapterServer, seconds: float = ANSWER_TIMEOUT_SECONDS) -> ServedModels:
    """Its model and adapters. Raises HoustonError when it does not say within `seconds`."""
    with _http_client(server, seconds) as http:
        return _read_served(server, http)


def load_adapter(
    server: AdapterServer,
    policy: str,
    folder: Path,
    used: Mapping[str, Collection[str]],
    order: Mapping[str, int],
    content: str = "",
) -> tuple[str, ...]:
    """Load an adapter and sample one token with it; returns the adapters unloaded to make room.

    used: policy → rollouts of this engine that have not ended. order: policy → when it was last
    activated. content: hash of what is in `folder`, if known; other weights under the same name,
    from an earlier home at the same path, are then replaced. Raises HoustonError; the engine then
    still has the adapters that it needs.
    """
    from houston_daemon.engines.token_engine import AdapterLocation

    place = AdapterLocation(str(folder), content)
    with _http_client(server) as http:
        loaded = dict(_read_served(server, http).adapters)
        if policy in loaded and _must_replace(server, policy, place, loaded[policy]):
            _unload(server, http, policy)
            del loaded[policy]
        if policy in loaded:
            _sample_one_token(server, http, policy)
            return ()
        oldest_first = sorted(loaded, key=lambda name: order.get(name, 0))
        unloaded = policy_constraints.adapters_to_unload(server.limit, policy, oldest_first, used)
        for name in unloaded:
            _unload(server, http, name)
        body = {"lora_name": policy, "lora_path": _ensure_adapter_place(place)}
        _post_call(server, http, "load_lora_adapter", body)
        try:
            _sample_one_token(server, http, policy)
        except HoustonError:
            _unload(server, http, policy)
            raise
    return unloaded


def load_on_all(
    servers: Sequence[AdapterServer],
    policy: str,
    folder: Path,
    used: Mapping[str, Collection[str]],
    order: Mapping[str, int],
    content: str = "",
) -> tuple[str, ...]:
    """Load an adapter into each server of an engine, as `load_adapter` does; returns the adapters
    that were unloaded. Raises HoustonError; the adapter is then unloaded again where it was new."""
    unloaded: set[str] = set()
    newly: list[AdapterServer] = []
    try:
        for server in servers:
            had = policy in served_models(server).adapters
            unloaded.update(load_adapter(server, policy, folder, used, order, content))
            newly += [] if had else [server]
    except HoustonError:
        for server in newly:
            with _http_client(server) as http:
                _unload(server, http, policy)
        raise
    return tuple(sorted(unloaded))


def try_model(server: AdapterServer) -> None:
    """Sample one token with what it serves itself. Raises HoustonError."""
    with _http_client(server) as http:
        _sample_one_token(server, http, _read_served(server, http).model)


def _must_replace(server: AdapterServer, policy: str, place: "AdapterLocation", root: str) -> bool:
    """Whether what the server loaded under the policy's name, from `root`, may be other weights.

    Raises HoustonError where they are another home's.
    """
    weights = place.loaded_weights(root)
    if weights == "foreign":
        raise HoustonError(
            f"Engine {server.name} already has another {policy}, from {root}.",
            "New rollouts sample with the same policy as before.",
            "Unload it there, or train policies of this home under another name:"
            " --name of houston train.",
        )
    return weights == "older"


def _ensure_adapter_place(place: "AdapterLocation") -> str:
    try:
        return place.made()
    except OSError as problem:
        raise HoustonError(
            f"The folder to load the adapter from, {place.path}, cannot be made: "
            f"{problem.strerror}."
        ) from problem


def _http_client(server: AdapterServer, seconds: float = ANSWER_TIMEOUT_SECONDS) -> "httpx.Client":
    import httpx  # 100 ms that no start of the daemon pays which has no policy to load

    from houston_daemon.engines.engine_http import connection_settings

    headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
    base = server.url.rstrip("/").removesuffix("/v1")
    settings = connection_settings(base)
    return httpx.Client(base_url=base, headers=headers, timeout=seconds, **settings)


def _read_served(server: AdapterServer, http: "httpx.Client") -> ServedModels:
    answer = _json_answer(server, http, "GET", "/v1/models", None)
    models: list[dict[str, Any]] = answer.get("data") or [{}]
    own = next((model for model in models if not model.get("parent")), models[0])
    loaded = [model for model in models if model.get("parent")]
    adapters = {str(model["id"]): str(model.get("root") or "") for model in loaded}
    return ServedModels(str(own.get("id", "")), str(own.get("root") or ""), adapters)


def _sample_one_token(server: AdapterServer, http: "httpx.Client", model: str) -> None:
    """One token; what is in the server by name only fails here."""
    body = {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0.0, "logprobs": 0}
    answer = _json_answer(server, http, "POST", "/v1/completions", body)
    logprobs = (answer.get("choices") or [{}])[0].get("logprobs") or {}
    values = logprobs.get("token_logprobs") or [None]
    if not isinstance(values[0], (int, float)) or values[0] != values[0]:
        raise HoustonError(
            f"Engine {server.name} samples nothing usable with {model}: the log-probability of its "
            f"first token is {values[0]}."
        )


def _unload(server: AdapterServer, http: "httpx.Client", adapter: str) -> None:
    _post_call(server, http, "unload_lora_adapter", {"lora_name": adapter})


def _post_call(
    server: AdapterServer, http: "httpx.Client", call: str, body: dict[str, str]
) -> None:
    from houston_daemon.engines.token_engine import is_already_loaded

    answer = _send_request(server, http, "POST", f"/v1/{call}", body)
    missing = call.startswith("unload") and answer.status_code == 404
    if not answer.is_success and not is_already_loaded(answer) and not missing:
        raise _refusal_error(server, answer)


def _json_answer(
    server: AdapterServer, http: "httpx.Client", method: str, path: str, body: dict[str, Any] | None
) -> dict[str, Any]:
    answer = _send_request(server, http, method, path, body)
    if not answer.is_success:
        raise _refusal_error(server, answer)
    decoded: dict[str, Any] = answer.json()
    return decoded


def _send_request(
    server: AdapterServer, http: "httpx.Client", method: str, path: str, body: dict[str, Any] | None
) -> "httpx.Response":
    import httpx

    try:
        return http.request(method, path, json=body)
    except httpx.HTTPError as problem:
        cause = str(problem) or type(problem).__name__
        raise HoustonError(f"Engine {server.name} does not answer: {cause}.") from problem


def _refusal_error(server: AdapterServer, answer: "httpx.Response") -> HoustonError:
    try:
        message = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.text
    return HoustonError(f"Engine {server.name} refuses: {str(message)[:300]}")
