"""Requests to a simulator: bounded in time and size, sent again only where that is safe.

The simulator is a user's program: every member of its answers may be missing.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import httpx
import msgspec

from houston_daemon.environments.observation_boundary import one_line
from houston_shared.backoff import Backoff

_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number that the journal can hold."""


class Tool(msgspec.Struct, frozen=True):
    """A tool as the simulator describes it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON schema of the arguments object."""


class Reset(msgspec.Struct, frozen=True):
    """The answer to `/reset`."""

    text: str = ""
    """What the agent sees first."""
    tools: tuple[Tool, ...] = ()
    """Empty for one tool `act` with a text."""
    steps: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Actions that the simulator has done in this session already."""
    repeatable: bool = False
    """A step that is sent again under the same key is answered again and not done again."""
    replayable: bool = False
    """The same seed and the same actions always lead to the same state."""


class Step(msgspec.Struct, frozen=True):
    """The answer to `/step`."""

    text: str
    success: bool = True
    done: bool = False
    fields: dict[str, bool | _Whole | float | str] = {}
    """Anything that rules and exports may read."""


class Score(msgspec.Struct, frozen=True):
    """The answer to `/score`."""

    overall_score: Annotated[float, msgspec.Meta(ge=0, le=100)]


class Problem(msgspec.Struct, frozen=True):
    """The body of an answer with a status from 400 on."""

    error: str = ""


A = TypeVar("A", bound=msgspec.Struct)
_MOST = 8_000_000
"""Bytes of an answer."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
_LOST = (404, 410)


class SimulatorFailed(Exception):
    """No useful answer; the text is for the agent."""

    def __init__(
        self, words: str, *, done: bool | None = False, lost: bool = False, final: bool = True
    ) -> None:
        """done: whether the request had its effect, None where nobody knows.

        lost: the simulator does not know the session (any more).
        final: the same request would be answered alike.
        """
        super().__init__(words)
        self.done = done
        self.lost = lost
        self.final = final


class SimulatorClient:
    """Speaks to one simulator."""

    def __init__(self, url: str, seconds: float, patience: float, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Timeout(seconds, connect=min(seconds, 10.0))
        self._client = httpx.AsyncClient(headers=headers, timeout=limits, trust_env=False)
        self._url = url.rstrip("/")
        self._seconds = seconds
        self._patience = patience

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        kind: type[A],
        *,
        idempotent: bool,
        retry: bool = True,
    ) -> A:
        """The answer to one POST. Raises SimulatorFailed; safe to cancel.

        idempotent: whether it may be sent again although it may have had its effect. What never
        reached the simulator is sent again in any case, while patience lasts.
        """
        start_time, backoff = time.monotonic(), Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        while True:
            try:
                return await self._send_once(path, body, kind)
            except SimulatorFailed as problem:
                now = time.monotonic()
                wait = backoff.fail(now)
                over = now - start_time + wait > (self._patience if retry else 0.0)
                if over or problem.final or (problem.done is None and not idempotent):
                    raise
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

    async def _send_once(self, path: str, body: Mapping[str, Any], kind: type[A]) -> A:
        try:
            async with asyncio.timeout(self._seconds):
                status, data = await self._post(path, body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol):
            raise SimulatorFailed("The simulator cannot be reached.", final=False) from None
        except (TimeoutError, httpx.TimeoutException):
            words = f"The simulator did not answer within {self._seconds:g} s."
            raise SimulatorFailed(words, done=None, final=False) from None
        except httpx.HTTPError as problem:
            words = f"The connection to the simulator broke ({type(problem).__name__})."
            raise SimulatorFailed(words, done=None, final=False) from None
        except (httpx.InvalidURL, UnicodeError):  # httpx reads a Location, whoever follows it
            raise SimulatorFailed("The simulator redirects to what is no address.") from None
        return _read(status, data, kind)

    async def _post(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        content = msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        async with self._client.stream(
            "POST", f"{self._url}/{path}", content=content, headers=headers
        ) as answer:
            data = bytearray()
            async for chunk in answer.aiter_bytes():
                data += chunk
                if len(data) > _MOST:
                    words = f"The simulator's answer is longer than {_MOST >> 20} MB."
                    raise SimulatorFailed(words, done=True)
            return answer.status_code, bytes(data)


def _read(status: int, data: bytes, kind: type[A]) -> A:
    if not 200 <= status < 300:  # a redirect too: nothing was done
        refused, reason = status < 500, _problem_text(data)
        words = f"The simulator {'refused' if refused else 'failed'} ({status})"
        raise SimulatorFailed(
            f"{words}{f': {reason}' if reason else '.'}",
            done=False if refused else None,
            lost=status in _LOST,
            final=refused,
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        words = f"The simulator's answer is not what it should be: {one_line(str(problem), 200)}."
        raise SimulatorFailed(words, done=True) from None


def _problem_text(data: bytes) -> str:
    try:
        return one_line(msgspec.json.decode(data, type=Problem).error, 500)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
