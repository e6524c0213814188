"""Connections to exactly the address that was checked, and which addresses are allowed."""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from fnmatch import fnmatchcase

import httpcore
import httpx

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_METADATA = {
    ipaddress.ip_address("168.63.129.16"),  # Azure; the others lie in networks that are private
}
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # IETF assignments, among them a metadata service
            "::/96",  # IPv4-compatible
            "::ffff:0:0/96",  # IPv4-mapped
            "::ffff:0:0:0/96",  # IPv4-translated
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/48",  # NAT64 of a network's own
            "2001::/32",  # Teredo
            "2002::/16",  # 6to4
            "fec0::/10",  # site-local
        ),
    )
)


def refusal_of_address(address: str) -> bool:
    """Whether a numeric address may not be reached; also for what is no address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return True
    if not parsed.is_global or parsed.is_multicast or parsed in _METADATA:
        return True
    return any(parsed in network for network in _NEVER if network.version == parsed.version)


def is_noncanonical_ipv4(host: str) -> bool:
    """Whether a host is an IPv4 address in another form than four decimal numbers.

    Such as 2130706433, 0x7f.1 or 0177.0.0.1: resolvers take them (inet_aton), readers do not see
    them for what they are.
    """
    last = host.rstrip(".").rsplit(".", 1)[-1]
    if not _NUMBER.fullmatch(last):
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


_EACH = 10.0
"""Most seconds for one of several addresses."""


class AddressRefused(Exception):
    """A host that may not be reached; the text is for the agent."""


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Opens connections for a pool, each to a checked address."""

    def __init__(self, private: bool) -> None:
        self._private = private
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers.

        Raises AddressRefused, and httpcore's errors.
        """
        addresses = await checked(host, port, self._private)
        share = _EACH if timeout is None or len(addresses) > 1 else timeout
        for number, address in enumerate(addresses, 1):
            try:
                return await self._network.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise httpcore.ConnectError("the name has no address")

    async def sleep(self, seconds: float) -> None:
        """As the pool asks between its tries."""
        await asyncio.sleep(seconds)


async def checked(host: str, port: int, private: bool) -> list[str]:
    """The numeric addresses of `host` that may be reached, in the resolver's order.

    private: whether the task allows every address. Raises AddressRefused where none is left and
    httpcore.ConnectError where the name is not known.
    """
    if not private and is_noncanonical_ipv4(host):
        raise AddressRefused(f"{host} is an address in disguise and is not fetched.")
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", "") or "it is no name"
        raise httpcore.ConnectError(f"its name is not known ({reason})") from None
    addresses = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    if private:
        return addresses
    allowed = [address for address in addresses if not refusal_of_address(address)]
    if not allowed:
        raise AddressRefused(
            f"{host} leads to a private or local address, which this task does not allow."
        )
    return allowed


class CheckedTransport(httpx.AsyncBaseTransport):
    """What an httpx client sends through: a pool of checked connections, or a proxy.

    A proxy resolves names itself, so its operator decides what it reaches; here only what can be
    seen from the name is refused.
    """

    def __init__(
        self, private: bool, context: ssl.SSLContext, proxy: str = "", hosts: Sequence[str] = ("*",)
    ) -> None:
        """hosts: patterns of the hosts that the task allows."""
        self._private = private
        self._hosts = hosts
        self._proxied = bool(proxy)
        network = None if proxy else CheckedNetwork(private)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context, network_backend=network, proxy=_proxy(proxy) if proxy else None
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request. Raises AddressRefused and httpcore's errors."""
        url = request.url
        host = url.raw_host.decode("ascii").lower().rstrip(".")
        if not any(fnmatchcase(host, pattern.lower()) for pattern in self._hosts):
            raise AddressRefused(_not_allowed(host, self._hosts))
        if self._proxied:
            await self._check_proxied(host, url.port or 80)
        assert isinstance(request.stream, httpx.AsyncByteStream)
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        assert isinstance(answer.stream, AsyncIterable)
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    async def _check_proxied(self, host: str, port: int) -> None:
        try:
            await checked(host, port, self._private)
        except httpcore.ConnectError:
            return  # a name that only the proxy knows


def _not_allowed(host: str, hosts: Sequence[str]) -> str:
    if not hosts:
        return "This task has no web: no page is fetched, of whatever host."
    return f"This task allows no pages of {host}; its hosts: {', '.join(hosts)}."


class _Body(httpx.AsyncByteStream):
    def __init__(self, parts: AsyncIterable[bytes]) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part

    async def aclose(self) -> None:
        close = getattr(self._parts, "aclose", None)
        if close is not None:
            await close()


def _proxy(address: str) -> httpcore.Proxy:
    url = httpx.URL(address)
    auth = (url.username, url.password) if url.username else None
    plain = url.copy_with(username=None, password=None)
    return httpcore.Proxy(str(plain), auth=auth)
