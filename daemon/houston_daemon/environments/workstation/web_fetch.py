"""Fetches one address within limits of time, size and redirects, and decodes what it gave."""

import asyncio
import codecs
import re
import ssl
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import httpcore
import httpx

from houston_daemon.environments.workstation.checked_network import AddressRefused, CheckedTransport
from houston_shared.backoff import parse_retry_after
from houston_shared.config_sections import WebBrowseSettings

_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.I)
_DECLARED = re.compile(rb"^<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_:.-]{1,40})", re.I)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WEB = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030",
        "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}  # fmt: skip
"""What browsers read these names as (WHATWG Encoding, §4.2)."""
_NO_TEXT = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined",
                      "utf-7", "mbcs", "oem"})  # fmt: skip
"""Of Python's codecs, by its own names: those that no page is written in."""


class DamagedContent(Exception):
    """A body that cannot be unpacked; the text is for the agent."""


class Unpacker:
    """Unpacks a body piece by piece; `coding` is the answer's Content-Encoding."""

    def __init__(self, coding: str, limit: int) -> None:
        self._limit = limit
        names = re.split(r"[,\s]+", coding.lower())
        self._kinds = [name for name in names if name not in ("", "identity")]
        if self._kinds not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise DamagedContent(
                f"Its content is packed as {coding[:40]!r}, which was not asked for."
            )
        self._stream: zlib._Decompress | None = None
        self._damaged = False
        self.data = bytearray()
        """What is unpacked so far, never longer than the limit."""

    @property
    def full(self) -> bool:
        """Whether no more is taken: the packed content has ended, or `cut` says why."""
        return self.ended or bool(self.cut)

    @property
    def cut(self) -> Literal["", "size", "damaged"]:
        """Why no more is taken, although the content has not ended."""
        if self.ended:
            return ""
        return "damaged" if self._damaged else "size" if len(self.data) >= self._limit else ""

    @property
    def ended(self) -> bool:
        """Whether the packed content has said that it is over, whatever else comes."""
        return self._stream is not None and self._stream.eof

    def take(self, piece: bytes) -> None:
        """Unpack one more piece. Raises DamagedContent when nothing of it can be unpacked."""
        room = self._limit - len(self.data)
        if self.full:  # zlib would keep whatever comes after the end
            return
        if not self._kinds:
            self.data += piece[:room]
            return
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window(piece))
        try:
            self.data += self._stream.decompress(piece, room)
        except zlib.error:
            if not self.data:
                raise DamagedContent("Its packed content is damaged.") from None
            self._damaged = True

    def _window(self, piece: bytes) -> int:
        if self._kinds != ["deflate"]:
            return 16 + zlib.MAX_WBITS
        # Some servers send the bare stream instead of the zlib format (RFC 9110, §8.4.1.2).
        return zlib.MAX_WBITS if piece[:1] == b"\x78" else -zlib.MAX_WBITS


def decoded_text(data: bytes, declared: str = "") -> tuple[str, bool]:
    """The text of a page's bytes, and whether every byte had a meaning.

    declared: the charset of its Content-Type. The order is byte order mark, header, `<meta>` or
    XML declaration, UTF-8; one that does not fit gives way to the next, the last to Windows-1252.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace"), True
    declaration = _META.search(data[:4_096]) or _DECLARED.search(data[:300])
    inside = declaration.group(1).decode("ascii") if declaration else ""
    candidates = [name for name in map(_codec_name, (declared, inside, "utf-8")) if name]
    if candidates[0].startswith("cp125"):  # what is sound UTF-8 is hardly ever anything else
        candidates.insert(0, "utf-8")
    for name in candidates:
        try:
            # Strictly, but a page that was cut may end inside a character.
            return codecs.getincrementaldecoder(name)("strict").decode(data), True
        except UnicodeError:
            continue
    return data.decode("utf-8" if _mostly_utf8(data) else "cp1252", "replace"), False


def _codec_name(label: str) -> str:
    """The codec that a label means; empty for what is none of text."""
    try:
        name = codecs.lookup(label.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return ""
    return "" if name in _NO_TEXT or not _is_text(name) else _WEB.get(name, name)


def _is_text(name: str) -> bool:
    try:  # of nothing at all every codec makes text, also rot13
        return isinstance(b"a".decode(name), str)
    except UnicodeError:
        return True
    except (LookupError, AssertionError):
        return False


def _mostly_utf8(data: bytes) -> bool:
    sample = data[:100_000].decode("utf-8", "replace")
    return sample.count("\ufffd") * 100 < len(sample)


MAX_REDIRECTS = 10
_TRIES = 2
_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_AGAIN = frozenset({429, 502, 503, 504})
_MB = 1 << 20
_AGENT = "Mozilla/5.0 (compatible; Houston; research agent)"
_ACCEPT = "text/html,application/xhtml+xml,application/pdf;q=0.9,text/*;q=0.9,*/*;q=0.5"


class FetchFailed(Exception):
    """An address that gave no page; the text is for the agent."""


class _RetryLater(Exception):
    """Worth another try, after `pause` seconds; the text says what went wrong."""

    def __init__(self, reason: str, pause: float = _PAUSE) -> None:
        super().__init__(reason)
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
    cut: Literal["", "size", "damaged", "time"]
    """Which limit ended the reading, or that its packing did."""
    at: float
    """Unix time."""


class Fetcher:
    """Fetches pages for one rollout."""

    def __init__(
        self,
        settings: WebBrowseSettings,
        *,
        private: bool,
        proxy: str = "",
        hosts: Sequence[str] = ("*",),
    ) -> None:
        self._settings = settings
        self._hosts = hosts
        self._private = private
        self._proxy = proxy
        self._context: ssl.SSLContext | None = None

    async def get(self, address: str) -> Fetched:
        """The content of `address` (see `normal`). Raises FetchFailed."""
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
            return await self._fetch_with_retries(client, address, deadline)

    def _headers(self) -> dict[str, str]:
        return {
            "User-Agent": self._settings.user_agent or _AGENT,
            "Accept": _ACCEPT,
            "Accept-Language": "en,*;q=0.5",
            "Accept-Encoding": "gzip, deflate",
        }

    async def _fetch_with_retries(
        self, client: httpx.AsyncClient, address: str, deadline: float
    ) -> Fetched:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._follow_redirects(client, address, deadline)
            except _RetryLater as problem:
                if attempt == _TRIES or time.monotonic() + problem.pause > deadline:
                    raise FetchFailed(str(problem)) from None
                await asyncio.sleep(problem.pause)
        raise AssertionError("the last try returns or raises")

    async def _follow_redirects(
        self, client: httpx.AsyncClient, address: str, deadline: float
    ) -> Fetched:
        request = client.build_request("GET", address)
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(client, request, deadline)
            try:
                if response.next_request is None:
                    return await self._read(response, deadline)
                request = response.next_request
            finally:
                await response.aclose()
            if request.url.scheme not in ("http", "https"):
                raise FetchFailed(
                    f"It redirects to a {request.url.scheme}: address, which is not fetched."
                )
        raise FetchFailed(
            f"It redirects more than {MAX_REDIRECTS} times, at last to {str(request.url)[:200]}."
        )

    async def _send(
        self, client: httpx.AsyncClient, request: httpx.Request, deadline: float
    ) -> httpx.Response:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await client.send(request, stream=True)
        except (TimeoutError, httpcore.TimeoutException):
            seconds = f"{self._settings.seconds:g}"
            raise FetchFailed(f"{request.url.host} did not answer within {seconds} s.") from None
        except AddressRefused as problem:
            raise FetchFailed(str(problem)) from None
        except httpcore.NetworkError as problem:
            if isinstance(problem.__cause__, ssl.SSLError) or "SSL" in str(problem):
                raise FetchFailed(
                    f"{request.url.host} gives no secure connection: {problem}."
                ) from None
            reason = str(problem).rstrip(".") or "the connection failed"
            raise _RetryLater(f"{request.url.host} cannot be reached: {reason}.") from None
        except (httpcore.ProtocolError, httpcore.ProxyError, httpx.HTTPError) as problem:
            raise _RetryLater(f"{request.url.host} does not speak HTTP: {problem}") from None
        except (httpx.InvalidURL, ValueError):
            raise FetchFailed("It redirects to something that is no address.") from None

    async def _read(self, response: httpx.Response, deadline: float) -> Fetched:
        _check_status(response)
        limit = int(self._settings.megabytes * _MB)
        cut: Literal["", "size", "damaged", "time"] = ""
        try:
            body = Unpacker(response.headers.get("content-encoding", ""), limit)
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                async for piece in response.aiter_raw():
                    body.take(piece)
                    if body.full:
                        cut = body.cut
                        break
        except DamagedContent as problem:
            raise FetchFailed(str(problem)) from None
        except (TimeoutError, httpcore.TimeoutException):
            cut = "time"
        except (httpcore.NetworkError, httpcore.ProtocolError) as problem:
            raise _RetryLater(f"{response.url.host} broke off: {problem}") from None
        if cut == "time" and not body.data:
            seconds = f"{self._settings.seconds:g}"
            raise FetchFailed(f"{response.url.host} sent nothing within {seconds} s.")
        media, _, parameters = response.headers.get("content-type", "").partition(";")
        return Fetched(
            url=str(response.url.copy_with(fragment=None)),
            media=media.strip().lower(),
            charset=_charset(parameters),
            body=bytes(body.data),
            cut=cut,
            at=time.time(),
        )


def normal_url(address: str) -> str:
    """An address as it is fetched: with a scheme, without a fragment. Raises FetchFailed."""
    address = address.strip()
    head, colon, rest = address.partition(":")
    if "://" not in address:
        if colon and head.isidentifier() and not rest[:1].isdigit():
            raise FetchFailed(f"{head}: addresses are not fetched, only http and https.")
        address = f"https://{address}"
    try:
        url = httpx.URL(address).copy_with(fragment=None)
        host = url.host  # read out here: httpx reads no name that IDNA forbids, and raises
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise FetchFailed(f"{address[:200]!r} is no address of a page.") from None
    if url.scheme not in ("http", "https"):
        raise FetchFailed(f"{url.scheme}: addresses are not fetched, only http and https.")
    if not host:
        raise FetchFailed(f"{address[:200]!r} names no host.")
    return str(url)


def _check_status(response: httpx.Response) -> None:
    code = response.status_code
    if code < 400 and not (300 <= code < 400):
        return
    sentence = f"{response.url.host} answered {code} {response.reason_phrase}".rstrip() + "."
    if code in _AGAIN:
        retry_after = response.headers.get("retry-after", "")
        asked_pause = parse_retry_after(retry_after)
        pause = _PAUSE if asked_pause is None else asked_pause
        raise (
            _RetryLater(sentence, pause)
            if pause <= _LONGEST_PAUSE
            else FetchFailed(f"{sentence} It asks to wait {retry_after} s.")
        )
    raise FetchFailed(sentence)


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""
