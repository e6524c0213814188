"""Converts files from outside in a separate process: limited in time and memory, and if the rollout
has a sandbox, inside it without a network.

`document_to_markdown.py` does the conversion; this module starts it and reads its output. It knows
neither the agent nor where Markdown goes.
"""

from pathlib import Path
from typing import Literal

import msgspec

from houston_daemon.environments import local_host_setup
from houston_daemon.hosts.host_protocol import ProcessResult, RolloutHost

Kind = Literal["html", "pdf", "docx", "pptx", "latex"]
SECONDS = 90.0
"""Longest conversion."""
_PROGRAM = Path(__file__).with_name("document_to_markdown.py")
_OUTPUT = 32_000_000
_NEEDS = {"html": "markdownify", "pdf": "pypdfium2"}


class Unreadable(Exception):
    """A file that could not be converted; the text is for the agent."""


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """A file as Markdown."""

    title: str
    text: str
    links: tuple[tuple[str, str], ...]
    """Text and address of each link; the text holds `[number]` behind the words."""
    notes: tuple[str, ...]
    """What a reader must know: pages without text, what was left out."""


class _Refused(msgspec.Struct, frozen=True):
    error: str


class Converter:
    """Converts files for one rollout."""

    def __init__(self, host: RolloutHost) -> None:
        self._host = host

    async def convert(
        self,
        kind: Kind,
        file: str,
        *,
        base: str = "",
        folder: Path | None = None,
        cwd: str = "",
        seconds: float = SECONDS,
    ) -> Converted:
        """`file`, a path as the sandbox shows it, as Markdown. Raises Unreadable.

        base: address that relative links of a page start from.
        folder: where the file lies when that is outside the workspace; shown to the child.
        cwd: as the sandbox shows it, for files that include others.
        """
        needed = _NEEDS.get(kind, "pypandoc")
        if local_host_setup.missing_packages([needed]):
            raise Unreadable(
                f"{kind.upper()} files need packages that this node lacks; the operator can "
                "install them: pip install 'houston-agents[envs]'."
            )
        command = [local_host_setup.PYTHON, "-I", str(_PROGRAM), kind, file, base]
        command += [f"--packages={path}" for path in local_host_setup.PACKAGES]
        if self._host.inside == str(self._host.workspace):
            command.append("--closed")
        result = await self._host.spawn(
            command,
            seconds=seconds,
            writable=False,
            extra_read=[
                *local_host_setup.interpreter_paths(_PROGRAM, *local_host_setup.PACKAGES),
                *([folder] if folder else []),
            ],
            output_limit=_OUTPUT,
            cwd=cwd,
            network=False,
        )
        return _read(result, kind, seconds)


def _read(result: ProcessResult, kind: str, seconds: float) -> Converted:
    if result.exit_code is None:
        raise Unreadable(f"The file could not be converted within {seconds:g} s.")
    if result.exit_code or result.cut:
        raise Unreadable(f"The {kind.upper()} converter failed on this file; it may be damaged.")
    try:
        converted = msgspec.json.decode(result.stdout, type=Converted)
    except msgspec.ValidationError:
        raise Unreadable(msgspec.json.decode(result.stdout, type=_Refused).error) from None
    return converted
