"""Reading the shell that agents write: what is run, and what is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.review.rules import shell_commands

PIECES = (
    "cat ", "bash -c ", "sh <<A\n", "python a.py", "'", '"', "\\", "\n", "<<EOF", "<<'E'", '<<-"X"',
    "EOF", "E\n", "X\n", "$(", "$'", "$((", "))", "(", ")", "`", "<", "<<", ">", ">>", "&", "|",
    ";", "#", " ", "\t", "\x01heredoc0", "\x01", "\x00", "é", "export A=1", "A=", "cd b;",
    "unset A", " -c ", "sed -i s/a/b/ ", "tee ", "env ", "then ", "{} \\;", "2>&1",
)  # fmt: skip
"""What random commands are made of."""

SCRIPTS: dict[str, tuple[str, list[str]]] = {
    "python": ("python3 -u scripts/infer.py --k 1", ["scripts/infer.py"]),
    "itself": ("./run.sh a b", ["run.sh"]),
    "after cd": ("cd scripts && python ./infer.py", ["scripts/infer.py"]),
    "absolute": ("python /workspace/scripts/infer.py", ["scripts/infer.py"]),
    "in the background": ("nohup bash run.sh > log 2>&1 &", ["run.sh"]),
    "with time": ("timeout -k 5 3h python train.py | tee log", ["train.py"]),
    "with variables": ("A=1 B='x y' python train.py", ["train.py"]),
    "a launcher": ("torchrun --nproc_per_node=8 train.py --x y.sh", ["train.py"]),
    "accelerate": ("accelerate launch --config c.yaml src/train.py", ["src/train.py"]),
    "a module": ("python -m pkg.train --x", ["pkg/train.py"]),
    "a launcher's module": ("python -m torch.distributed.run --nnodes 1 train.py", ["train.py"]),
    "of a shell": ('bash -c "cd a; python b.py"', ["a/b.py"]),
    "several": ("python a.py; python b.py || sh c.sh", ["a.py", "b.py", "c.sh"]),
    "in a loop": ("for i in 1 2; do python a.py $i; done", ["a.py"]),
    "in words only": ("echo 'python a.py'", []),
    "in a comment": ("ls # python a.py\nwc a.py", []),
    "shown": ("cat a.py | head; grep x a.py", []),
    "an open quote": ("python a.py 'x", ["a.py"]),
    "nothing": ("", []),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_which_scripts_run(case: str) -> None:
    command, expected = SCRIPTS[case]
    assert [
        program.script for program in shell_commands.parse_command(command).simple if program.script
    ] == expected


def test_variables_hold_for_a_program_or_from_their_export_on() -> None:
    programs = shell_commands.parse_command("X=1 python a.py; export Y=2; python b.py").simple
    by = {program.script: dict(program.environment) for program in programs if program.script}
    assert by == {"a.py": {"X": "1"}, "b.py": {"Y": "2"}}


APART: dict[str, tuple[str, dict[str, tuple[dict[str, str], bool]]]] = {
    "in parentheses": (
        "(cd d && export X=1; python a.py) && python b.py",
        {"d/a.py": ({"X": "1"}, True), "b.py": ({}, False)}),
    "behind each other": (
        "(export X=1; sh a.sh)|(sh b.sh; export Y=2); sh c.sh",
        {"a.sh": ({"X": "1"}, True), "b.sh": ({}, True), "c.sh": ({}, False)}),
    "in each other": (
        "export Z=0; (export X=1; (export X=2; sh a.sh); sh b.sh); sh c.sh",
        {"a.sh": ({"Z": "0", "X": "2"}, True), "b.sh": ({"Z": "0", "X": "1"}, True),
         "c.sh": ({"Z": "0"}, False)}),
    "given to a shell": (
        'cd d; bash -c "export X=1; sh a.sh" && sh b.sh',
        {"d/a.sh": ({"X": "1"}, True), "d/b.sh": ({}, False)}),
    "in a here-document": (
        "bash <<E\nexport X=1\nsh a.sh\nE\nsh b.sh",
        {"a.sh": ({"X": "1"}, True), "b.sh": ({}, False)}),
    "between braces": ("{ export X=1; cd d; }; sh a.sh", {"d/a.sh": ({"X": "1"}, False)}),
    "in a choice": ("case $n in a) export X=1;; esac; sh a.sh", {"a.sh": ({"X": "1"}, False)}),
    "behind a calculation": ("(( n++ )); export X=1; sh a.sh", {"a.sh": ({"X": "1"}, False)}),
    "behind a command's output": (
        "diff <(sort a) <(sort b); export X=1; sh a.sh", {"a.sh": ({"X": "1"}, False)}),
    "never closed": ("(export X=1; sh a.sh", {"a.sh": ({"X": "1"}, True)}),
}  # fmt: skip


@pytest.mark.parametrize("case", APART)
def test_variables_and_folders_end_with_their_shell(case: str) -> None:
    command, expected = APART[case]
    programs = shell_commands.parse_command(command).simple
    assert {
        program.script: (dict(program.environment), program.in_subshell)
        for program in programs
        if program.script
    } == expected


def test_files_of_here_documents() -> None:
    command = shell_commands.parse_command(
        "mkdir -p d && cat > d/a.py <<'EOF'\nx = 1\nEOF\ncat >> log.txt <<E\nhi\nE\nls"
    )
    assert command.texts == (("d/a.py", "x = 1\n", False), ("log.txt", "hi\n", True))
    assert [program.program for program in command.simple] == ["mkdir", "cat", "cat", "ls"]
    (python,) = shell_commands.parse_command("python - <<EOF\nprint(1)\nEOF").simple
    assert python.inline == "print(1)\n"


WRITTEN = (("a.py", "print(1)\n", False),)
QUOTED: dict[str, tuple[str, list[str], tuple[tuple[str, str, bool], ...]]] = {
    "a file, then its run": (
        "bash -c 'cat > a.py <<\"EOF\"\nprint(1)\nEOF\npython a.py'", ["cat", "python"], WRITTEN),
    "the end on the last line": ("bash -c 'cat > a.py <<E\nprint(1)\nE'", ["cat"], WRITTEN),
    "a program's, the end on the last line": (
        "bash -c 'python3 - <<PY\nimport torch\nPY'", ["python3"], ()),
    "in double quotes": (
        'sh -c "cat > a.py <<EOF\nprint(\\"$(date)\\")\nEOF\npython a.py" && ls',
        ["cat", "python", "ls"], (("a.py", 'print("$(date)")\n', False),)),
    "behind cd": (
        "cd s; bash -c 'cat >> a.py <<E\nx\nE'", ["cd", "cat"], (("s/a.py", "x\n", True),)),
    "a here-document in a shell's": (
        "bash <<'A'\ncat > a.py <<B\nprint(1)\nB\nls\nA", ["cat", "ls"], WRITTEN),
    "in a command within double quotes": (
        "git commit -m \"$(cat <<'E'\nsay \"hi\"; don't rm )\nE\n)\" && ls", ["git", "ls"], ()),
    "only told": ("echo 'cat > a.py <<E' > a.txt; python a.py", ["echo", "python"], ()),
    "of another host": ("ssh gpu 'cat > a.py <<E\nprint(1)\nE'; ls", ["ssh", "ls"], ()),
    "behind a comment": (
        "# what isn't closed\ncat > a.py <<E\nprint(1)\nE\nls", ["cat", "ls"], WRITTEN),
    "behind a quote in a quote": (
        "echo $'it\\'s'; cat > a.py <<E\nprint(1)\nE", ["echo", "cat"], WRITTEN),
    "behind an open quote": (
        "echo don't; cat > a.py <<E\nprint(1)\nE\nls", ["echo", "cat", "ls"], WRITTEN),
    "an apostrophe in one": ("cat > a.py <<E; ls\ndon't\nE", ["cat", "ls"],
                             (("a.py", "don't\n", False),)),
    "a word that is no file's end": ("cat <<< E; ls\nwc a", ["cat", "ls", "wc"], ()),
    "a shift": ("echo $((1 << n))\nls", ["echo", "ls"], ()),
    "raw bytes of an agent": ("\x01heredoc0 a; cat > a.py <<E\nprint(1)\nE",
                              ["\x01heredoc0", "cat"], WRITTEN),
    "without a last line": ("cat > a.py <<E\nprint(1)", ["cat"], WRITTEN),
}  # fmt: skip


@pytest.mark.parametrize("case", QUOTED)
def test_here_documents_in_quotes(case: str) -> None:
    command, programs, texts = QUOTED[case]
    parsed = shell_commands.parse_command(command)
    assert [program.program for program in parsed.simple] == programs
    assert parsed.texts == texts


@pytest.mark.parametrize(
    ("command", "words"),
    [("echo '#!/bin/sh' x", ("echo", "#!/bin/sh", "x")), ("tr ';' '|'", ("tr", ";", "|")),
     ("find . -exec rm {} \\;", ("find", ".", "-exec", "rm", "{}", ";")),
     ("a '' b\\ c \\\n d # e", ("a", "", "b c", "d")), ('a "b\\"$x\\\\"', ("a", 'b"$x\\')),
     ("a \"$(b 'c d' \")\")\" e", ("a", "$(b 'c d' \")\")", "e")), ("a#b", ("a#b",))],
)  # fmt: skip
def test_what_is_quoted_is_no_operator_and_no_comment(command: str, words: tuple[str, ...]) -> None:
    (program,) = shell_commands.parse_command(command).simple
    assert program.words == words


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_every_text_is_read(text: str) -> None:
    command = shell_commands.parse_command(text)
    for program in command.simple:
        words = (program.program, program.script, program.git, *program.words)
        assert all(isinstance(word, str) for word in words)
        assert isinstance(program.views, bool) and isinstance(program.changes, tuple)
    assert all(heredoc.path and heredoc.content for heredoc in command.texts)


@pytest.mark.parametrize(
    ("command", "views"),
    [("cat a | grep -n x", True), ("sed -n 1,5p a", True), ("sed -i s/a/b/ a", False),
     ("ls; python a.py", False), ("cat > a <<E\nx\nE", False), ("sleep 60; tail a", True),
     ("for i in 1 2; do sleep 5; tail a; done", True), ("for i in 1; do python a; done", False),
     ("git --no-pager -C x log", True), ("git commit -am x", False), ("kill -0 1", True),
     ("kill 1", False), ("X=1; cat $X", True), ("sed --in-place s/a/b/ a", False),
     ("sed -ni p a", False), ("command -v vllm", True)],
)  # fmt: skip
def test_what_only_shows(command: str, views: bool) -> None:
    assert shell_commands.parse_command(command).views is views


@pytest.mark.parametrize(
    ("path", "other", "expected"),
    [("a.py", "./a.py", True), ("/workspace/s/a.py", "s/a.py", True), ("a.py", "s/a.py", True),
     ("s/a.py", "t/a.py", False), ("ba.py", "a.py", False)],
)  # fmt: skip
def test_paths_of_one_file(path: str, other: str, expected: bool) -> None:
    assert shell_commands.same_path(path, other) is expected


CHANGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "its script is no file": ("sed -i 's|0.1|0.25|' train.py", ("train.py",)),
    "a script of paths": ("sed -i s#a/b.json#c/d.json# train.py", ("train.py",)),
    "a script of lines": ("sed -i '3i import os.path' train.py", ("train.py",)),
    "several scripts": ("sed -E -i -e s@/old@/new@ --expression=2d a b.py", ("a", "b.py")),
    "options in one": ("sed -nie p a; sed -nEe 1p -i.bak a", ("a", "a")),
    "a script from a file": ("sed -i -f all.sed a.py", ("a.py",)),
    "of BSD": ("sed -i '' s/a/b/ a.py", ("a.py",)),
    "options behind": ("sed s/a/b/ -i a.py", ("a.py",)),
    "perl": ("perl -0777 -pi -e 's/a.b/c/' a.py; perl -i.bak -pe s/a/b/ b.py", ("a.py", "b.py")),
    "after cd": ("cd src && sed -i s/a/b/ ./train.py", ("src/train.py",)),
    "absolute": ("sed -i s/a/b/ /x/workspace/train.py", ("train.py",)),
    "not in place": ("sed s/a/b/ train.py; perl -pe s/a/b/ a.py; cat a.py", ()),
}


@pytest.mark.parametrize("case", CHANGES)
def test_files_that_are_changed_in_place(case: str) -> None:
    command, expected = CHANGES[case]
    programs = shell_commands.parse_command(command).simple
    assert tuple(path for program in programs for path in program.changes) == expected


JOINED: dict[str, tuple[str, list[str]]] = {
    "a list": ("a && b || c; d", ["&&", "||", ";", ";"]),
    "a pipeline": ("a 2>&1 | b |& c &", ["|", "|", "&"]),
    "over lines": ("a &&\nb\nc", ["&&", ";", ";"]),
    "in parentheses": ("(a; b) && c", [";", "&&", ";"]),
    "of a shell": ("bash -c 'a; b' && c", [";", "&&", ";"]),
}


@pytest.mark.parametrize("case", JOINED)
def test_how_commands_are_joined(case: str) -> None:
    command, expected = JOINED[case]
    assert [program.after for program in shell_commands.parse_command(command).simple] == expected
