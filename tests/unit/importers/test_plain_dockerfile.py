"""Which Dockerfiles the ordinary sandbox can stand for."""

from pathlib import Path

import pytest

from houston_daemon.importers.plain_dockerfile import PlainCopy, read_plain_dockerfile


@pytest.mark.parametrize(
    ("text", "workdir", "copies"),
    [
        pytest.param("FROM a:1\nWORKDIR /app\n", "/app", [], id="a folder"),
        pytest.param(
            "FROM a\nWORKDIR /srv\nWORKDIR x\nCOPY . .\n",
            "/srv/x",
            [PlainCopy(".", ".", True)],
            id="everything",
        ),
        pytest.param(
            'FROM a\nWORKDIR /w\nCOPY ["a b", "c"]\nADD d.txt /w/e/\n',
            "/w",
            [PlainCopy("a b", "c", False), PlainCopy("d.txt", "e", True)],
            id="words and places",
        ),
        pytest.param(
            "FROM a\nWORKDIR /w\nCOPY --chmod=755 a \\\n  b ./\nCMD x\nUSER root\n",
            "/w",
            [PlainCopy("a", ".", True), PlainCopy("b", ".", True)],
            id="a line that goes on",
        ),
    ],
)
def test_plain_ones(tmp_path: Path, text: str, workdir: str, copies: list[PlainCopy]) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    read = read_plain_dockerfile(tmp_path / "Dockerfile")
    assert (read.trouble, read.workdir, read.copies) == ("", workdir, copies)


@pytest.mark.parametrize("line", ["a:1", "--platform=linux/amd64 a:1 AS built"])
def test_the_base_is_the_image_and_no_option(tmp_path: Path, line: str) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {line}\n")
    assert read_plain_dockerfile(tmp_path / "Dockerfile").base == "a:1"


def test_variables_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\nENV A=1 B='two words'\nENV C see you\n")
    assert read_plain_dockerfile(tmp_path / "Dockerfile").variables == {
        "A": "1",
        "B": "two words",
        "C": "see you",
    }


@pytest.mark.parametrize(
    "line",
    [
        "RUN true",
        "COPY a /etc/a",
        "COPY ../a .",
        "COPY --from=b /a .",
        "ADD https://h/x .",
        "ADD a.tar.gz .",
        "ENV PATH=/x:$PATH",
        "USER nobody",
        "FROM other",
        "VOLUME /w",
        "COPY 'a .",
    ],
)
def test_what_only_an_engine_can_do_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM a\nWORKDIR /w\n{line}\n")
    assert read_plain_dockerfile(tmp_path / "Dockerfile").trouble == line


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("FROM a\nCOPY x .\n", "COPY x ."),
        ("FROM a\nWORKDIR /a\nCOPY x .\nWORKDIR /b\n", "WORKDIR after COPY"),
    ],
)
def test_files_need_one_folder(tmp_path: Path, text: str, trouble: str) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    assert read_plain_dockerfile(tmp_path / "Dockerfile").trouble == trouble


def test_files_that_are_left_out_of_a_copy_need_an_engine(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\nWORKDIR /w\nCOPY . .\n")
    (tmp_path / ".dockerignore").write_text("secret\n")
    assert read_plain_dockerfile(tmp_path / "Dockerfile").trouble == ".dockerignore"


def test_what_the_tests_copy_may_be_passed_over(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\nWORKDIR /app\nCOPY . /tests/\n")
    assert read_plain_dockerfile(tmp_path / "Dockerfile").trouble
    assert not read_plain_dockerfile(tmp_path / "Dockerfile", apart="/tests").trouble
