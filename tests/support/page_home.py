"""A home with one rollout that has everything a page shows: scores, guidance, verdicts, diffs,
colours, signals, and texts that are hostile on purpose."""

from pathlib import Path

from houston_shared.records import FileChange
from tests.console.home_builder import Calls, HomeBuilder

ROLLOUT = "faster-kernel-7f3a"
HOSTILE = (
    "</pre></details><script>document.title='taken'</script>"
    "<img src=x onerror=\"document.title='taken'\"> &lt; \x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m"
    "\x00\x07 \u202egnp.exe"
)
DIFF = """--- a/kernel.py
+++ b/kernel.py
@@ -12,7 +12,9 @@ def attention(q, k, v, mask):
     scale = q.size(-1) ** -0.5
-    scores = (q @ k.transpose(-2, -1)) * scale
-    return scores.softmax(-1) @ v
+    with torch.backends.cuda.sdp_kernel(enable_flash=True):
+        return F.scaled_dot_product_attention(
+            q, k, v, attn_mask=mask, scale=scale
+        )

 def benchmark(steps: int = 200) -> float:
"""
PYTEST = (
    "\x1b[1m============ test session starts ============\x1b[0m\n"
    "collected 14 items\n\n"
    "tests/test_kernel.py \x1b[32m.\x1b[0m\x1b[32m.\x1b[0m\x1b[31mF\x1b[0m\x1b[32m.........\x1b[0m"
    "\x1b[33ms\x1b[0m\x1b[32m.\x1b[0m\n\n"
    "\x1b[31m\x1b[1mE   AssertionError: max difference 0.031 is above 1e-3\x1b[0m\n"
    "\x1b[38;5;208mwarning\x1b[0m: \x1b[38;2;80;160;255m2 caches were cold\x1b[0m\n"
    "\x1b[31m1 failed\x1b[0m, \x1b[32m12 passed\x1b[0m, \x1b[33m1 skipped\x1b[0m in 8.41s"
)
READ: Calls = (("read_file", {"path": "kernel.py", "first": 1, "last": 80}),)
SLEEP: Calls = (
    ("run_command", {"command": "python train.py --epochs 40 > train.log &", "wait": 600}),
)
CHECK: Calls = (("run_command", {"command": "pytest -q tests/test_kernel.py --color=yes"}),)
EDIT: Calls = (
    ("edit_file", {"path": "kernel.py", "new": "\n".join(DIFF.splitlines()[6:10])}),
    ("run_command", {"command": "python bench.py --repeat 5"}),
)


def build_page_home(path: Path, rollout: str = ROLLOUT) -> None:
    """Write it."""
    with HomeBuilder(path) as home:
        home.start(
            rollout,
            task="faster-kernel",
            instructions="Make attention() in kernel.py as fast as you can, and keep its results.\n"
            "Submissions are scored by speed against the reference, 100 is three times as fast.",
        )
        home.whole(
            rollout, 1, "First I look at what is there.", texts=("bench.py\nkernel.py\ntests/",)
        )
        home.whole(
            rollout, 2, "The kernel is a plain softmax.", READ, ("def attention(q, k, v): …",)
        )
        home.whole(
            rollout, 3, "A training run will tell me what dominates.", SLEEP, ("Slept 600 s.",),
            attention=("sleeps",), reasons={"sleeps": "nothing was done for 10 minutes"},
        )  # fmt: skip
        home.say(rollout, "g1", "Do not train: measure attention() alone with bench.py.", "ada")
        home.whole(rollout, 4, "I wait for the run.", SLEEP, ("Slept 600 s.",))
        home.judged(rollout, 3, 4, "mask", "waited for a training that nobody asked for")
        home.whole(
            rollout, 5, "Right: fused attention, then measure.", EDIT,
            ("Edited kernel.py.", "reference 41.2 ms\nkernel    19.8 ms (2.08x)"),
            files=(
                FileChange(path="kernel.py", kind="changed", added=4, removed=2, diff=DIFF),
                FileChange(path="weights.bin", kind="added", added=0, removed=0, note="4 MB"),
            ),
        )  # fmt: skip
        home.scored(rollout, 6, "Submit what is there.", 52.5)
        home.whole(rollout, 7, "Are the results the same?", CHECK, (PYTEST,), success=False)
        home.judged(rollout, 5, 6, "keep", "measured, then submitted", source="judge", by="judge")
        home.rewarded(rollout, 7, 0.21)
        home.say(
            rollout, "g2", "The mask is additive there: pass it as a float, not as a bool.", "lin"
        )
        home.whole(rollout, 8, HOSTILE, texts=(HOSTILE,))
        home.whole(rollout, 9, "A longer log.", texts=("line of a log\n" * 20_000,))
        home.scored(rollout, 10, "The mask as a float keeps the results.", 91.0)
        home.marked(rollout, 10, "ada", "the turn that mattered")
        home.say(rollout, "g3", "Good. Write down what you changed.", "ada")
        home.take_back(rollout, "g3")
        home.state(rollout, "finished", "worker", "submitted")
