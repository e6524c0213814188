"""Says whether an answer is mathematically the same as a gold answer, as a separate program.

    python -P -m houston_daemon.environments.questions.math_child SECONDS

stdin: JSON `{"answer": …, "gold": […]}`; stdout: JSON `{"same": true|false}`. math-verify parses
and compares with sympy, which may take any time and memory: the caller ends this program; if the
caller is gone, it ends itself after so many seconds of processor time.
"""

import json
import resource
import sys

_MEMORY_BYTES = 2 << 30


def same_value(answer: str, gold: str) -> bool:
    """Whether math-verify takes them for the same; what cannot be parsed is not."""
    from math_verify import parse, verify

    right = parse(_as_math(gold), parsing_timeout=None)
    read = (parse(text, parsing_timeout=None) for text in (answer, _as_math(answer)))
    return any(right and each and verify(right, each, timeout_seconds=None) for each in read)


def _as_math(text: str) -> str:
    """LaTeX without its marks is not seen as LaTeX."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


if __name__ == "__main__":
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asked = json.load(sys.stdin)
    same = any(same_value(asked["answer"], accepted) for accepted in asked["gold"])
    sys.stdout.write(json.dumps({"same": same}))
