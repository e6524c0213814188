"""Access to the Hugging Face hub, or a server with its API: a repository's files, and a commit.

Each kind of refusal becomes one sentence with the next command. `HF_ENDPOINT`, `HF_TOKEN`,
`HF_HUB_OFFLINE` and `HF_HOME` are read by `huggingface_hub`, which is imported when first needed.
`hub_downloads` decides what is fetched; callers decide what is pushed.
"""

import contextlib
import hashlib
import importlib
import io
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

from houston_shared.errors import Busy, ConfigurationError, ExitCode, HoustonError
from houston_shared.hub_models import HubId, hub_origin, parse_hub_id
from houston_shared.secret_redaction import redact

RepositoryKind = Literal["model", "dataset"]
LOG_IN = "hf auth login, or export HF_TOKEN=…"


class HubUnreachable(HoustonError):
    """The hub could not be asked: no network, no answer, or `HF_HUB_OFFLINE`."""


class HubFile(NamedTuple):
    """A file of a repository, as the hub lists it."""

    name: str
    size: int
    sha256: str
    """Of a large file; empty for one that git holds itself."""
    blob: str
    """What git calls its content (SHA-1)."""

    def matches(self, content: Path | bytes) -> bool:
        """Whether it has this content: bytes, or a file's. Raises OSError."""
        with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as opened:
            if self.sha256:
                return hashlib.file_digest(opened, "sha256").hexdigest() == self.sha256
            data = opened.read()
            header = b"blob %d\0" % len(data)
            return hashlib.sha1(header + data, usedforsecurity=False).hexdigest() == self.blob


class HubListing(NamedTuple):
    """A repository at a commit."""

    commit: str
    files: dict[str, HubFile]
    private: bool


def hub_library() -> Any:
    """`huggingface_hub`. Raises HoustonError where it is not installed."""
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as problem:
        raise HoustonError(
            f"huggingface_hub cannot be imported: {problem}.",
            "The hub was not asked.",
            "pip install 'houston-agents[local]'",
            ExitCode.CONFIGURATION,
        ) from problem
    if not sys.stderr.isatty():
        importlib.import_module("huggingface_hub.utils").disable_progress_bars()
    return hub


def endpoint() -> str:
    """The address of the hub that is asked."""
    return str(importlib.import_module("huggingface_hub.constants").ENDPOINT)


def require_hub_id(text: str, effect: str) -> HubId:
    """The id that a command was given. Raises ConfigurationError for other text."""
    id = parse_hub_id(text)
    if id is None:
        raise ConfigurationError(
            f"{text!r} is not a hub id.", effect, "Write org/name, or org/name@revision"
        )
    return id


def require_repository(text: str, effect: str) -> str:
    """`org/name` to push to. Raises ConfigurationError for other text, or an id with a revision."""
    id = require_hub_id(text, effect)
    if text != id.repo:
        raise ConfigurationError(
            f"{text!r} has a revision; what is pushed becomes the newest commit.",
            effect,
            f"Name {id.repo}",
        )
    return id.repo


def list_repository(id: HubId, kind: RepositoryKind, effect: str) -> HubListing:
    """The files there now. effect: for the error, what did not happen. Raises HoustonError."""
    hub = hub_library()
    with hub_errors(str(id), kind, effect):
        info = hub.HfApi().repo_info(
            id.repo, repo_type=kind, revision=id.revision, files_metadata=True
        )
    files = {
        file.rfilename: HubFile(
            file.rfilename,
            int(file.size or 0),
            str(file.lfs.sha256) if file.lfs else "",
            str(file.blob_id or ""),
        )
        for file in info.siblings or ()
    }
    return HubListing(str(info.sha), files, bool(info.private))


def push_commit(
    repo: str,
    kind: RepositoryKind,
    files: Mapping[str, Path | bytes],
    message: str,
    *,
    private: bool,
    replaces: Collection[str] = (),
) -> str:
    """Make the repository if it does not exist, and commit the files; returns `org/name@COMMIT`.

    Afterwards the hub's checksums are compared with the files'. private: whether the repository
    must be private; if False, an existing one keeps its visibility. replaces: patterns of files of
    an earlier push that would be read with these; they are deleted. Raises HoustonError.
    """
    effect = "Nothing was pushed; the local files are unchanged."
    hub = hub_library()
    api = hub.HfApi()
    with hub_errors(repo, kind, effect, writes=True):
        api.create_repo(repo, repo_type=kind, private=private, exist_ok=True)
    listing = list_repository(HubId(repo), kind, effect)
    if private and not listing.private:
        raise HoustonError(
            f"{repo} already exists and is public.", effect, "Name another, or leave out --private"
        )
    stale = [
        name
        for name in listing.files
        if name not in files and any(fnmatchcase(name, pattern) for pattern in replaces)
    ]
    with hub_errors(repo, kind, effect, writes=True):
        operations = [
            hub.CommitOperationAdd(
                path_in_repo=name,
                path_or_fileobj=content if isinstance(content, bytes) else str(content),
            )
            for name, content in files.items()
        ]
        operations += [hub.CommitOperationDelete(path_in_repo=name) for name in stale]
        commit = api.create_commit(repo, operations, commit_message=message, repo_type=kind)
    pushed = HubId(repo, str(commit.oid))
    _verify_pushed(pushed, kind, files)
    return str(pushed)


def _verify_pushed(id: HubId, kind: RepositoryKind, files: Mapping[str, Path | bytes]) -> None:
    listing = list_repository(id, kind, "It was pushed, but could not be checked.")
    wrong = [
        name
        for name, content in files.items()
        if name not in listing.files or not listing.files[name].matches(content)
    ]
    if wrong:
        raise HoustonError(
            f"The files on the hub at {id} are not those pushed: {', '.join(sorted(wrong))}.",
            "Do not use that commit.",
            "Push it again",
        )


@contextlib.contextmanager
def hub_errors(
    what: str, kind: RepositoryKind, effect: str, *, writes: bool = False
) -> Iterator[None]:
    """Turn exceptions of the hub's library into one HoustonError.

    what: the repository's name. effect: what did not happen. writes: whether the call was to change
    the hub.
    """
    errors: Any = importlib.import_module("huggingface_hub.errors")
    try:
        yield
    except HoustonError:
        raise
    except errors.HfHubHTTPError as problem:
        raise _refusal(problem, errors, what, kind, effect, writes) from problem
    except errors.OfflineModeIsEnabled as problem:
        raise HubUnreachable(
            f"HF_HUB_OFFLINE is set, and the hub would have to be asked for {what}.",
            effect,
            "unset HF_HUB_OFFLINE; or name a folder that holds it",
            ExitCode.CONFIGURATION,
        ) from problem
    except errors.LocalTokenNotFoundError as problem:
        raise HoustonError("There is no token for the hub.", effect, LOG_IN) from problem
    except (errors.HTTPError, ConnectionError, TimeoutError) as problem:
        raise HubUnreachable(
            f"The hub at {endpoint()} does not answer: {_first_line(problem)}.",
            effect,
            "Check the network and HF_ENDPOINT, then run the command again",
        ) from problem
    except (OSError, ValueError) as problem:
        raise HoustonError(f"{what}: {_first_line(problem)}.", effect) from problem


def _refusal(
    problem: Any, errors: Any, what: str, kind: RepositoryKind, effect: str, writes: bool
) -> HoustonError:
    """The sentence for an answer that is an error."""
    status = int(problem.response.status_code)
    repo, _, revision = what.partition("@")
    page = f"{endpoint()}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    if isinstance(problem, errors.GatedRepoError):
        next = f"Ask for access at {page}, then {LOG_IN}"
        return HoustonError(f"{what} is gated: its owner must grant access.", effect, next)
    if isinstance(problem, errors.RevisionNotFoundError):
        next = f"Name one of {page}/commits"
        return HoustonError(f"{repo} has no revision {revision!r} on the hub.", effect, next)
    if status == 429:
        wait = problem.response.headers.get("Retry-After", "")
        when = f"in {wait} s" if wait.isdigit() else "in a few minutes"
        cause = f"The hub at {endpoint()} accepts no more requests from here for now (429)."
        next = f"Try again {when}; with a token it accepts more: {LOG_IN}"
        return Busy(cause, effect, next)
    if status == 401 and (writes or _has_token()):
        reason = "rejects the token" if _has_token() else "requires a token"
        return HoustonError(f"The hub at {endpoint()} {reason} (401).", effect, LOG_IN)
    if status in (401, 404):
        cause = f"The hub at {endpoint()} has no {kind} {repo}, or does not show it to this user."
        return HoustonError(cause, effect, f"Correct the id; if it is private: {LOG_IN}")
    if status == 403:
        may = "write to" if writes else "read"
        cause = f"The token may not {may} {repo} (403{_server_message(problem)})."
        return HoustonError(cause, effect, f"Use a token with that permission: {LOG_IN}")
    return HoustonError(f"The hub answers {status} for {what}{_server_message(problem)}.", effect)


def _has_token() -> bool:
    return bool(hub_library().get_token())


def _server_message(problem: Any) -> str:
    text = str(problem.server_message or "").strip().partition("\n")[0]
    return f": {text.rstrip('.')}" if text else ""


def _first_line(problem: BaseException) -> str:
    text = str(problem).strip().partition("\n")[0].rstrip(".")
    return text or type(problem).__name__


def public_value(value: Any) -> Any:
    """A value of a record in a form for others: folders of this machine by their last name, or by
    their id on the hub; addresses of servers are left out."""
    match value:
        case str():
            return _public_text(value)
        case dict():
            return {public_value(key): public_value(item) for key, item in value.items()}
        case list() | tuple():
            return [public_value(item) for item in value]
        case _:
            return value


def _public_text(text: str) -> str:
    if text.startswith(("http://", "https://")):
        return "a server"
    kind, colon, place = text.partition(":")
    if colon and place.startswith("/"):  # script:FILE
        return f"{kind}:{_public_text(place)}"
    if not text.startswith("/"):
        return text
    path = Path(text)
    parent = hub_origin(path) or path.parent.name
    if path.name == "tokenizer.json":
        return f"{parent}/{path.name}"
    return hub_origin(path) or path.name


def redact_hub_token() -> None:
    """Make the hub's token a secret of this process, wherever it is stored. Call it before making
    rows that are pushed, and before `secret_redaction.install_secrets`."""
    if token := hub_library().get_token():
        os.environ.setdefault("HF_TOKEN", token)


def require_no_secrets(files: Mapping[str, Path | bytes], effect: str) -> None:
    """Raise HoustonError where a text that is to be pushed holds a secret.

    Ids and weights are no text: who makes rows of ids decodes them to look.
    """
    for name, content in files.items():
        if Path(name).suffix not in (".md", ".json", ".jsonl", ".jinja", ".txt"):
            continue
        with contextlib.closing(
            io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        ) as lines:
            for number, line in enumerate(lines, 1):
                text = line.decode("utf-8", "replace")
                if redact(text) != text:
                    raise HoustonError(
                        f"Line {number} of {name} holds a secret.", effect, "Remove it from there"
                    )
