"""Fetches one address: http and https, within limits of time, size and redirects.

Every connection, so every redirect too, goes through `network.CheckedTransport`. No proxy of the
environment is heeded. Knows nothing of how a page is read.
"""

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import httpcore
import httpx

from houston_daemon.environments.workstation.browse.decoding import Damaged, Unpacker
from houston_daemon.environments.workstation.browse.network import (
    AddressRefused,
    CheckedTransport,
)
from houston_shared.config_tools import BrowseTool

MOST_REDIRECTS = 10
_TRIES = 2
_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_AGAIN = frozenset({429, 502, 503, 504})
_MB = 1 << 20
_AGENT = "Mozilla/5.0 (compatible; Houston; research agent)"
_ACCEPT = "text/html,application/xhtml+xml,application/pdf;q=0.9,text/*;q=0.9,*/*;q=0.5"


class Unfetched(Exception):
    """An address that gave no page; the text is for the agent."""


class _Again(Exception):
    """Worth another try, after `pause` seconds; the text says what went wrong."""

    def __init__(self, why: str, pause: float = _PAUSE) -> None:
        super().__init__(why)
        self.pause = pause


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an address gave."""

    url: str
    """Where it was found in the end."""
    media: str
    """Media type in lower case, without parameters; empty when the server named none."""
    charset: str
    body: bytes
    """Unpacked."""
    cut: Literal["", "size", "time"]
    """Which limit ended the reading."""
    at: float
    """Unix time."""


class Fetcher:
    """Fetches pages for one rollout."""

    def __init__(
        self, settings: BrowseTool, *, private: bool, proxy: str = "", hosts: Sequence[str] = ("*",)
    ) -> None:
        self._settings = settings
        self._hosts = hosts
        self._private = private
        self._proxy = proxy
        self._context: ssl.SSLContext | None = None

    async def get(self, address: str) -> Fetched:
        """The content of `address` (see `normal`). Raises Unfetched."""
        if self._context is None:
            self._context = await asyncio.to_thread(httpx.create_ssl_context)
        deadline = time.monotonic() + self._settings.seconds
        transport = CheckedTransport(self._private, self._context, self._proxy, self._hosts)
        async with httpx.AsyncClient(
            transport=transport,
            trust_env=False,
            timeout=self._settings.seconds,
            headers=self._headers(),
        ) as client:
            return await self._tries(client, address, deadline)

    def _headers(self) -> dict[str, str]:
        return {
            "User-Agent": self._settings.user_agent or _AGENT,
            "Accept": _ACCEPT,
            "Accept-Language": "en,*;q=0.5",
            "Accept-Encoding": "gzip, deflate",
        }

    async def _tries(self, client: httpx.AsyncClient, address: str, deadline: float) -> Fetched:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._followed(client, address, deadline)
            except _Again as problem:
                if attempt == _TRIES or time.monotonic() + problem.pause > deadline:
                    raise Unfetched(str(problem)) from None
                await asyncio.sleep(problem.pause)
        raise AssertionError("the last try returns or raises")

    async def _followed(self, client: httpx.AsyncClient, address: str, deadline: float) -> Fetched:
        request = client.build_request("GET", address)
        for _ in range(MOST_REDIRECTS + 1):
            response = await self._sent(client, request, deadline)
            try:
                if response.next_request is None:
                    return await self._read(response, deadline)
                request = response.next_request
            finally:
                await response.aclose()
            if request.url.scheme not in ("http", "https"):
                raise Unfetched(
                    f"It redirects to a {request.url.scheme}: address, which is not fetched."
                )
        raise Unfetched(
            f"It redirects more than {MOST_REDIRECTS} times, at last to {_short(request.url)}."
        )

    async def _sent(
        self, client: httpx.AsyncClient, request: httpx.Request, deadline: float
    ) -> httpx.Response:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await client.send(request, stream=True)
        except (TimeoutError, httpcore.TimeoutException):
            seconds = f"{self._settings.seconds:g}"
            raise Unfetched(f"{request.url.host} did not answer within {seconds} s.") from None
        except AddressRefused as problem:
            raise Unfetched(str(problem)) from None
        except httpcore.NetworkError as problem:
            if isinstance(problem.__cause__, ssl.SSLError) or "SSL" in str(problem):
                raise Unfetched(
                    f"{request.url.host} gives no secure connection: {problem}."
                ) from None
            why = str(problem).rstrip(".") or "the connection failed"
            raise _Again(f"{request.url.host} cannot be reached: {why}.") from None
        except (httpcore.ProtocolError, httpcore.ProxyError, httpx.HTTPError) as problem:
            raise _Again(f"{request.url.host} does not speak HTTP: {problem}") from None
        except (httpx.InvalidURL, ValueError):
            raise Unfetched("It redirects to something that is no address.") from None

    async def _read(self, response: httpx.Response, deadline: float) -> Fetched:
        _check_status(response)
        limit = int(self._settings.megabytes * _MB)
        cut: Literal["", "size", "time"] = ""
        try:
            body = Unpacker(response.headers.get("content-encoding", ""), limit)
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                async for piece in response.aiter_raw():
                    body.take(piece)
                    if body.full:
                        cut = "" if body.ended else "size"
                        break
        except Damaged as problem:
            raise Unfetched(str(problem)) from None
        except (TimeoutError, httpcore.TimeoutException):
            cut = "time"
        except (httpcore.NetworkError, httpcore.ProtocolError) as problem:
            raise _Again(f"{response.url.host} broke off: {problem}") from None
        if cut == "time" and not body.data:
            seconds = f"{self._settings.seconds:g}"
            raise Unfetched(f"{response.url.host} sent nothing within {seconds} s.")
        media, _, parameters = response.headers.get("content-type", "").partition(";")
        return Fetched(
            url=str(response.url.copy_with(fragment=None)),
            media=media.strip().lower(),
            charset=_charset(parameters),
            body=bytes(body.data),
            cut=cut,
            at=time.time(),
        )


def normal(address: str) -> str:
    """An address as it is fetched: with a scheme, without a fragment. Raises Unfetched."""
    address = address.strip()
    head, colon, rest = address.partition(":")
    if "://" not in address:
        if colon and head.isidentifier() and not rest[:1].isdigit():
            raise Unfetched(f"{head}: addresses are not fetched, only http and https.")
        address = f"https://{address}"
    try:
        url = httpx.URL(address).copy_with(fragment=None)
        host = url.host  # read out here: httpx reads no name that IDNA forbids, and raises
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise Unfetched(f"{address[:200]!r} is no address of a page.") from None
    if url.scheme not in ("http", "https"):
        raise Unfetched(f"{url.scheme}: addresses are not fetched, only http and https.")
    if not host:
        raise Unfetched(f"{address[:200]!r} names no host.")
    return str(url)


def _check_status(response: httpx.Response) -> None:
    code = response.status_code
    if code < 400 and not (300 <= code < 400):
        return
    said = f"{response.url.host} answered {code} {response.reason_phrase}".rstrip() + "."
    if code in _AGAIN:
        asked = response.headers.get("retry-after", "")
        pause = float(asked) if asked.isdecimal() else _PAUSE
        raise (
            _Again(said, pause)
            if pause <= _LONGEST_PAUSE
            else Unfetched(f"{said} It asks to wait {asked} s.")
        )
    raise Unfetched(said)


def _charset(parameters: str) -> str:
    for one in parameters.split(";"):
        name, _, value = one.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""


def _short(url: httpx.URL) -> str:
    return str(url)[:200]
