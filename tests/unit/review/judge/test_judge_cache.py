"""Kept answers: right or not there, whatever happened to their files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from houston_daemon.review.judge.judge_cache import CachedAnswer, JudgeCache, cache_key
from houston_shared.home import Home

NAME = cache_key({"message": "one"})
KEPT = CachedAnswer(
    answer='{"3": "keep"}', engine="e", template="t", prompt_tokens=10, sampled_tokens=2,
    seconds=0.5, tries=1,
)  # fmt: skip


def file_of(folder: Path) -> Path:
    (file,) = (folder / "judge").rglob("*.json")
    return file


def test_an_answer_is_found_by_its_question_and_by_no_other(tmp_path: Path) -> None:
    cache = JudgeCache(Home(tmp_path))
    cache.put(NAME, KEPT)
    assert JudgeCache(Home(tmp_path)).get(NAME) == KEPT
    assert cache.get(cache_key({"message": "two"})) is None
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", [0, 40, -2])
def test_a_file_that_is_not_sound_is_no_answer(tmp_path: Path, place: int) -> None:
    cache = JudgeCache(Home(tmp_path))
    cache.put(NAME, KEPT)
    data = bytearray(file_of(tmp_path).read_bytes())
    data[place] ^= 1
    file_of(tmp_path).write_bytes(data)
    assert cache.get(NAME) is None
    cache.put(NAME, KEPT)
    assert cache.get(NAME) == KEPT, "it is asked again and kept again"


def test_half_a_file_is_no_answer(tmp_path: Path) -> None:
    cache = JudgeCache(Home(tmp_path))
    cache.put(NAME, KEPT)
    file_of(tmp_path).write_bytes(file_of(tmp_path).read_bytes()[:30])
    assert cache.get(NAME) is None


def test_writers_that_are_killed_leave_whole_answers_or_none(tmp_path: Path) -> None:
    program = (
        "import sys, itertools\n"
        "from pathlib import Path\n"
        "from houston_daemon.review.judge.judge_cache import CachedAnswer, JudgeCache, cache_key\n"
        "from houston_shared.home import Home\n"
        "cache = JudgeCache(Home(Path(sys.argv[1])))\n"
        "print('ready', flush=True)\n"
        "for number in itertools.count():\n"
        "    kept = CachedAnswer(answer='x' * 20000, engine='', template='',\n"
        "                prompt_tokens=number, sampled_tokens=0, seconds=0, tries=1)\n"
        "    cache.put(cache_key({'number': number % 7}), kept)\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
    cache = JudgeCache(Home(tmp_path))
    end = time.monotonic() + 60
    while not all(cache.get(cache_key({"number": number})) for number in range(7)):
        assert time.monotonic() < end, "a writer that works keeps its answers"
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    for number in range(7):
        answer = cache.get(cache_key({"number": number}))
        assert answer is not None and answer.answer == "x" * 20_000
