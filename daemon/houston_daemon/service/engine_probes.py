"""What an engine's server reports about itself without sampling: costs nothing, takes moments.

Checks its list of models with their windows, its tokenizer against the configured one, whether it
loads adapters and, on this side, whether the dialect reads back what it writes. Each result is a
`CheckFinding` with the next command. `rollout start` refuses what fails here and `houston doctor`
shows it; `engine_check` adds what only samples show.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from houston_daemon.agent.rollout_setup import make_dialect_and_tokenizer
from houston_daemon.engines.engine_http import error_sentence, lacks_version, make_http_client
from houston_daemon.engines.engine_protocol import EngineUnavailable
from houston_daemon.engines.engine_registry import api_key, missing_variables, request_options
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import Dialect, PromptPiece
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.service.check_findings import CheckFinding, ok_finding
from houston_shared.engine_settings import ENGINE_KINDS
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from houston_shared.secret_redaction import redact

PROBE_SECONDS = 10.0
"""How long a server may take to say what it serves."""
_SHOWN_MODELS = 5
_WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""How endpoints call the window in their lists of models."""
TOKENIZER_TEXT = (
    "The year 1984, in words.\n\tdef f(x): return x**2  # naïve café 12,345.67\n"
    "木の上の猫 🐈 <b>&amp;</b> don't  stop\n"
)
"""Letters, numbers, white space and signs on which tokenizers differ."""
ROUND_TRIP_TOOL = ToolSpec(
    "note",
    "Write a line into the log.",
    {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 40}},
        "required": ["text"],
    },
)
_ROUND_TRIP_THOUGHT = "I write it down."
_ROUND_TRIP_TEXTS = ("ready", 'a "quoted" line\nand <another> one, naïve 🐈')
"""What is written and read back."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """One engine's server and what this side knows of it."""

    name: str
    settings: Mapping[str, Any]
    """Of the configuration, with `url`."""

    @property
    def takes_ids(self) -> bool:
        """Whether it is asked with token ids, as vLLM and the embedded server are."""
        return self.settings.get("kind") not in ("chat", "script", "recorded")

    @property
    def model(self) -> str:
        """The model's name in requests; empty for the first that the server lists."""
        model = str(self.settings.get("model") or "")
        own = self.settings.get("kind") in ("embedded", "vllm") or Path(model).is_dir()
        return "" if self.takes_ids and own else model

    def key(self, name: str) -> str:
        """A key of the configuration as a sentence names it."""
        return f"`engines.{self.name}.{name}`"

    def client(self, seconds: float = PROBE_SECONDS) -> httpx.AsyncClient:
        """Raises EngineUnavailable where a variable with its key or a header is not set."""
        url = str(self.settings["url"]).rstrip("/")
        headers = request_options(self.settings)["headers"]
        root = url.removesuffix("/v1") if self.takes_ids else url
        return make_http_client(root, api_key(self.settings), seconds, headers)

    def path(self, path: str) -> str:
        """A path below `/v1`, as its client is asked for it."""
        return f"/v1{path}" if self.takes_ids else path


def is_probed(settings: Mapping[str, Any]) -> bool:
    """Whether its server is of a kind that is asked here: one of ours, at a URL."""
    kind = str(settings.get("kind"))
    return bool(settings.get("url")) and kind in ENGINE_KINDS


async def probe_engine(name: str, settings: Mapping[str, Any]) -> list[CheckFinding]:
    """All findings that cost nothing, of an engine with a `url`; stops at a failure if the rest
    would only repeat it."""
    findings = [finding async for finding in _probe(ServerAddress(name, settings))]
    return list(map(without_secrets, findings))


def without_secrets(finding: CheckFinding) -> CheckFinding:
    """The finding, with keys taken out that a server quoted in its refusal."""
    return replace(finding, text=redact(finding.text), next=redact(finding.next))


def first_failure(name: str, settings: Mapping[str, Any]) -> CheckFinding | None:
    """What of `probe_engine` fails first; None where nothing does. Blocks."""
    findings = asyncio.run(probe_engine(name, settings))
    return next((finding for finding in findings if finding.state == "fail"), None)


async def compare_replicas(
    name: str, settings: Mapping[str, Any], servers: Mapping[str, str]
) -> tuple[str, CheckFinding]:
    """Which of an engine's servers the other checks ask, and whether all of them answer and serve
    the same. servers: URL by name, empty for one that does not run."""
    first = next(iter(servers.values()))
    if len(servers) == 1:
        return first, CheckFinding("replicas", "skip", "it has one server")
    served = {
        each: await _served_model(ServerAddress(name, {**settings, "url": url})) if url else None
        for each, url in servers.items()
    }
    answering = [each for each, model in served.items() if model is not None]
    server_url = servers[answering[0]] if answering else first
    if silent_servers := [each for each in servers if each not in answering]:
        step = "houston daemon status; houston daemon logs --engine NAME"
        text = f"{len(answering)} of {len(servers)} answer, and {', '.join(silent_servers)} not"
        return server_url, CheckFinding("replicas", "fail", text, step)
    if len(set(served.values())) > 1:
        kinds = "; ".join(f"{each}: {model}" for each, model in served.items())
        step = "Have all of them serve the same model, with the same window."
        return server_url, CheckFinding(
            "replicas", "fail", f"they serve different models: {kinds}", step
        )
    return server_url, ok_finding(
        "replicas", f"{len(servers)} answer, each with {served[answering[0]]}"
    )


async def _served_model(server: ServerAddress) -> str | None:
    """What a server says that it serves, with its window; None where it does not answer."""
    try:
        async with server.client() as http:
            answer = await http.get(server.path("/models"))
    except (httpx.RequestError, EngineUnavailable):
        return None
    cards = _read_cards(answer) if answer.is_success else []
    own = [card for card in cards or () if not card.get("parent")]
    if not own:
        return "no list of models" if answer.status_code < 500 else None
    window = _window_of(server.model, own)
    model = server.model or str(own[0].get("id"))
    return f"{model}, {window:,} tokens" if window else model


async def _probe(server: ServerAddress) -> AsyncIterator[CheckFinding]:
    for variable, key in missing_variables(server.settings).items():
        text = f"the variable {variable}, named by `{key}`, is not set in this shell, so nothing"
        step = f"export {variable}=…; a daemon has what it was started with"
        yield CheckFinding("key", "fail", f"{text} was asked", step)
        return
    async with server.client() as http:
        findings, cards = await _list_models(server, http)
        for finding in findings:
            yield finding
        if any(finding.state == "fail" for finding in findings):
            return
        yield _model_finding(server, cards)
        if server.takes_ids:
            async for finding in _probe_tokens(server, http):
                yield finding
            yield await _adapter_finding(server, http, cards)
        yield _window_finding(server, cards)


async def _list_models(
    server: ServerAddress, http: httpx.AsyncClient
) -> tuple[list[CheckFinding], list[Mapping[str, Any]] | None]:
    """Whether it answers and takes the key; and its models, None where it lists none."""
    correct = f"Correct {server.key('url')}: the API's own address, which mostly ends in /v1."
    url = str(server.settings["url"])
    try:
        answer = await http.get(server.path("/models"))
    except httpx.RequestError as problem:
        reason = str(problem) or type(problem).__name__
        step = f"Start it, or correct {server.key('url')}."
        return [CheckFinding("reachable", "fail", f"{url} does not answer: {reason}", step)], None
    message, status = error_sentence(answer.text)[0], answer.status_code
    if status in (401, 402, 403):
        key = server.settings.get("api_key_env") or ""
        step = (
            f"export {key}=…" if key else f"Name the key's variable in {server.key('api_key_env')}."
        )
        text = f"refused with {status}: {message}"
        return [ok_finding("reachable", url), CheckFinding("key", "fail", text, step)], None
    if status == 404 and await _is_below_v1(server, http):
        text, step = (
            f"{url} is no API, and {url.rstrip('/')}/v1 is one",
            f"Add /v1 to {server.key('url')}.",
        )
        return [CheckFinding("reachable", "fail", text, step)], None
    if status in (404, 405, 408, 429, 501):  # an equal server may have no such page, or be busy
        return [ok_finding("reachable", f"{url} answers, and lists no models ({status})")], None
    if not answer.is_success:
        where = answer.headers.get("location", "")
        text = f"{url} answers {status}: {where or message}"
        step = correct if answer.is_redirect else "Look at the server's own log."
        return [CheckFinding("reachable", "fail", text, step)], None
    cards = _read_cards(answer)
    if cards is None:
        kind = answer.headers.get("content-type", "nothing that says what it is")
        text = f"{url} answers with {kind}, which is no list of models"
        return [CheckFinding("reachable", "fail", text, correct)], None
    return [ok_finding("reachable", f"{url} answers"), *_key_findings(server)], cards


async def _is_below_v1(server: ServerAddress, http: httpx.AsyncClient) -> bool:
    """Whether an API is where the configured address goes on with `/v1`, and nobody samples at the
    address itself. A server may have its list below `/v1` alone and sample at both."""
    if server.takes_ids or not lacks_version(str(server.settings["url"])):
        return False
    try:
        answer = await http.get("/v1/models")
        if not answer.is_success or _read_cards(answer) is None:
            return False
        # Without messages: a server that samples there refuses it, and nothing is sampled.
        sample = await http.post("/chat/completions", json={"model": server.model})
    except httpx.RequestError:
        return False
    return sample.status_code in (404, 405)


def _key_findings(server: ServerAddress) -> list[CheckFinding]:
    key = server.settings.get("api_key_env")
    return [ok_finding("key", f"it takes the one in {key}")] if key else []


def _read_cards(answer: httpx.Response) -> list[Mapping[str, Any]] | None:
    try:
        listed = answer.json()
    except (ValueError, RecursionError):
        return None
    cards = listed.get("data") if isinstance(listed, dict) else listed
    if not isinstance(cards, list):
        return None
    return [card for card in cards if isinstance(card, dict)]


def _model_finding(
    server: ServerAddress, cards: Sequence[Mapping[str, Any]] | None
) -> CheckFinding:
    names = [str(card.get("id")) for card in cards or () if not card.get("parent")]
    model = server.model
    if not names and server.takes_ids and not model:
        return CheckFinding(
            "model", "fail", "the server lists no model", f"Name it in {server.key('model')}."
        )
    if not names:
        return CheckFinding("model", "skip", f"{model}: the server does not say what it serves")
    name_list = ", ".join(names[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
    if not model or model in names or model in (str(card.get("id")) for card in cards or ()):
        return ok_finding("model", f"{model or names[0]}, of {len(names)} that it serves")
    text = f"{model} is none of the {len(names)} that it lists: {name_list}"
    step = f"Set {server.key('model')} to one of them."
    if server.takes_ids:
        return CheckFinding("model", "fail", text, step)
    # Gateways serve names that they do not list; the first sample tells.
    return CheckFinding("model", "skip", text, step)


def _window_finding(
    server: ServerAddress, cards: Sequence[Mapping[str, Any]] | None
) -> CheckFinding:
    server_window = _window_of(server.model, cards)
    configured = int(server.settings.get("window") or 0)
    set_it = f"Set {server.key('window')}"
    if server_window and configured > server_window:
        text = f"{configured:,} tokens are configured, and the server takes {server_window:,}"
        return CheckFinding("window", "fail", text, f"{set_it} to {server_window}, or to 0.")
    if configured or (server_window and server.takes_ids):
        by = "as configured" if configured else "as the server says"
        return ok_finding("window", f"{configured or server_window:,} tokens, {by}")
    if server_window:
        text = f"the endpoint says {server_window:,} tokens, which Houston does not take from it"
        return CheckFinding("window", "skip", text, f"{set_it} to {server_window}.")
    text = "not known: what the server refuses as too long is forked then"
    return CheckFinding("window", "skip", text, f"{set_it} to what the model's page says.")


def _window_of(model: str, cards: Sequence[Mapping[str, Any]] | None) -> int:
    """What a server says of its model's window; 0 for nothing."""
    card = next((card for card in cards or () if not model or card.get("id") == model), {})
    window = next((card[key] for key in _WINDOW_KEYS if isinstance(card.get(key), int)), 0)
    return max(0, int(window))


async def _probe_tokens(
    server: ServerAddress, http: httpx.AsyncClient
) -> AsyncIterator[CheckFinding]:
    """Of a server that takes ids: its tokenizer, and the dialect of its model."""
    try:
        dialect, tokens = load_dialect(server.settings, token_ids=True)
    except ConfigurationError as problem:
        yield CheckFinding("tokenizer", "fail", problem.cause, problem.next)
        return
    assert tokens is not None, "an engine with ids has a tokenizer"
    yield compare_tokenizers(
        server, tokens, dialect, await _server_token_ids(server, http, dialect)
    )
    yield dialect_finding(server, dialect, tokens)


def load_dialect(
    settings: Mapping[str, Any], *, token_ids: bool
) -> tuple[Dialect, PromptTokenizer | None]:
    """As rollouts have them. Raises ConfigurationError."""
    return make_dialect_and_tokenizer(settings, bool(settings.get("reasoning")), token_ids)


def tokenizer_text(dialect: Dialect) -> str:
    """The text on which two tokenizers are compared: plain signs, then the dialect's tokens."""
    return TOKENIZER_TEXT + "".join((*dialect.stop_tokens, *dialect.answer_tokens))


async def _server_token_ids(
    server: ServerAddress, http: httpx.AsyncClient, dialect: Dialect
) -> list[int] | None:
    """What the server makes of the text, at `/tokenize` (vLLM, SGLang, the embedded server); None
    where it has no such page."""
    body = {"prompt": tokenizer_text(dialect), "add_special_tokens": False}
    if server.model:
        body["model"] = server.model
    try:
        answer = await http.post("/tokenize", json=body)
        ids = answer.json().get("tokens") if answer.is_success else None
    except (httpx.RequestError, ValueError, AttributeError):
        return None
    return [int(id) for id in ids] if isinstance(ids, list) else None


def compare_tokenizers(
    server: ServerAddress,
    tokens: PromptTokenizer,
    dialect: Dialect,
    server_ids: Sequence[int] | None,
) -> CheckFinding:
    """Whether the configured tokenizer is the server's. server_ids: what the server made of
    `tokenizer_text`; None where it does not say."""
    if server_ids is None:
        text = f"{tokens.path}; the server has no /tokenize to compare it with"
        return CheckFinding("tokenizer", "skip", text)
    ours = tokens.encode([PromptPiece(tokenizer_text(dialect), True)])
    if list(server_ids) == ours:
        return ok_finding("tokenizer", f"{tokens.path}, and the server's: {len(ours)} ids alike")
    place = next(
        (at for at, (a, b) in enumerate(zip(ours, server_ids, strict=False)) if a != b),
        min(len(ours), len(server_ids)),
    )
    token_text = tokens.decode(ours[place : place + 1])
    return CheckFinding(
        "tokenizer",
        "fail",
        f"{tokens.path} is not the server's: token {place + 1} of a text, {token_text!r}, is"
        f" {_id_at(ours, place)} here and {_id_at(server_ids, place)} there",
        f"Set {server.key('tokenizer')} to the tokenizer.json of the model that it serves.",
    )


def _id_at(ids: Sequence[int], place: int) -> str:
    return str(ids[place]) if place < len(ids) else "nothing"


def writes_trial_words(tokens: PromptTokenizer | None) -> bool:
    """Whether the vocabulary has the words of the trial; that of a tiny policy may lack them."""
    words = f"{ROUND_TRIP_TOOL.name} {_ROUND_TRIP_TEXTS[0]}"
    return tokens is None or tokens.decode(tokens.encode([PromptPiece(words, False)])) == words


def dialect_finding(
    server: ServerAddress, dialect: Dialect, tokens: PromptTokenizer | None
) -> CheckFinding:
    """Whether the dialect reads back the call that it writes, through the tokenizer's ids."""
    if not writes_trial_words(tokens):
        reason = f"{dialect.name}; its vocabulary has too few words for a trial"
        return CheckFinding("dialect", "skip", reason)
    problems = [_round_trip_problem(dialect, tokens, text) for text in _ROUND_TRIP_TEXTS]
    if not any(problems):
        return ok_finding("dialect", f"{dialect.name} reads back the calls that it writes")
    return CheckFinding(
        "dialect",
        "fail",
        f"{dialect.name} does not read back what it writes: {problems[0] or problems[1]}",
        f"Set {server.key('dialect')} to the model's family, and {server.key('tokenizer')} to its"
        " tokenizer.json.",
    )


def _round_trip_problem(dialect: Dialect, tokens: PromptTokenizer | None, text: str) -> str:
    """What became of a call that was written and read back; empty where it is the same."""
    call = ToolCall(id="1.0", name=ROUND_TRIP_TOOL.name, arguments={"text": text})
    pieces = dialect.assistant(_ROUND_TRIP_THOUGHT, (call,))
    written = tokens.decode(tokens.encode(pieces)) if tokens else "".join(p.text for p in pieces)
    answer = _without_stop(written, dialect)
    read = dialect.parse(answer, 1, {call.name: ROUND_TRIP_TOOL})
    if [(each.name, each.arguments) for each in read.calls] == [(call.name, call.arguments)]:
        return ""
    return read.malformed or f"the call came back as {answer!r:.120}"


def _without_stop(text: str, dialect: Dialect) -> str:
    text = text.rstrip()
    for stop in dialect.stop_tokens:
        text = text.removesuffix(stop).rstrip()
    return text


async def _adapter_finding(
    server: ServerAddress, http: httpx.AsyncClient, cards: Sequence[Mapping[str, Any]] | None
) -> CheckFinding:
    """Whether policies of ours can be loaded while it runs; nothing is loaded."""
    loaded = [str(card.get("id")) for card in cards or () if card.get("parent")]
    has = f"; it has {', '.join(loaded[:_SHOWN_MODELS])}" if loaded else ""
    try:
        answer = await http.get("/v1/load_lora_adapter")  # what takes a POST alone refuses with 405
    except httpx.RequestError as problem:
        text = f"it did not say: {str(problem) or type(problem).__name__}"
        return CheckFinding("adapters", "skip", text)
    if answer.status_code == 405:
        return ok_finding("adapters", f"it loads adapters while it runs{has}")
    text = f"it loads none while it runs{has}: no policy that is trained here can be activated"
    step = "vLLM: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True."
    return CheckFinding("adapters", "skip", text, step)
