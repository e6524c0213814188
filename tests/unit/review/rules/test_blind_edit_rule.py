"""Edits of what was not looked at, by names that are written in several ways: which file is meant,
and on which host.
"""

import pytest

from houston_daemon.review.rules import rule_catalog
from tests.support.traced_rollouts import Done, Steps, call, create, edit, look, run, traced

TRAIN = "train.py"


def change(path: str = TRAIN, **more: str) -> Done:
    return call("edit_file", "file", "1\ty", path=path, change="edited", _path=path, **more)


SEEN = run("cat train.py")
CASES: dict[str, tuple[Steps, set[int]]] = {
    "a number in sed's script": ([SEEN, run("sed -i 's|0.1|0.25|' train.py")], set()),
    "paths in sed's script": ([SEEN, run("sed -i 's#a/b.json#c/d.json#' train.py")], set()),
    "and with another sign": ([SEEN, run("sed -i -e 's@/old.x@/new.y@' train.py")], set()),
    "a line that is put in": ([SEEN, run("sed -i '3i import os.path' train.py")], set()),
    "a script in a file": ([SEEN, run("sed -i -f all.sed train.py")], set()),
    "a line that is put in, not seen": (
        [run("ls"), run("sed -i '3i import os.path' train.py")], {2}),
    "two files, one was seen": ([SEEN, run("sed -i s/1/2/ train.py b.py")], {2}),
    "perl": ([SEEN, run("perl -pi -e 's/a.b/c/' train.py")], set()),
    "perl, not seen": ([run("ls"), run("perl -pi -e 's/a.b/c/' train.py")], {2}),
    "with a dot before": ([look(TRAIN), run("sed -i s/1/2/ ./train.py")], set()),
    "absolute": ([look(TRAIN), run("sed -i s/1/2/ /abs/workspace/train.py")], set()),
    "after cd": ([look("src/train.py"), run("cd src && sed -i s/1/2/ train.py")], set()),
    "another folder": ([look("src/train.py"), run("cd lib && sed -i s/1/2/ train.py")], {2}),
    "a file without a dot": ([run("ls"), run("sed -i s/1/2/ Makefile")], {2}),
    "a name that the shell expands": (
        [run("ls"), run("for f in a b; do sed -i s/1/2/ $f.py; done")], set()),
    "opened absolute, then edited": ([look("/workspace/train.py"), change()], set()),
    "it fails absolute, then edited": (
        [run("python ./train.py", code=1), run("cat train.py"), change("./train.py")], {1}),
    "changed, then shown, at once": (
        [SEEN, run("sed -i s/1/2/ train.py && cat ./train.py"), change()], set()),
    "shown, then changed, at once": (
        [SEEN, run("cat train.py; sed -i s/1/2/ train.py"), change()], {3}),
    "changed in place by another name": (
        [SEEN, run("sed -i s/1/2/ train.py"), run("sed -i s/2/3/ ./train.py")], {3}),
    "the first host by its name": ([look(TRAIN), change(_host="local")], set()),
    "the first host by its name at first": (
        [call("open_file", "file", "1\tx", path=TRAIN, change="", _path=TRAIN, _host="local"),
         change()], set()),
    "another host": ([look(TRAIN), change(_host="gpu")], {2}),
    "what was written there": ([create(TRAIN), change(_host="local"), edit(TRAIN)], {3}),
}  # fmt: skip
SED = "sed -i s/1/2/ new.yaml"
WROTE = "cat > new.yaml <<'E'\na: 1\nE"
AT_ONCE: dict[str, tuple[Steps, set[int]]] = {
    "written, then changed": ([run(f"{WROTE}\n{SED}")], set()),
    "by another name": ([run("mkdir -p d; cat >./d/new.yaml <<E\na: 1\nE\ncd d && " + SED)], set()),
    "within a shell": ([run(f'bash -c "cat > new.yaml <<E\na: 1\nE\n{SED}"')], set()),
    "by a redirection": ([run(f"echo 'a: 1' > new.yaml && {SED}")], set()),
    "by tee": ([run(f"echo 'a: 1' | tee new.yaml && {SED}")], set()),
    "another was written": ([run(f"cat > old.yaml <<E\na: 1\nE\n{SED}")], {1}),
    "appended to": ([run(f"cat >> new.yaml <<E\na: 1\nE\n{SED}")], {1}),
    "appended to by tee": ([run(f"echo 'a: 1' | tee -a new.yaml; {SED}")], {1}),
    "changed, then written": ([run(f"{SED}\n{WROTE}")], {1}),
    "changed, written, changed by the next": ([run(f"{SED}\n{WROTE}"), run(SED)], {1}),
    "only shown by the same command": ([run(f"cat new.yaml; {SED}")], {1}),
    "written and changed, then changed by the next": ([run(f"{WROTE}\n{SED}"), run(SED)], {2}),
    "written without a blank, then changed by the next": (
        [run("cat >new.yaml<<E\na: 1\nE"), run(SED)], set()),
    "created and edited": ([(create(TRAIN), change())], set()),
    "created and changed in place": ([(create("new.yaml"), run(SED))], set()),
    "written and edited": ([(run(WROTE), change("new.yaml"))], set()),
    "replaced and edited": ([look(TRAIN), (create(TRAIN, change="replaced"), change())], set()),
    "looked at and edited": ([(look(TRAIN), change())], {1}),
    "shown and edited": ([(run("cat train.py"), change())], {1}),
    "edited, then written": ([(change(), create(TRAIN, change="replaced"))], {1}),
    "edited twice": ([(change(), change())], {1}),
    "it could not be created": (
        [(call("create_file", "file", "", False, path=TRAIN, change="created", _filename=TRAIN),
          change())], {1}),
    "another was created": ([(create("b.py"), change())], {1}),
    "created on another host": (
        [(call("create_file", "file", "1\tx", path=TRAIN, change="created", _filename=TRAIN,
               _content="x", _host="gpu"), change())], {1}),
    "created and edited on another host": (
        [(call("create_file", "file", "1\tx", path=TRAIN, change="created", _filename=TRAIN,
               _content="x", _host="gpu"), change(_host="gpu"))], set()),
}  # fmt: skip


@pytest.mark.parametrize("case", AT_ONCE)
def test_what_one_step_did_before_its_edit(case: str) -> None:
    steps, expected = AT_ONCE[case]
    masks = rule_catalog.run_rules(traced(steps, 'hosts = ["local", "gpu"]\n'))
    assert set(masks) == expected


@pytest.mark.parametrize("case", CASES)
def test_which_file_is_meant(case: str) -> None:
    steps, expected = CASES[case]
    assert set(rule_catalog.run_rules(traced(steps, 'hosts = ["local", "gpu"]\n'))) == expected


def test_the_first_host_may_have_another_name() -> None:
    task = 'hosts = ["gpu", "local"]\n'
    assert set(rule_catalog.run_rules(traced([look(TRAIN), change(_host="gpu")], task))) == set()
    assert set(rule_catalog.run_rules(traced([look(TRAIN), change(_host="local")], task))) == {2}
