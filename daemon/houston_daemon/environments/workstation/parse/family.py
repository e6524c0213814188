"""The parse actions: a file of the workspace becomes text, saved beside it and shown.

What goes wrong with a file, a converter or an endpoint is an observation.
"""

import posixpath
from collections.abc import Awaitable, Callable

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.workstation.files.observations import FileWindow
from houston_daemon.environments.workstation.parse import actions as asked
from houston_daemon.environments.workstation.parse import sources
from houston_daemon.environments.workstation.parse.converter import Kind, Unreadable
from houston_daemon.environments.workstation.parse.documents import Documents
from houston_daemon.environments.workstation.parse.endpoint import Endpoint, Picture, Unanswered
from houston_daemon.environments.workstation.parse.observations import Parsed

Write = Callable[[str, str], Awaitable[FileWindow | Failed]]
"""Writes a text to a path of the workspace and shows its beginning."""
Found = tuple[str, tuple[str, ...]]
"""Text and notes."""
_KINDS: dict[type[asked.ParseAction], Kind] = {
    asked.ParsePdf: "pdf",
    asked.ParseDocx: "docx",
    asked.ParseLatex: "latex",
    asked.ParsePptx: "pptx",
}


class ParseActions:
    """Actions that read files which are no text."""

    actions: tuple[type[Arguments], ...] = asked.PARSE_ACTIONS

    def __init__(self, documents: Documents, endpoint: Endpoint, write: Write) -> None:
        self._documents = documents
        self._endpoint = endpoint
        self._write = write

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one action. Raises PathRefused, whose text is for the agent."""
        assert isinstance(arguments, asked.ParseAction)
        await self._documents.check_target(arguments.save_path)
        try:
            text, notes = await unless_stopped(self._text(arguments), stop)
        except (Unreadable, Unanswered, BrokenOff) as problem:
            return Failed(error=f"{arguments.file_path}: {problem}")
        text = text.replace("\0", "\ufffd")  # one makes a file binary, which is not shown
        if not text.strip():
            return Failed(error=f"{arguments.file_path} holds no text. {' '.join(notes)}".strip())
        return _parsed(arguments, await self._write(arguments.save_path, text), notes)

    async def _text(self, arguments: asked.ParseAction) -> Found:
        match arguments:
            case asked.ParseAudio():
                return await self._audio(arguments)
            case asked.ParseImage():
                return await self._image(arguments)
            case asked.ParseVideo():
                return await self._video(arguments)
            case _:
                return await self._document(arguments)

    async def _document(self, arguments: asked.ParseAction) -> Found:
        kind = _KINDS[type(arguments)]
        found = await self._documents.convert(kind, arguments.file_path)
        return found.text, found.notes

    async def _audio(self, arguments: asked.ParseAudio) -> Found:
        self._need_endpoint()
        data = await self._documents.content(arguments.file_path, sources.MOST_SOUND)
        name = posixpath.basename(arguments.file_path)
        return await self._endpoint.transcribe(name, data, arguments.model), ()

    async def _image(self, arguments: asked.ParseImage) -> Found:
        self._need_endpoint()
        data = await self._documents.content(arguments.file_path, sources.MOST_PICTURE)
        picture = Picture(sources.picture_kind(data), data)
        return await self._endpoint.look([picture], arguments.task), ()

    async def _video(self, arguments: asked.ParseVideo) -> Found:
        self._need_endpoint()
        taken = await self._documents.frames(arguments.file_path, arguments.frame_interval)
        count = len(taken.pictures)
        task = (
            f"{arguments.task}\n\n(The pictures are {count} frames of a video in order, one of "
            f"every {arguments.frame_interval} frames.)"
        )
        pictures = [Picture("image/jpeg", data) for data in taken.pictures]
        notes = [f"{count} frames were looked at."]
        if taken.more:
            notes.append("The video is longer than that; a larger frame_interval reaches further.")
        return await self._endpoint.look(pictures, task), tuple(notes)

    def _need_endpoint(self) -> None:
        if self._endpoint.missing:
            raise Unanswered(self._endpoint.missing)


def _parsed(
    arguments: asked.ParseAction, written: FileWindow | Failed, notes: tuple[str, ...]
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
