"""Parsing real documents, and pictures and sound by a real HTTP server of OpenAI's shape."""

import asyncio
import base64
import json
import os
import re
import shutil
import struct
import subprocess
import wave
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import docx
import imageio_ffmpeg
import pptx
import pytest
from reportlab.pdfgen.canvas import Canvas

from tests.integration.environments.conftest import Station
from tests.integration.environments.opened import opened
from tests.support import web as pages
from tests.support.web import Handler, Web

LATEX = r"""\documentclass{article}
\title{On X}\begin{document}\maketitle
\section{Method} As in \cite{a}, $x^2$. \input{part}
\begin{tabular}{ll}a&b\\c&d\end{tabular}
\end{document}"""
WORDS = b"http://schemas.openxmlformats.org/wordprocessingml/2006/main"
HAS_FFMPEG = shutil.which("ffmpeg") is not None


def write_pdf(file: Path, pages: int = 2, password: str = "") -> None:
    canvas = Canvas(str(file), encrypt=password or None)
    canvas.setTitle("On paper")
    for number in range(1, pages + 1):
        canvas.drawString(72, 720, f"Words on page {number}")
        canvas.showPage()
    canvas.save()


def write_docx(file: Path) -> None:
    document = docx.Document()
    document.add_heading("Method", 1)
    document.add_paragraph("One point", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    document.save(str(file))


def write_pptx(file: Path) -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "A slide"
    slide.placeholders[1].text = "A point"
    slide.notes_slide.notes_text_frame.text = "Say this.\nAnd that."
    deck.save(str(file))


def write_wav(file: Path) -> None:
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8_000)
        sound.writeframes(b"\0\x10" * 800)


def png(side: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    rows = b"".join(b"\0" + b"\xff\0\0" * side for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def write_bomb(file: Path, small: Path) -> None:
    """A DOCX of a megabyte that unpacks to ten million paragraphs."""
    begin = b'<?xml version="1.0"?><w:document xmlns:w="%s"><w:body>' % WORDS
    with zipfile.ZipFile(small) as source, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name in source.namelist():
            if name != "word/document.xml":
                made.writestr(name, source.read(name))
        with made.open("word/document.xml", "w") as body:
            body.write(begin)
            for _ in range(200):
                body.write(b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 50_000)
            body.write(b"</w:body></w:document>")


class Model:
    """A multimodal endpoint: answers what it was told to, and keeps what it was asked."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.asked: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, Any]] = []
        web.pages["/v1/chat/completions"] = web.pages["/v1/audio/transcriptions"] = self.answer

    def answer(self, handler: Handler) -> tuple[int, dict[str, str], bytes]:
        self.asked.append((dict(handler.headers), handler.body))
        status, answer = self.answers.pop(0)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        headers = {"Content-Type": "application/json", "Retry-After": "0"}
        return status, headers | ({"Location": body.decode()} if status == 302 else {}), body

    def settings(self, **more: Any) -> dict[str, Any]:
        url = self.web.url("/v1")
        return {"multimodal": {"url": url, "model": "eye", "api_key_env": "EYE_KEY", **more}}


def said(text: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    with pages.web() as running:
        yield running


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[Station]:
    made = await opened(tmp_path, settings={})
    yield made
    await made.environment.close(ended=True)


@pytest.fixture
async def seeing(
    tmp_path: Path, server: Web, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Station, Model]]:
    """A rollout with an endpoint; its pictures and sound lie in the workspace."""
    monkeypatch.setenv("EYE_KEY", "key-of-the-eye-0123456789")
    model = Model(server)
    made = await opened(tmp_path, settings=model.settings())
    (made.workspace / "red.png").write_bytes(png())
    write_wav(made.workspace / "tone.wav")
    yield made, model
    await made.environment.close(ended=True)


async def test_documents_become_markdown(station: Station) -> None:
    there = station.workspace
    write_pdf(there / "a.pdf")
    write_docx(there / "a.docx")
    write_pptx(there / "a.pptx")
    (there / "tex").mkdir()
    (there / "tex" / "a.tex").write_text(LATEX)
    (there / "tex" / "part.tex").write_text("Words of the part.")
    for name, path, expected in (
        ("parse_pdf", "a.pdf", ["# On paper", "## Page 2", "Words on page 2", "[2 pages.]"]),
        ("parse_docx", "a.docx", ["# Method", "- One point", "| left | right |"]),
        ("parse_pptx", "a.pptx", ["## A slide", "A point", "## Speaker notes", "And that."]),
        ("parse_latex", "tex/a.tex", ["title: On X", "# Method", "[@a]", "$x^2$",
                                      "Words of the part.", "| c   | d   |"]),
    ):  # fmt: skip
        result = await station(name, file_path=path, save_path=f"out/{path}.md")
        assert result.success, result.text
        assert [one for one in expected if one not in result.text] == []
        saved = (there / "out" / f"{path}.md").read_text()
        assert saved.strip().splitlines()[-1] in result.text
        assert result.kind == "parsed" and result.fields["change"] == "created"
        assert result.fields["save_path"] == f"out/{path}.md"


async def test_a_long_document_is_saved_whole_and_shown_in_part(station: Station) -> None:
    write_pdf(station.workspace / "long.pdf", pages=60)
    result = await station("parse_pdf", file_path="long.pdf", save_path="long.md")
    assert "lines 1-60 of 241" in result.text and "file_scroll_down goes on" in result.text
    assert "Words on page 60" not in result.text
    assert "Words on page 60" in (station.workspace / "long.md").read_text()
    more = await station("file_scroll_down")
    assert "59" in more.text and more.fields["path"] == "long.md"
    again = await station("parse_pdf", file_path="long.pdf", save_path="long.md")
    assert again.fields["change"] == "replaced" and not again.fields["blind"]
    closed = await station.environment.close_step(1)
    assert [one.path for one in closed.files] == ["long.md", "long.pdf"]


@pytest.mark.slow
async def test_what_is_no_document_is_an_observation(station: Station) -> None:
    there = station.workspace
    (there / "text.pdf").write_text("no PDF")
    (there / "empty.pdf").write_bytes(b"")
    (there / "cut.docx").write_bytes(b"PK\x03\x04 and no more")
    write_pdf(there / "locked.pdf", password="secret")
    write_pdf(there / "blank.pdf", pages=0)
    write_docx(there / "fine.docx")
    write_bomb(there / "bomb.docx", there / "fine.docx")
    (there / "folder").mkdir()
    (there / "outside.pdf").symlink_to("/etc/passwd")
    for path, why in (
        ("text.pdf", "damaged or no PDF"), ("empty.pdf", "file is empty"),
        ("locked.pdf", "password"), ("folder", "is a folder"), ("none.pdf", "There is no"),
        ("outside.pdf", "outside the workspace"), ("../../../etc/passwd", "out of the workspace"),
    ):  # fmt: skip
        result = await station("parse_pdf", file_path=path, save_path="out.md")
        assert not result.success and why in result.text, (path, result.text)
    for path, why in (
        ("cut.docx", "cannot be read as DOCX"),
        ("bomb.docx", "more than 2 GB of memory|be converted within"),
    ):
        result = await station("parse_docx", file_path=path, save_path="out.md")
        assert not result.success and re.search(why, result.text), (path, result.text)
    assert not (there / "out.md").exists()
    fine = {"name": "parse_docx", "file_path": "fine.docx"}
    for save, why in (("/etc/x.md", "outside"), ("../x.md", "out of"), ("folder", "no regular")):
        result = await station(**fine, save_path=save)
        assert not result.success and why in result.text, (save, result.text)


async def test_a_document_reads_nothing_else_of_the_machine(
    tmp_path: Path, station: Station
) -> None:
    secret = tmp_path / "secret.tex"
    secret.write_text("The secret of the machine.")
    (station.workspace / "a.tex").write_text(rf"Before \input{{{secret}}} after.")
    result = await station("parse_latex", file_path="a.tex", save_path="a.md")
    assert result.success and "Before" in result.text and "secret of" not in result.text
    assert "Could not load include file" in result.text


async def test_without_a_sandbox_a_document_includes_nothing(tmp_path: Path) -> None:
    station = await opened(tmp_path, settings={}, sandbox="none")
    (station.workspace / "a.tex").write_text(r"Before \input{part} after.")
    (station.workspace / "part.tex").write_text("Words of the part.")
    result = await station("parse_latex", file_path="a.tex", save_path="a.md")
    assert result.success and "Before" in result.text and "Words of" not in result.text
    await station.environment.close(ended=True)


async def test_a_picture_is_asked_about(seeing: tuple[Station, Model]) -> None:
    station, model = seeing
    model.answers = [(429, b""), (503, b"busy"), (200, said("It is red."))]
    asked = {"file_path": "red.png", "task": "What colour?"}
    result = await station("parse_image", **asked, save_path="red.md")
    assert result.success and "1 It is red." in result.text, result.text
    assert (station.workspace / "red.md").read_text() == "It is red."
    headers, body = model.asked[-1]
    assert headers["Authorization"] == "Bearer key-of-the-eye-0123456789"
    request = json.loads(body)
    words, picture = request["messages"][0]["content"]
    assert request["model"] == "eye" and words == {"type": "text", "text": "What colour?"}
    kind, _, data = picture["image_url"]["url"].partition(";base64,")
    assert kind == "data:image/png" and base64.b64decode(data) == png()
    model.answers = [(200, said("It is\0red."))]
    shown = await station("parse_image", **asked, save_path="red.md")
    assert "1 It is\ufffdred." in shown.text, "no file of its own making is called binary"
    parts = [{"type": "text", "text": "It is "}, {"type": "text", "text": "red."}]
    model.answers = [(200, said(parts))]
    assert "1 It is red." in (await station("parse_image", **asked, save_path="red.md")).text


async def test_speech_is_written_down(seeing: tuple[Station, Model]) -> None:
    station, model = seeing
    for model_name, expected in (("", b"whisper-1"), ("ear", b"ear")):
        model.answers = [(200, {"text": "Hello there."})]
        result = await station(
            "parse_audio", file_path="tone.wav", save_path="tone.md", model=model_name
        )
        assert result.success and "1 Hello there." in result.text
        _, body = model.asked[-1]
        assert (station.workspace / "tone.wav").read_bytes() in body
        assert re.search(rb'name="model"\r\n\r\n' + expected + rb"\r\n", body)
        assert b'filename="tone.wav"' in body


async def test_a_failing_endpoint_is_an_observation(
    tmp_path: Path, seeing: tuple[Station, Model]
) -> None:
    station, model = seeing
    (station.workspace / "text.png").write_text("no picture")
    asked = {"name": "parse_image", "save_path": "out.md", "task": "What?"}
    for answers, why in (
        ([(401, {"error": "bad key"})], "answered 401"), ([(500, b"")] * 3, "answered 500"),
        ([(200, b"no JSON")], "no JSON"), ([(200, b'"\xff"')], "no JSON"),
        ([(200, b"[" * 200_000)], "no JSON"), ([(302, b"http://xn--/")], "no URL"),
        ([(200, {"choices": []})], "no message"),
        ([(200, said("  "))], "is empty"), ([(200, [])], "no message"),
        ([(200, b'"' + b"x" * 5_000_000 + b'"')], "longer than 4 MB"),
    ):  # fmt: skip
        model.answers = list(answers)
        result = await station(**asked, file_path="red.png")
        assert not result.success and why in result.text, (why, result.text)
        assert model.answers == []
    none = await station(**asked, file_path="text.png")
    assert not none.success and "no PNG" in none.text
    assert not (station.workspace / "out.md").exists()


@pytest.mark.parametrize(
    ("name", "more"),
    [("parse_image", {"task": "x"}), ("parse_audio", {}), ("parse_video", {"task": "x"})],
)
async def test_without_an_endpoint_each_action_says_so(
    station: Station, name: str, more: dict[str, Any]
) -> None:
    (station.workspace / "a").write_bytes(png())
    result = await station(name, file_path="a", save_path="out.md", **more)
    assert not result.success and "[tools.multimodal]" in result.text


async def test_an_endpoint_that_is_away_or_slow_is_an_observation(
    tmp_path: Path, server: Web
) -> None:
    model = Model(server)
    away = {"multimodal": {"url": "http://127.0.0.1:1/v1", "model": "eye"}}
    slow = model.settings(seconds=0.3)
    server.pages["/v1/chat/completions"] = pages.silent
    for rollout, settings, why in (("r1", away, "cannot be reached"), ("r2", slow, "within 0.3 s")):
        station = await opened(tmp_path, rollout, settings=settings)
        (station.workspace / "a.png").write_bytes(png())
        result = await station("parse_image", file_path="a.png", save_path="x.md", task="What?")
        assert not result.success and why in result.text
        await station.environment.close(ended=True)


@pytest.mark.skipif(HAS_FFMPEG, reason="this machine has ffmpeg")
async def test_without_ffmpeg_a_video_says_so(seeing: tuple[Station, Model]) -> None:
    station, _ = seeing
    (station.workspace / "a.mp4").write_bytes(b"video")
    result = await station("parse_video", file_path="a.mp4", save_path="a.md", task="What?")
    assert not result.success and "no ffmpeg" in result.text


@pytest.fixture
def ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The program under its name, in a folder of the PATH that no sandbox shows by itself."""
    program = tmp_path / "programs" / "ffmpeg"
    program.parent.mkdir()
    program.symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return str(program)


async def test_frames_of_a_video_are_asked_about(
    seeing: tuple[Station, Model], ffmpeg: str
) -> None:
    station, model = seeing
    source = "-v error -f lavfi -i testsrc=duration=4:rate=25:size=320x240 -threads 1 a.mp4"
    command = [ffmpeg, *source.split()]
    await asyncio.to_thread(subprocess.run, command, cwd=station.workspace, check=True)
    model.answers = [(200, said("A test picture."))]
    result = await station(
        "parse_video", file_path="a.mp4", save_path="a.md", task="What?", frame_interval=25
    )
    assert result.success and "4 frames were looked at" in result.text, result.text
    parts = json.loads(model.asked[-1][1])["messages"][0]["content"]
    frames = [one["image_url"]["url"] for one in parts if one["type"] == "image_url"]
    assert len(frames) == 4 and all(one.startswith("data:image/jpeg;base64,/9j/") for one in frames)
    (station.workspace / "bad.mp4").write_bytes(BytesIO(b"no video").getvalue())
    bad = await station("parse_video", file_path="bad.mp4", save_path="b.md", task="What?")
    assert not bad.success and "no video" in bad.text
