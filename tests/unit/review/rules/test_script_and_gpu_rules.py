"""Scripts, compute and guidance: rules that look at what is written and run, near and far."""

from typing import Any

import pytest

from houston_daemon.review.rollout_trace import RuleFunction
from houston_daemon.review.rules import guidance_rule, idle_gpu_rule, script_rules
from houston_shared.task_tables import GuidanceContradiction, RuleSettings
from tests.support.traced_rollouts import (
    Done,
    Step,
    Steps,
    begin,
    call,
    create,
    edit,
    kill,
    listing,
    look,
    output,
    run,
    sleep,
    think,
    traced,
)

Case = tuple[Steps, dict[str, Any], set[int]]
"""Steps; settings of `[rules]`, and with a leading `_` what the rollout has; steps masked."""

GIVEN = {"_instructions": "Answers are made by `scripts/inference.py`; train with train.py."}
OWN = create("inference_new.py", "print('mine')\n")
RUN_OWN = run("python inference_new.py --out answers.json")
LISTED = listing("inference.py  120\nREADME.md  3", "scripts")


def shown(command: str) -> Done:
    """A command at whose end a listing shows one script."""
    return run(f"{command}; ls -la", "-rw-r--r-- 1 a a 120 inference.py\n")


IGNORED: dict[str, Case] = {
    "made and run instead": ([OWN, RUN_OWN], GIVEN, {1, 2}),
    "its edits, too": ([OWN, look("inference_new.py"), edit("inference_new.py", "print(2)"),
                        RUN_OWN, RUN_OWN], GIVEN, {1, 3, 4, 5}),
    "by a here-document": (
        [run("cat > my_inference.py <<'E'\nx\nE"), run("python my_inference.py")],
                           GIVEN, {1, 2}),
    "of the same name elsewhere": ([create("inference.py"), run("python ./inference.py")], {
        **GIVEN, "_instructions": "see /data/x/inference.py"}, {1, 2}),
    "found in a listing": ([LISTED, OWN, RUN_OWN], {}, {2, 3}),
    "listed in the step that makes another": ([(LISTED, OWN), RUN_OWN], {}, {1, 2}),
    "listed after commands that only look": (
        [run("cat README.md 2>/dev/null | head; nvidia-smi > /dev/null"), run("git log"),
         call("get_file_info", "info", path="a"), LISTED, OWN, RUN_OWN], {}, {5, 6}),
    "listed after a command that changed no file": (
        [Step(run("python -c 'import torch'"), changed=False), LISTED, OWN, RUN_OWN], {}, {3, 4}),
    "an edit of it is no creation": (
        [edit("scripts/inference.py"), look("scripts/inference.py"), OWN, RUN_OWN], {}, {3, 4}),
    "its own, by a here-document, and listed at once": (
        [shown("cat > inference.py <<'E'\nprint(1)\nE\n"), OWN, look(OWN["fields"]["path"]),
         edit("inference_new.py", "print(2)"), RUN_OWN], {}, set()),
    "its own, by echo": ([shown("echo 'print(1)' > inference.py"), OWN, RUN_OWN], {}, set()),
    "its own, by printf": ([shown("printf 'x' >> inference.py"), OWN, RUN_OWN], {}, set()),
    "its own, by tee": ([shown("echo x | tee inference.py"), OWN, RUN_OWN], {}, set()),
    "its own, copied": ([shown("cp a.py inference.py"), OWN, RUN_OWN], {}, set()),
    "its own, moved": ([shown("mv a.py inference.py"), OWN, RUN_OWN], {}, set()),
    "its own, made by a program": (
        [run("python make.py"), run("ls", "inference.py\n"), OWN, RUN_OWN], {}, set()),
    "its own, made in a string that runs": (
        [run('echo "$(python make.py)"'), run("ls", "inference.py\n"), OWN, RUN_OWN], {}, set()),
    "its own, made by a command that still runs": (
        [Step(begin("python make.py", session="b"), changed=False), sleep(), LISTED, OWN, RUN_OWN],
        {}, set()),
    "its own, made outside of the workspace": (
        [Step(run("git clone https://x/y /tmp/y"), changed=False),
         run("ls /tmp/y", "inference.py\n"), OWN, RUN_OWN], {}, set()),
    "its own, made and opened in one step": (
        [(create("inference.py"), look("inference.py")), OWN, RUN_OWN], {}, set()),
    "a repository that it cloned": (
        [run("git clone https://x/y"), listing("main.py  9", "y"), create("main_new.py"),
         run("python main_new.py")], {}, set()),
    "the instructions ask for it, it writes it by the shell": (
        [run("echo 'print(1)' > solve.py"), create("solve_v2.py"), run("python solve_v2.py")],
        {"_instructions": "Write solve.py."}, set()),
    "the instructions ask for it, it copies it": (
        [run("cp draft.py solve.py"), create("solve_v2.py"), run("python solve_v2.py")],
        {"_instructions": "Write solve.py."}, set()),
    "the instructions name what it appends to": (
        [run("echo x >> scripts/inference.py"), OWN, RUN_OWN], GIVEN, {2, 3}),
    "seen when it was opened": ([look("src/inference.py"), OWN, RUN_OWN], {}, {2, 3}),
    "named by the task's settings": ([OWN, RUN_OWN], {"provided": ("bin/inference.py",)}, {1, 2}),
    "made, but never run": ([OWN, run("python scripts/inference.py")], GIVEN, set()),
    "the given one is run": ([run("python scripts/inference.py")], GIVEN, set()),
    "it calls the given one": ([create("inference_new.py", "import inference\ninference.main()"),
                                RUN_OWN], GIVEN, set()),
    "a loop around it": ([create("my_inference.sh", "for i in 1 2; do python scripts/inference.py; "
                                 "done"), run("bash my_inference.sh")], GIVEN, set()),
    "it makes training data": ([create("inference_new.py", "rows = open('train.jsonl')"), RUN_OWN],
                               GIVEN, set()),
    "the given one fails": (
        [run("python scripts/inference.py", code=1), OWN, RUN_OWN], GIVEN, set()),
    "nothing is given": ([OWN, RUN_OWN], {}, set()),
    "the instructions ask for it": (
        [create("solve.py"), run("python solve.py"), create("solve_v2.py"),
         run("python solve_v2.py")], {"_instructions": "Write solve.py."}, set()),
    "its own, written anew": ([create("inference.py"), OWN, RUN_OWN], {}, set()),
    "another purpose": ([create("plot_inference_times.py"), run("python plot_inference_times.py")],
                        GIVEN, set()),
    "for several machines": (
        [create("inference_multi_gpu.py"), run("python inference_multi_gpu.py")],
                             GIVEN, set()),
}  # fmt: skip

HF = (
    "from transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained(p)\nprint(model.generate(x))\n"
)
VLLM = "from vllm import LLM\nllm = LLM(p)\nprint(llm.generate(x))\n"
GPUS = {"_gpus": {"local": 8}}
SLOW: dict[str, Case] = {
    "from its creation to every run": (
        [create("gen.py", HF), run("python gen.py"), run("ls"), run("bash -c 'python gen.py'")],
        GPUS, {1, 2, 4}),
    "run by a shell script of the agent's": (
        [create("gen.py", HF), create("all.sh", "ls\npython gen.py --k 1\n"), run("bash all.sh")],
        GPUS, {1, 3}),
    "an edit makes it so": ([create("gen.py", "x = 1\n"), run("python gen.py"),
                             edit("gen.py", HF, 1, 1), run("python gen.py")], GPUS, {3, 4}),
    "an edit mends it": ([create("gen.py", HF), edit("gen.py", VLLM, 1, 3), run("python gen.py")],
                         GPUS, {1}),
    "on the command line": ([run("python - <<'E'\n" + HF + "E")], GPUS, {1}),
    "a pipeline": (
        [create("g.py", "from transformers import pipeline\np = pipeline('text-generation"
                           "')\n")], GPUS, {1}),
    "the instructions name vLLM": ([create("gen.py", HF)], {"_instructions": "vLLM is installed."},
                                   {1}),
    "the task says so": ([create("gen.py", HF)], {"vllm": True}, {1}),
    "without GPUs there may be none": ([create("gen.py", HF)], {}, set()),
    "it turned out to be missing": (
        [run("python -c 'import vllm'", "No module named 'vllm'", 1), create("gen.py", HF)], GPUS,
        set()),
    "vLLM is used": ([create("gen.py", VLLM), run("python gen.py")], GPUS, set()),
    "an adapter is merged, vLLM samples": (
        [create("m.py", HF.replace("print(model.generate(x))", "model.save_pretrained(p)") + VLLM),
         run("python m.py")], GPUS, set()),
    "vLLM is only named": ([create("gen.py", "# no vllm here\n" + HF)], GPUS, {1}),
    "it trains": (
        [create("t.py", HF + "Trainer(model).train()\n"), run("python t.py")], GPUS, set()),
    "it is only read": ([look("gen.py", HF), run("grep from_pretrained gen.py")], GPUS, set()),
}  # fmt: skip

ONE = "CUDA_VISIBLE_DEVICES=0 python train.py"
LORA = "torchrun --nproc_per_node 8 train.py --use_lora"
EACH = "for i in 0 1 2 3 4 5 6 7; do CUDA_VISIBLE_DEVICES=$i python train.py --seed $i & done; wait"
EIGHT = run("torchrun --nproc_per_node=8 train.py")
EXPORTED = run("export CUDA_VISIBLE_DEVICES=0")


def session(name: str, change: str, **more: Any) -> Done:
    """A session that was opened or closed."""
    return call(name, "session", session_id=more.pop("session_id", "main"), change=change, **more)


SHOWN = "|   0  NVIDIA H100 80GB  On |\n|   1  NVIDIA H100 80GB  On |\n"
IDLE: dict[str, Case] = {
    "one of eight": ([run(ONE)], GPUS, {1}),
    "all of eight": ([run("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 python train.py")], GPUS, set()),
    "processes": ([run("torchrun --nproc_per_node=2 train.py")], GPUS, {1}),
    "as many processes": ([run("torchrun --nproc-per-node 8 train.py")], GPUS, set()),
    "torchrun without a number": ([run("torchrun train.py")], GPUS, {1}),
    "accelerate": ([run("accelerate launch --num_processes 4 sft.py")], GPUS, {1}),
    "exported before": ([run("export CUDA_VISIBLE_DEVICES=3"), run("python train.py")], GPUS, {2}),
    "exported in parentheses": (
        [run("(export CUDA_VISIBLE_DEVICES=3; ls)"), run("python train.py")], GPUS, set()),
    "exported by a shell of its own": (
        [run("bash -c 'export CUDA_VISIBLE_DEVICES=3'"), run("python train.py")], GPUS, set()),
    "exported and run by a shell of its own": (
        [run("bash -c 'export CUDA_VISIBLE_DEVICES=3; python train.py'"), run("python train.py")],
        GPUS, {1}),
    "unset in parentheses": (
        [run("export CUDA_VISIBLE_DEVICES=3"), run("(unset CUDA_VISIBLE_DEVICES; ls)"),
         run("python train.py")], GPUS, {3}),
    "exported in another session": ([run("export CUDA_VISIBLE_DEVICES=3", session="b"),
                                     run("python train.py")], GPUS, set()),
    "inside of a shell script, which is masked, too": (
        [create("go.sh", f"#!/bin/bash\n{ONE}\n"), run("bash go.sh")], GPUS, {1, 2}),
    "taken by the agent's program": (
        [create("train.py", "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"), run("python train.py")],
        GPUS, {1, 2}),
    "few processes on all of them": (
        [run("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 torchrun --nproc_per_node=2 train.py")], GPUS,
        {1}),
    "one after the other is not beside": (
        [run("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py --a"),
         run("CUDA_VISIBLE_DEVICES=4,5,6,7 python train.py --b")], GPUS, {1, 2}),
    "both in the background": (
        [run("CUDA_VISIBLE_DEVICES=0,1,2,3 nohup python train.py --a > a.log &"),
         run("CUDA_VISIBLE_DEVICES=4,5,6,7 nohup python train.py --b > b.log &")], GPUS, set()),
    "both by one command": (
        [run("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py & CUDA_VISIBLE_DEVICES=4,5,6,7 python"
             " train.py; wait")], GPUS, set()),
    "each in a loop": ([run(EACH)], GPUS, set()),
    "each in a loop of a script": ([create("go.sh", EACH), run("bash go.sh")], GPUS, set()),
    "named by a variable": (
        [run("GPUS=0,1,2,3,4,5,6,7; CUDA_VISIBLE_DEVICES=$GPUS python train.py")], GPUS, set()),
    "named by a program": (
        [run("CUDA_VISIBLE_DEVICES=$(seq -s, 0 7) python train.py"),
         run("export CUDA_VISIBLE_DEVICES=`cat gpus`"), run("python train.py")], GPUS, set()),
    "named by a variable, few processes": (
        [run("CUDA_VISIBLE_DEVICES=$A torchrun --nproc_per_node=2 train.py")], GPUS, set()),
    "one beside another that a variable names": (
        [run("CUDA_VISIBLE_DEVICES=$A python train.py & CUDA_VISIBLE_DEVICES=0 python train.py")],
        GPUS, set()),
    "one after another that a variable names": (
        [run("CUDA_VISIBLE_DEVICES=$A python train.py"), *[sleep()] * 4, run(ONE)], GPUS, {6}),
    "as many processes as a variable says": (
        [run("torchrun --nproc_per_node=$N train.py"), run("torchrun --nproc_per_node gpu t.py")],
        GPUS, set()),
    "taken back in the session": (
        [EXPORTED, run("unset CUDA_VISIBLE_DEVICES"), EIGHT], GPUS, set()),
    "taken back in the command": (
        [run("export CUDA_VISIBLE_DEVICES=0; python a.py; unset CUDA_VISIBLE_DEVICES; torchrun"
             " --nproc_per_node=8 train.py")], GPUS, set()),
    "another is taken back": ([EXPORTED, run("unset WANDB_MODE"), EIGHT], GPUS, {3}),
    "taken back, then given to one run": (
        [EXPORTED, run("unset CUDA_VISIBLE_DEVICES"), run(ONE)], GPUS, {3}),
    "its session was closed": (
        [EXPORTED, session("close_session", "closed", closed=("main",)), EIGHT], GPUS, set()),
    "all sessions were closed": (
        [EXPORTED, session("close_all_sessions", "closed", session_id="", closed=("main", "b")),
         EIGHT], GPUS, set()),
    "all were closed on every host": (
        [run("export CUDA_VISIBLE_DEVICES=0", _host="local"),
         session("close_all_sessions", "closed", session_id="", closed=("local:main",),
                 _host="all"),
         run("torchrun --nproc_per_node=8 train.py", _host="local")], GPUS, set()),
    "another was closed": (
        [EXPORTED, session("close_session", "closed", session_id="b", closed=("b",)), EIGHT], GPUS,
        {3}),
    "it was opened anew": ([EXPORTED, session("create_session", "created"), EIGHT], GPUS, set()),
    "it was open already": ([EXPORTED, session("create_session", "found"), EIGHT], GPUS, {3}),
    "it was only cleared": (
        [EXPORTED, session("clear_session_buffer", "cleared"), EIGHT], GPUS, {3}),
    "its shell ended": (
        [EXPORTED, run("exit", end="its shell exited"), EIGHT], GPUS, set()),
    "none at all is no training": (
        [run('CUDA_VISIBLE_DEVICES="" python split_train_test.py'),
         run("export CUDA_VISIBLE_DEVICES="), run("python make_train_set.py"),
         run("CUDA_VISIBLE_DEVICES=-1 python train_tokenizer.py")], GPUS, set()),
    "none, by the agent's program": (
        [create("train.py", "os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"), run("python train.py")],
        GPUS, set()),
    "deepspeed on some": ([run("deepspeed --include localhost:0,1 train.py")], GPUS, {1}),
    "LoRA in the program": ([create("train.py", "m = get_peft_model(m, LoraConfig(r=8))\n"),
                             run("torchrun --nproc_per_node 8 train.py")],
                            {**GPUS, "lora_gpus": 8}, {2}),
    "as nvidia-smi showed": ([run("nvidia-smi", SHOWN), run(ONE)], {}, {2}),
    "as the task says": ([run(ONE)], {"gpus": 4}, {1}),
    "how many there are is not known": ([run(ONE)], {}, set()),
    "there is one": ([run(ONE)], {"_gpus": {"local": 1}}, set()),
    "of another host": ([run(ONE, _host="gpu2")], GPUS, set()),
    "a command that the task knows": ([run("CUDA_VISIBLE_DEVICES=0 ./go fit")],
                                      {**GPUS, "training": (r"\bgo fit\b",)}, {1}),
    "it does not train": ([run("CUDA_VISIBLE_DEVICES=0 python infer.py")], GPUS, set()),
    "two runs share them": (
        [begin("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py --a", session="a"),
         begin("CUDA_VISIBLE_DEVICES=4,5,6,7 python train.py --b", session="b")], GPUS, set()),
    "a server has the others": (
        [begin("CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve m", session="s"), *[sleep()] * 5,
         run("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py")], GPUS, set()),
    "the server had ended": (
        [begin("CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve m", session="s"), kill("s"), *[sleep()] * 5,
         run("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py")], GPUS, {8}),
    "it only tries whether it works": ([run(f"{ONE} --max_steps 5"), run(f"{ONE} --debug")], GPUS,
                                       set()),
    "LoRA where that counts": ([run(LORA)], {**GPUS, "lora_gpus": 8}, {1}),
    "LoRA where it does not": ([run(LORA)], GPUS, set()),
    "LoRA on few GPUs": ([run(LORA)], {**GPUS, "lora_gpus": 16}, set()),
    "LoRA turned off": ([run("torchrun --nproc_per_node 8 train.py --use_lora=false")],
                        {**GPUS, "lora_gpus": 8}, set()),
}  # fmt: skip


def heard(text: str, *calls: Done) -> Step:
    """A step at whose end a person is heard."""
    return Step(*calls, said=text)


CONTRADICTED: dict[str, Case] = {
    "done before and after": ([run("python sweep.py"), run("ls"), heard("Stop running sweep.py",
                               think()), run("python sweep.py"), run("ls")], {}, {1, 4}),
    "it was the step that heard it": ([heard("Stop running sweep.py", run("python sweep.py"))], {},
                                      {1}),
    "only what comes": ([run("python sweep.py"), heard("Stop running sweep.py", think()),
                         run("python sweep.py")], {"guidance_steps": 0}, {3}),
    "only what was just before": ([run("python sweep.py"), run("ls"), run("python sweep.py"), heard(
        "Stop running sweep.py", think())], {"guidance_steps": 2}, {3}),
    "a file that uses it, and its runs": (
        [create("gen.py", "import pandas\n"), run("python gen.py"), heard("Do not use pandas.",
         think()), run("python gen.py"), create("gen.py", "import csv\n", "replaced"),
         run("python gen.py")], {}, {1, 2, 4}),
    "for a purpose": ([create("infer.py", "import transformers\n"), create("train.py",
                       "import transformers\n"), heard("Do not use transformers for inference.",
                       think())], {}, {1}),
    "editing a file": ([edit("config.json"), heard("Stop editing config.json", think()),
                        run("sed -i s/1/2/ config.json"), run("cat config.json"),
                        look("config.json")], {}, {1, 3}),
    "a call": ([heard("Stop sleeping.", sleep()), sleep(), run("ls")], {}, {1, 2}),
    "allowed again": ([heard("Do not use pandas.", think()), run("python -c 'import pandas'"),
                       heard("You can use pandas now.", think()), run("python -c 'import pandas'")],
                      {}, {2}),
    "a part of a longer name": ([heard("Do not use LoRA.", think()), run("python t.py --use_lora"),
                                 run("python explore.py floral")], {}, {2}),
    "only named": (
        [heard("Do not use pandas.", think()), run("grep -rn pandas ."), look("pandas.md"),
                    create("notes.txt", "# pandas is slow\n"), think()], {}, set()),
    "a pattern of the task": (
        [run("python train.py --use_lora"), heard("We want full fine-tuning!", think()),
         create("run.sh", "python train.py --lora\n"), run("bash run.sh"), run("python train.py")],
        {"guidance": (GuidanceContradiction(said="full fine-?tuning", action=r"--(use_)?lora"),)},
        {1, 3, 4}),
    "words are not looked at": ([heard("Do not use pandas.", think()), run("pandas x")],
                                {"guidance_found": False}, set()),
    "a condition is for a reader": ([heard("Do not run a.py until it is mended.", think()),
                                     run("python a.py")], {}, set()),
    "nobody spoke": ([run("python sweep.py")], {}, set()),
}  # fmt: skip

TABLES: dict[str, tuple[RuleFunction, dict[str, Case]]] = {
    "ignored_script": (script_rules.ignored_script, IGNORED),
    "transformers_inference": (script_rules.transformers_inference, SLOW),
    "idle_compute": (idle_gpu_rule.idle_compute, IDLE),
    "contradicted_guidance": (guidance_rule.contradicted_guidance, CONTRADICTED),
}


@pytest.mark.parametrize(
    ("rule", "case"), [(rule, case) for rule, (_, cases) in TABLES.items() for case in cases]
)
def test_what_is_masked(rule: str, case: str) -> None:
    masks, cases = TABLES[rule]
    steps, options, expected = cases[case]
    settings = RuleSettings(**{key: value for key, value in options.items() if key[0] != "_"})
    around = {key[1:]: value for key, value in options.items() if key[0] == "_"}
    findings = list(masks(traced(steps, **around), settings))
    assert {finding.step for finding in findings} == expected, findings
    assert all(finding.reason for finding in findings)


def test_a_reason_says_what_was_said_and_which_file_was_meant() -> None:
    steps: Steps = [create("g.py", HF), run("python g.py"), heard("Stop running g.py", output())]
    trace = traced(steps, gpus={"local": 8})
    assert dict(script_rules.transformers_inference(trace, RuleSettings())) == {
        1: "g.py samples with transformers and not with vLLM",
        2: "runs g.py of step 1, which samples with transformers and not with vLLM",
    }
    assert dict(guidance_rule.contradicted_guidance(trace, RuleSettings())) == {
        2: "run_command with g.py, before a person said in step 3: Stop running g.py",
    }
