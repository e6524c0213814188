"""Scores are SQuAD's, splits share no question, and a seed always asks the same one."""

import json
from collections import Counter
from pathlib import Path

import pytest

from houston_daemon.environments.questions.answer_scoring import exact_match, normal, token_f1
from houston_daemon.environments.questions.question_set import choose_question, read_questions
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError
from houston_shared.task import load_task
from houston_shared.task_tables import QuestionSettings

PACKAGED = Path(__file__).parents[3] / "daemon" / "houston_daemon" / "demo" / "tasks" / "search-qa"
# What SQuAD's evaluate-v1.1.py gives for the same pairs, where both are of the Latin script and no
# numbers.
SCORES = [
    ("The Eiffel Tower!", ["eiffel tower"], 1.0, 1.0),
    ("a cat sat", ["the cat sat down"], 0.0, 0.8),
    ("1,000", ["1000"], 1.0, 1.0),
    ("1.5", ["15"], 0.0, 1.0),
    ("-5", ["5"], 0.0, 1.0),
    ("3/4", ["34"], 0.0, 1.0),
    ("1e-3", ["1e3"], 0.0, 1.0),
    ("$1.50.", ["1.5"], 1.0, 0.0),
    ('"1998"', ["1998"], 1.0, 1.0),
    *((wrong, ["15"], 0.0, 1.0) for wrong in ("**1.5**", "[1.5]", "1.5;", "1.5,", "~1.5")),
    *((right, ["1.5"], 1.0, 1.0) for right in ("**1.5**", "[1.5]", "1.5;", "the 1.5,", "_1.5_.")),
    *((wrong, ["5"], 0.0, 1.0) for wrong in ("(-5)", "-(5)", "**-5**")),
    ("-$5", ["5"], 0.0, 1.0),
    ("（1.5）", ["15"], 0.0, 1.0),
    ("-€5", ["5"], 0.0, 0.0),
    ("(-$5)", ["-5"], 1.0, 1.0),
    ("**1,000**", ["1000"], 1.0, 1.0),
    ("1.000.000", ["1000000"], 1.0, 1.0),
    ("(1e3)", ["1000"], 1.0, 0.0),
    ("10%", ["10"], 1.0, 1.0),
    ("well-known", ["wellknown", "x"], 1.0, 1.0),
    ("Paris, France", ["Paris", "Lyon"], 0.0, 2 / 3),
    ("the the cat", ["cat cat"], 0.0, 2 / 3),
    ("nothing", ["else"], 0.0, 0.0),
    ("the", ["an"], 1.0, 0.0),  # both are empty: the script says so too
    ("über", ["uber"], 0.0, 0.0),
    ("Beyonce\u0301", ["Beyonc\u00e9"], 1.0, 1.0),
    ("《雾中钟楼》", ["雾中钟楼"], 1.0, 1.0),
    ("雾中的钟楼", ["雾中钟楼"], 0.0, 8 / 9),
]


@pytest.mark.parametrize(("answer", "gold", "exact", "f1"), SCORES)
def test_scores(answer: str, gold: list[str], exact: float, f1: float) -> None:
    assert exact_match(answer, gold) == exact
    assert token_f1(answer, gold) == pytest.approx(f1)


def written(folder: Path, *rows: object) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return file


def rows(count: int, **more: object) -> list[dict[str, object]]:
    return [
        {"id": f"q{n}", "question": f"What is {n}?", "answers": [str(n)], **more}
        for n in range(count)
    ]


def test_a_set_without_splits_gets_them_by_its_questions(tmp_path: Path) -> None:
    questions = read_questions(written(tmp_path, *rows(500)))
    again = read_questions(written(tmp_path, *reversed(rows(500))))
    assert {q.id: q.split for q in questions} == {q.id: q.split for q in again}
    assert 60 < Counter(q.split for q in questions)["test"] < 140
    train, test = (
        {
            normal(choose_question(questions, QuestionSettings(split=s), seed, "").question)
            for seed in range(430)
        }
        for s in ("train", "test")
    )
    assert len(train) + len(test) == 500 and not train & test


def test_seeds_go_through_all_questions_before_one_comes_again(tmp_path: Path) -> None:
    questions = read_questions(written(tmp_path, *rows(10, split="train")))
    other = read_questions(written(tmp_path, *reversed(rows(10, split="train"))))

    def ask(seed: int, of: object = questions, **settings: object) -> str:
        return choose_question(of, QuestionSettings(**settings), seed, "").id  # type: ignore[arg-type]

    first = [ask(seed) for seed in range(10)]
    assert sorted(first) == sorted(one.id for one in questions)
    assert [ask(seed) for seed in range(10, 20)] == first
    assert [ask(seed, other) for seed in range(10)] == first, "whatever the order of the file"
    grouped = [ask(seed, repeat=4) for seed in range(40)]
    assert [grouped[i : i + 4] for i in range(0, 40, 4)] == [[one] * 4 for one in first]
    assert ask(7, id="q3") == "q3"
    with pytest.raises(ConfigurationError, match="id 'q77'"):
        ask(7, id="q77")
    with pytest.raises(ConfigurationError, match="split 'test'"):
        ask(7, split="test")


GOOD = {"question": "Who?", "answers": ["Ada"], "split": "train"}
BAD = [
    ("{broken", "line 2: not JSON"),
    ("[1]", "line 2: not a JSON object"),
    ({**GOOD, "question": " "}, "line 2: `question`"),
    ({**GOOD, "answers": []}, "line 2: `answers`"),
    ({**GOOD, "answers": ["x", 7]}, "line 2: `answers`"),
    ({**GOOD, "question": "Whom?", "split": "dev"}, "`split` is 'dev'"),
    ({**GOOD, "question": "who", "split": "test"}, "repeats the question of line 1"),
    ({**GOOD, "question": "Whom?", "id": "1"}, "also that of line 1"),
]


@pytest.mark.parametrize(("row", "words"), BAD)
def test_a_wrong_line_is_named(tmp_path: Path, row: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_questions(written(tmp_path, GOOD, row))


def test_sets_of_retrieval_benchmarks_are_read(tmp_path: Path) -> None:
    (one,) = read_questions(
        written(tmp_path, {"id": "test_0", "question": "Who?", "golden_answers": ["Ada", "A."]}, "")
    )
    assert one.answers == ("Ada", "A.")


def test_a_set_of_another_editor_is_read(tmp_path: Path) -> None:
    """A byte order mark, CR LF, and separators that JSON holds as they are."""
    file = tmp_path / "questions.jsonl"
    line = '{"question": "Which\u2028one?", "answers": ["a\u0085b"]}\r\n'
    file.write_bytes(("\ufeff" + line + '{"question": "Two?", "answers": ["2"]}').encode())
    one, two = read_questions(file)
    assert (one.question, one.answers, two.id) == ("Which\u2028one?", ("a\u0085b",), "2")


TASKS = [
    ('[search]\ncorpus = "c.jsonl"\n', "needs the key `questions.file`"),
    ('[questions]\nfile = "q.jsonl"\n', "needs the key `search.corpus`"),
    ('[search]\ncorpus = "none"\n[questions]\nfile = "q.jsonl"\n', "`search.corpus` names"),
    ('[search]\ncorpus = "c.jsonl"\n[questions]\nfile = "z.jsonl"\n', "z.jsonl cannot be read"),
    ('tools = ["search"]\n[search]\ncorpus = "c.jsonl"\n', "leaves out 'answer'"),
    ('tools = ["eval", "answer"]\n[search]\ncorpus = "c.jsonl"\n', "names 'eval'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), TASKS)
def test_a_task_that_cannot_run_is_refused_before_it_starts(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "q.jsonl").write_text(json.dumps(GOOD) + "\n")
    head = 'name = "t"\ninstructions = "Answer."\nenvironment = "search_qa"\n'
    (tmp_path / "task.toml").write_text(head + text)
    with pytest.raises(ConfigurationError, match=words):
        check_task_names(load_task(tmp_path))


def test_the_packaged_task_is_sound() -> None:
    task = load_task(PACKAGED)
    check_task_names(task)
    questions = read_questions(PACKAGED / "questions.jsonl")
    texts = [json.loads(line)["text"] for line in (PACKAGED / "corpus.jsonl").open()]
    assert len(texts) == 62 and Counter(q.split for q in questions) == {"train": 24, "test": 8}
    for question in questions:
        assert any(answer in text for answer in question.answers for text in texts), question
        assert not any(normal(answer) in normal(question.question) for answer in question.answers)
