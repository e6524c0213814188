"""The parse actions: documents, pictures, sound and video of the workspace become Markdown.

The text is saved beside the file and shown.
"""

import posixpath
from collections.abc import Awaitable, Callable
from typing import ClassVar

from houston_daemon.environments.call_handling import CallInterrupted, cancel_on_stop
from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.tool_arguments import Arguments
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_daemon.environments.workstation import parse_sources
from houston_daemon.environments.workstation.document_converter import Kind, Unreadable
from houston_daemon.environments.workstation.file_observations import FileWindow
from houston_daemon.environments.workstation.media_endpoint import (
    Endpoint,
    NoEndpointAnswer,
    Picture,
)
from houston_daemon.environments.workstation.parse_sources import LocalDocuments
from houston_daemon.environments.workstation.remote_documents import RemoteDocuments
from houston_daemon.environments.workstation_actions import (
    PARSE_ACTIONS,
    ParseAction,
    ParseAudio,
    ParseDocx,
    ParseImage,
    ParseLatex,
    ParsePdf,
    ParsePptx,
    ParseVideo,
)


class Parsed(Observation, frozen=True, kw_only=True):
    """A file as text, saved in the workspace, with a window of it."""

    kind: ClassVar[str] = "parsed"
    bulk: ClassVar[tuple[str, ...]] = ("content", "notes")
    file_path: str
    save_path: str
    change: str
    """`created` or `replaced`: what became of the file at `save_path`."""
    blind: bool
    """Whether it replaced a file that was not shown since it last changed."""
    first_line: int
    last_line: int
    total_lines: int | None
    size: int
    """Bytes of what was saved."""
    content: str
    notes: tuple[str, ...] = ()
    """What a reader must know of the conversion."""


@render.register
def _(result: Parsed) -> Text:
    span = f"lines {result.first_line}-{result.last_line} of {result.total_lines}"
    more = result.total_lines is None or result.last_line < result.total_lines
    goes_on = "file_scroll_down goes on." if more else ""
    parsed = f"{result.file_path} parsed into {result.save_path}"
    span = span if result.total_lines else "empty"
    head = f"[{parsed}: {span}, {result.size} bytes] {goes_on}".rstrip()
    lines = [head, *(f"[{note}]" for note in result.notes)]
    return Text("\n".join(lines), result.content, "file_goto_line shows any line")


WriteFile = Callable[[str, str], Awaitable[FileWindow | Failed]]
"""Writes a text to a path of the workspace and shows its beginning."""
ParsedText = tuple[str, tuple[str, ...]]
"""Text and notes."""
_KINDS: dict[type[ParseAction], Kind] = {
    ParsePdf: "pdf",
    ParseDocx: "docx",
    ParseLatex: "latex",
    ParsePptx: "pptx",
}


class ParseActions:
    """Actions that read files which are no text."""

    actions: tuple[type[Arguments], ...] = PARSE_ACTIONS

    def __init__(
        self, documents: LocalDocuments | RemoteDocuments, endpoint: Endpoint, write: WriteFile
    ) -> None:
        self._documents = documents
        self._endpoint = endpoint
        self._write = write

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one action. Raises PathRefused, whose text is for the agent."""
        assert isinstance(arguments, ParseAction)
        await self._documents.check_target(arguments.save_path)
        try:
            text, notes = await cancel_on_stop(self._text(arguments), stop)
        except (Unreadable, NoEndpointAnswer, CallInterrupted) as problem:
            return Failed(error=f"{arguments.file_path}: {problem}")
        text = text.replace("\0", "\ufffd")  # one makes a file binary, which is not shown
        if not text.strip():
            return Failed(error=f"{arguments.file_path} holds no text. {' '.join(notes)}".strip())
        return _parsed_observation(arguments, await self._write(arguments.save_path, text), notes)

    async def _text(self, arguments: ParseAction) -> ParsedText:
        match arguments:
            case ParseAudio():
                return await self._audio(arguments)
            case ParseImage():
                return await self._image(arguments)
            case ParseVideo():
                return await self._video(arguments)
            case _:
                return await self._document(arguments)

    async def _document(self, arguments: ParseAction) -> ParsedText:
        kind = _KINDS[type(arguments)]
        converted = await self._documents.convert(kind, arguments.file_path)
        return converted.text, converted.notes

    async def _audio(self, arguments: ParseAudio) -> ParsedText:
        self._need_endpoint()
        data = await self._documents.content(arguments.file_path, parse_sources.MAX_AUDIO_BYTES)
        name = posixpath.basename(arguments.file_path)
        return await self._endpoint.transcribe(name, data, arguments.model), ()

    async def _image(self, arguments: ParseImage) -> ParsedText:
        self._need_endpoint()
        data = await self._documents.content(arguments.file_path, parse_sources.MAX_IMAGE_BYTES)
        picture = Picture(parse_sources.picture_kind(data), data)
        return await self._endpoint.look([picture], arguments.task), ()

    async def _video(self, arguments: ParseVideo) -> ParsedText:
        self._need_endpoint()
        frames = await self._documents.frames(arguments.file_path, arguments.frame_interval)
        count = len(frames.pictures)
        task = (
            f"{arguments.task}\n\n(The pictures are {count} frames of a video in order, one of "
            f"every {arguments.frame_interval} frames.)"
        )
        pictures = [Picture("image/jpeg", data) for data in frames.pictures]
        notes = [f"{count} frames were looked at."]
        if frames.more:
            notes.append("The video is longer than that; a larger frame_interval reaches further.")
        return await self._endpoint.look(pictures, task), tuple(notes)

    def _need_endpoint(self) -> None:
        if self._endpoint.missing:
            raise NoEndpointAnswer(self._endpoint.missing)


def _parsed_observation(
    arguments: ParseAction, written: FileWindow | Failed, notes: tuple[str, ...]
) -> Observation:
    if isinstance(written, Failed):
        return written
    return Parsed(
        file_path=arguments.file_path,
        save_path=written.path,
        change=written.change,
        blind=written.blind,
        first_line=written.first_line,
        last_line=written.last_line,
        total_lines=written.total_lines,
        size=written.size,
        content=written.content,
        notes=notes,
    )
