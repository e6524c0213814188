"""Windows on files of every kind, without loading them."""

import os
import tracemalloc
from pathlib import Path

import pytest

from houston_daemon.environments.workstation import file_actions, file_window
from houston_daemon.environments.workstation.confined_paths import PathRefused
from tests.unit.environments.conftest import Files


def numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


async def test_a_window_shows_numbered_lines(files: Files) -> None:
    (files.root / "a").write_text(numbered(500))
    window = await files("open_file", path="a", line_number=200, context_lines=3)
    assert window.content == "200 line 200\n201 line 201\n202 line 202"
    assert (window.first_line, window.last_line, window.total_lines) == (200, 202, 500)
    assert not window.blind


async def test_scrolling_shows_every_line(files: Files) -> None:
    (files.root / "a").write_text(numbered(50))
    window = await files("open_file", path="a", context_lines=20)
    seen = set(window.content.split("\n"))
    while window.last_line < window.total_lines:
        window = await files("file_scroll_down")
        seen |= set(window.content.split("\n"))
    assert len(seen) == 50
    firsts = [window.first_line]
    while firsts[-1] > 1:
        firsts.append((await files("file_scroll_up")).first_line)
    assert firsts == sorted(firsts, reverse=True)


async def test_goto_keeps_the_windows_size(files: Files) -> None:
    (files.root / "a").write_text(numbered(50))
    await files("open_file", path="a", context_lines=7)
    window = await files("file_goto_line", line_number=30)
    assert (window.first_line, window.last_line) == (30, 36)


@pytest.mark.parametrize(
    "action",
    [("file_goto_line", {"line_number": 1}), ("file_scroll_up", {}), ("file_scroll_down", {})],
)
async def test_without_an_open_file_there_is_nothing_to_scroll(
    files: Files, action: tuple[str, dict[str, int]]
) -> None:
    failed = await files(action[0], **action[1])
    assert not failed.success
    assert "No file is open" in failed.error
    assert (await files("get_file_info")).path == ""


async def test_a_window_larger_than_the_limit_ends_early_and_scrolling_goes_on(
    workspace: Path,
) -> None:
    files = Files(workspace, characters=1_000)
    (workspace / "a").write_text(numbered(1_000))
    window = await files("open_file", path="a", context_lines=900)
    assert len(window.content) < 1_000
    assert "window is full" in window.note
    following = await files("file_scroll_down")
    assert following.first_line == window.last_line - 1


async def test_a_line_beyond_the_end_is_an_error(files: Files) -> None:
    (files.root / "a").write_text(numbered(5))
    failed = await files("open_file", path="a", line_number=6)
    assert "5 lines; there is no line 6" in failed.error


async def test_an_empty_file_is_shown_as_such(files: Files) -> None:
    (files.root / "a").touch()
    window = await files("open_file", path="a")
    assert (window.success, window.total_lines, window.content) == (True, 0, "")


async def test_a_binary_file_is_not_shown(files: Files) -> None:
    (files.root / "a").write_bytes(b"\x7fELF\0\0\0")
    window = await files("open_file", path="a")
    assert window.binary
    assert window.content == ""


async def test_bytes_that_are_no_utf8_are_flagged(files: Files) -> None:
    (files.root / "a").write_bytes(b"caf\xe9\nok\n")
    window = await files("open_file", path="a")
    assert window.invalid_utf8
    assert window.content == "1 caf\ufffd\n2 ok"


async def test_a_long_line_is_cut_and_says_so(files: Files) -> None:
    (files.root / "a").write_text("x" * 1_000_000 + "\nshort\n")
    window = await files("open_file", path="a")
    first, second = window.content.split("\n")
    assert first.endswith("[… 996000 more bytes in this line]")
    assert second == "2 short"


async def test_a_cut_inside_a_character_is_no_flaw(files: Files) -> None:
    (files.root / "a").write_text("a" + "é" * 5_000)
    assert not (await files("open_file", path="a")).invalid_utf8


def sparse(path: Path, start: bytes, size: int, end: bytes = b"") -> None:
    """A file with a hole, which reads as NULs but takes no disk."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size - len(end))
        file.seek(0, os.SEEK_END)
        file.write(end)


async def test_two_gigabytes_of_one_line_are_not_loaded(files: Files) -> None:
    sparse(files.root / "big", b"text\n" * 2_000, 2 << 30)
    tracemalloc.start()
    window = await files("open_file", path="big", line_number=2_000, context_lines=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    first, second = window.content.split("\n")
    assert first == "2000 text"
    assert "at least" in second
    assert second.endswith("more bytes in this line]")
    assert window.total_lines is None
    assert peak < 20 << 20


async def test_a_hole_of_any_size_is_given_up_in_time(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command makes a terabyte in no time; nobody waits for it to be read."""
    for module in (file_window, file_actions):
        monkeypatch.setattr(module, "_SECONDS", 0.1)
    sparse(files.root / "big", b"text\n" * 2_000, 1 << 40)
    for name, arguments in (
        ("open_file", {"path": "big", "line_number": 9_000}),
        ("edit_file", {"path": "big", "start": 1, "end": 1, "content": "x"}),
    ):
        with pytest.raises(PathRefused, match=r"longer than 0\.1 s"):
            await files(name, **arguments)
    assert os.listdir(files.root) == ["big"]


async def test_an_edit_keeps_holes(files: Files) -> None:
    sparse(files.root / "big", b"text\n" * 2_000, 40 << 20)
    before = (files.root / "big").stat().st_blocks
    await files("edit_file", path="big", start=1, end=1, content="longer")
    after = (files.root / "big").stat()
    assert (after.st_size, after.st_blocks < before + 8_192) == ((40 << 20) + 2, True)


async def test_any_line_of_a_large_file_is_reached(files: Files) -> None:
    sparse(files.root / "big", b"text\n" * 2_000, 300 << 20, b"\nlast\n")
    window = await files("open_file", path="big", line_number=2_002)
    assert window.content == "2002 last"
    beyond = await files("file_goto_line", line_number=2_003)
    assert "there is no line 2003" in beyond.error


async def test_an_edit_of_a_large_file_holds_little_of_it(files: Files) -> None:
    sparse(files.root / "big", b"text\n" * 2_000, 40 << 20, b"\nlast\n")
    tracemalloc.start()
    edited = await files("edit_file", path="big", start=2_002, end=2_002, content="end")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "2002 end" in edited.content
    assert (files.root / "big").stat().st_size == (40 << 20) - 1
    assert peak < 20 << 20


async def test_info_tells_where_the_window_stands(files: Files) -> None:
    (files.root / "a").write_text(numbered(50))
    await files("open_file", path="a", line_number=10, context_lines=5)
    info = await files("get_file_info")
    assert (info.path, info.first_line, info.last_line, info.total_lines) == ("a", 10, 14, 50)


async def test_an_open_file_that_is_gone_is_an_error(files: Files) -> None:
    (files.root / "a").write_text("x\n")
    await files("open_file", path="a")
    (files.root / "a").unlink()
    with pytest.raises(PathRefused, match="There is no"):
        await files("file_scroll_down")


async def test_a_file_too_long_to_be_counted_is_told_without_its_lines(files: Files) -> None:
    with (files.root / "big").open("wb") as file:
        file.truncate(file_window.COUNT_BYTES + 1)
    told = await files.actions.budget_status("big")
    assert f"big has {file_window.COUNT_BYTES + 1} bytes, last written" in told
    (files.root / "small").write_text("a\nb\n")
    assert "small has 4 bytes, 2 lines, last" in await files.actions.budget_status("small")
