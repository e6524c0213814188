"""How far guidance reaches: what it condemns before, what it forbids after, and what names it."""

from typing import Any

import pytest

from houston_daemon.review.rules import guidance_rule
from houston_shared.task_tables import RuleSettings
from tests.support.traced_rollouts import (
    Done,
    Step,
    Steps,
    begin,
    create,
    edit,
    finish,
    look,
    output,
    run,
    score,
    sleep,
    think,
    traced,
)

STOP = "Stop sleeping, the job has crashed."
FIRST = "Do not finish, improve the score first."
AGAIN = "Do not run train.py again, fix the loader first."
NO_LORA = "Do not use LoRA"
TRAIN = begin("python train.py")


def heard(text: str, *calls: Done) -> Step:
    """A step at whose end a person is heard."""
    return Step(*calls, said=text)


CASES: dict[str, tuple[Steps, dict[str, Any], set[int]]] = {
    "sleeps long before": ([sleep(), sleep(), look(), sleep(), heard(STOP, sleep())], {}, {4, 5}),
    "the sleep before the step that heard it": ([sleep(), heard(STOP, look())], {}, {1}),
    "a sleep before that": ([sleep(), look(), heard(STOP, look())], {}, set()),
    "no more than some steps": ([*[sleep()] * 5, heard(STOP, think())], {}, {3, 4, 5}),
    "as many as the task says": (
        [*[sleep()] * 5, heard(STOP, think())], {"guidance_call_steps": 1}, {5}),
    "none before": ([sleep(), heard(STOP, sleep())], {"guidance_steps": 0}, set()),
    "sleeping on": ([heard(STOP, look()), look(), sleep()], {}, {3}),
    "sleeping on, after something was done": (
        [heard(STOP, look()), edit(), sleep(), sleep()], {}, set()),
    "sleeping much later": ([heard(STOP, look()), look(), look(), look(), sleep()], {}, set()),
    "sleeping when another word came": (
        [heard(STOP, look()), heard("Look at the log.", look()), sleep()], {}, set()),
    "sleeping while a job runs": (
        [TRAIN, sleep(9, ["main"]), sleep(9, ["main"]), heard(STOP, sleep(9, ["main"])),
         sleep(9, ["main"])], {}, set()),
    "sleeping after it is known that nothing runs": (
        [TRAIN, sleep(9, ["main"]), sleep(9, []), sleep(9, []), heard(STOP, sleep(9, [])),
         sleep(9, [])], {}, {4, 5, 6}),
    "sleeping while something may run apart": (
        [run("nohup python train.py &"), sleep(), heard(STOP, sleep()), sleep()], {}, {4}),
    "the job is started again": (
        [heard(STOP, think()), TRAIN, sleep(), sleep(), output("", False, 0)], {}, set()),
    "finishing ten hours later": (
        [heard(FIRST, look()), *[create("a.py"), run("python a.py"), score(60)] * 5, finish()],
        {}, set()),
    "finishing at once": ([heard(FIRST, look()), think(), finish()], {}, {3}),
    "finishing after it was improved": (
        [heard(FIRST, look()), edit(), finish()], {}, set()),
    "evaluating later": (
        [score(1), heard("Don't submit, the format is wrong.", look()), edit(), score(9), edit(),
         score(10)], {}, {1}),
    "evaluating at once": (
        [heard("Don't submit, the format is wrong.", look()), score(1)], {}, {2}),
    "by the name of the call": (
        [score(1), edit(), heard("Do not use eval.", look()), edit(), score(1)], {}, set()),
    "run again": ([run("python train.py"), heard(AGAIN, look()), run("python train.py")], {},
                  {1, 3}),
    "run again after it was mended": (
        [run("python train.py"), heard(AGAIN, look()), edit("loader.py"), run("python train.py")],
        {}, {1}),
    "copied and shown": (
        [run("cp train.py backup/train.py"), heard("Do not run train.py.", look()),
         run("cp train.py backup/train.py"), run("git diff train.py"),
         run("wc -l train.py; python eval.py"), run("python a.py --script train")], {}, set()),
    "run in other ways": (
        [heard("Do not run train.py.", look()), run("cd src && torchrun --n 2 train.py"),
         create("all.sh", "python src/train.py\n"), run("bash all.sh"), run("./train.py")], {},
        {2, 4, 5}),
    "a program with a word": (
        [heard("Never run `make clean`!", look()), run("make"), run("make -j 4 clean")], {}, {3}),
    "a server by its module": (
        [heard("Do not start vllm.", look()), run("python -m vllm.serve m"), run("vllm serve m"),
         run("pip install vllm"), run("python bench.py --engine vllm")], {}, {2, 3}),
    "taken out": (
        [heard(NO_LORA, look()), run("git commit -am 'remove lora'"), run("rm -r lora"),
         run("mv lora_out old; tar cf lora.tar old"), run("sed -i s/lora/full/ run.sh"),
         run("pip uninstall -y lora")], {}, set()),
    "turned off": (
        [heard(NO_LORA, look()), run("python train.py --use_lora False"),
         run("python train.py --use_lora=0"), run("python train.py --no-lora"),
         run("USE_LORA=no python train.py lora.enabled=false"),
         create("run.sh", "python train.py --use_lora no\n"), run("bash run.sh"),
         create("a.yaml", "use_lora: false\n")], {}, set()),
    "used all the same": (
        [heard(NO_LORA, look()), run("python train.py --use_lora True"),
         run("python train.py --use_lora --lora_dropout 0"), run("USE_LORA=1 python train.py"),
         create("a.yaml", "use_lora: true\n"), run("python train.py --fp16 False --lora")], {},
        {2, 3, 4, 5, 6}),
    "used long before and long after": (
        [run("python train.py --lora"), *[look()] * 9, heard(NO_LORA, look()), *[look()] * 9,
         run("python train.py --lora")], {}, {1, 21}),
    "written of": ([heard(NO_LORA, look()), create("notes.md", "We do not use LoRA.")], {}, set()),
    "kept beside": (
        [heard("Stop editing config.json", look()), run("cp config.json old/config.json"),
         run("cp new.json config.json"), run("sed -i s/config.json/x/ a.sh")], {}, {3}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_how_far_guidance_reaches(case: str) -> None:
    steps, settings, expected = CASES[case]
    findings = list(guidance_rule.contradicted_guidance(traced(steps), RuleSettings(**settings)))
    assert {finding.step for finding in findings} == expected, findings
