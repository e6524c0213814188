"""Fetches one wheel, whose name and hash are known, from the package indexes of this user.

Environments that uv makes have no pip, so pip's settings are read here: `index-url`,
`extra-index-url`, `find-links`, `no-index`, `cert` and `proxy` of PIP_* variables and of pip's
configuration files, then those that uv has for indexes. Without any it is PyPI. Because the hash
is known, it does not matter which index gives the file. Versions, tags and dependencies are pip's
business and not done here.
"""

import configparser
import hashlib
import json
import os
import re
import ssl
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx
from platformdirs import site_config_path, user_config_path

from houston_shared.errors import HoustonError

PYPI = "https://pypi.org/simple"
_ACCEPTED = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_SECONDS = 30.0
_OFF = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file of a package index."""

    project: str
    """As in an index's address: lower case, with hyphens."""
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where to look, and how to get there."""

    indexes: tuple[str, ...]
    """Addresses of simple indexes, the first choice first."""
    links: tuple[str, ...]
    """Folders and pages that name files themselves (`find-links`)."""
    cert: str = ""
    proxy: str = ""


def fetch(wheel: Wheel, folder: Path, source: Source | None = None) -> Path:
    """Download `wheel` into `folder`, check its hash, and return its path.

    source: by default what this user has configured. Raises HoustonError that names what each
    place said; nothing stays then.
    """
    source = source or configured()
    target, said = folder / wheel.name, []
    trust = ssl.create_default_context(cafile=source.cert) if source.cert else True
    pages = [*source.links, *(f"{index.rstrip('/')}/{wheel.project}/" for index in source.indexes)]
    with httpx.Client(
        verify=trust, proxy=source.proxy or None, timeout=_SECONDS, follow_redirects=True
    ) as client:
        for page in pages:
            try:
                found = _address(client, page, wheel.name)
                _download(client, found, target)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, LookupError, ValueError) as problem:
                said.append(f"{_shown(page)}: {_reason(problem)}")
                continue
            if wrong := _wrong(target, wheel.sha256):
                said.append(f"{_shown(found)}: {wrong}")
                target.unlink()
                continue
            return target
    raise HoustonError(
        f"{wheel.name} could not be fetched: {'; '.join(said) or 'no index is allowed'}.",
        "It was not used.",
        "Check the network and the package index (PIP_INDEX_URL), then run the command again.",
    )


def _address(client: httpx.Client, page: str, name: str) -> str:
    """Where a folder or an index's page says that the file is. Raises LookupError and httpx's."""
    if (place := _local(page)) is not None:
        if (place / name).is_file():
            return (place / name).as_uri()
        html = place / "index.html" if place.is_dir() else place
        text, kind, base = html.read_text(encoding="utf-8"), "", html.absolute().as_uri()
    else:
        answer = client.get(page, headers={"Accept": _ACCEPTED}).raise_for_status()
        text, kind, base = answer.text, answer.headers.get("content-type", ""), str(answer.url)
    if "json" in kind:
        links = [str(file["url"]) for file in json.loads(text)["files"]]
    else:
        reader = _Links()
        reader.feed(text)
        links = reader.links
    for link in links:
        address = urljoin(base, link).partition("#")[0]
        if unquote(urlsplit(address).path).endswith(f"/{name}"):
            return address
    raise LookupError("it does not have the file")


def _download(client: httpx.Client, address: str, target: Path) -> None:
    if (place := _local(address)) is not None:
        target.write_bytes(place.read_bytes())
        return
    with client.stream("GET", address) as answer, target.open("wb") as file:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            file.write(part)


def _wrong(file: Path, expected: str) -> str:
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    return "" if found == expected else f"its SHA-256 is {found}, expected {expected}"


def _local(address: str) -> Path | None:
    """The path that an address of this machine names."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme in ("http", "https") else Path(address).expanduser()


def _shown(address: str) -> str:
    """An address without the password that it may hold."""
    return re.sub(r"//[^/@]*@", "//", address)


def _reason(problem: Exception) -> str:
    if isinstance(problem, httpx.HTTPStatusError):
        return f"it answered {problem.response.status_code}"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem).partition("\n")[0] or type(problem).__name__


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where an anchor leads."""
        self.links += [value for key, value in attrs if (tag, key) == ("a", "href") and value]


# --- what is configured ------------------------------------------------------------------------


def configured(environment: Mapping[str, str] = os.environ) -> Source:
    """Where this user's pip and uv look. Raises HoustonError for a file that cannot be read."""
    pip = _pip(environment)
    links = tuple(pip.get("find-links", "").split())
    if pip.get("no-index", "").lower() not in _OFF:
        return Source((), links, pip.get("cert", ""), pip.get("proxy", ""))
    first = pip.get("index-url", "").split()
    also = pip.get("extra-index-url", "").split()
    uv_first, uv_also = _uv(environment)
    indexes = [*(first or uv_first or [PYPI]), *also, *uv_also]
    return Source(tuple(dict.fromkeys(indexes)), links, pip.get("cert", ""), pip.get("proxy", ""))


def _pip(environment: Mapping[str, str]) -> dict[str, str]:
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
    found: dict[str, str] = {}
    for section in ("global", "download"):
        if parser.has_section(section):
            found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    for key, value in environment.items():
        if key.startswith("PIP_") and value:
            found[key.removeprefix("PIP_").lower().replace("_", "-")] = value
    return found


def _uv(environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
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
    return [_url(first)] if first else [], [_url(one) for one in also]


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


def _url(text: str) -> str:
    """An index's address; uv writes `name=address`, too."""
    name, _, address = text.partition("=")
    return address if address and re.fullmatch(r"[\w.-]+", name) else text
