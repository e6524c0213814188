"""Edits of what was not looked at, by names that are written in several ways: which file is meant,
and on which host.
"""

import pytest

from houston_daemon.supervision.rules import catalog
from tests.support.traced import Done, Steps, call, create, edit, look, run, traced

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


@pytest.mark.parametrize("case", CASES)
def test_which_file_is_meant(case: str) -> None:
    steps, expected = CASES[case]
    assert set(catalog.found(traced(steps, 'hosts = ["local", "gpu"]\n'))) == expected


def test_the_first_host_may_have_another_name() -> None:
    task = 'hosts = ["gpu", "local"]\n'
    assert set(catalog.found(traced([look(TRAIN), change(_host="gpu")], task))) == set()
    assert set(catalog.found(traced([look(TRAIN), change(_host="local")], task))) == {2}
