"""Writes questions.jsonl: problems in mathematics and code whose answers are computed, not known.

    python generate.py > questions.jsonl

The same bytes every time. Each kind of problem has four problems to train on and one to test with,
with numbers of their own.
"""

import json
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

Problem = tuple[str, str]
KINDS: dict[str, Callable[[random.Random], Problem]] = {}
EACH, TESTED = 5, 4


def kind(make: Callable[[random.Random], Problem]) -> Callable[[random.Random], Problem]:
    """Register a kind of problem under its function's name."""
    KINDS[make.__name__.replace("_", "-")] = make
    return make


@kind
def multiples(r: random.Random) -> Problem:
    """Sum of the multiples of two numbers below a third."""
    a, b, n = r.randint(3, 9), r.randint(11, 19), r.randint(10_000, 99_999)
    answer = sum(i for i in range(n) if i % a == 0 or i % b == 0)
    return f"What is the sum of all positive integers below {n} that {a} or {b} divides?", str(
        answer
    )


@kind
def digits(r: random.Random) -> Problem:
    """Sum of the digits of a factorial."""
    n = r.randint(100, 400)
    return f"What is the sum of the decimal digits of {n}! (factorial)?", str(
        sum(map(int, str(math.factorial(n))))
    )


@kind
def primes(r: random.Random) -> Problem:
    """The n-th prime of a form."""
    m, n = r.choice((4, 6, 8, 10)), r.randint(200, 600)
    found, at = 0, 1
    while found < n:
        at += m
        found += all(at % d for d in range(2, math.isqrt(at) + 1))
    return f"Of the primes that leave remainder 1 when divided by {m}, which is number {n}?", str(
        at
    )


@kind
def powers(r: random.Random) -> Problem:
    """A power modulo a number, in a tower."""
    a, b, c, m = r.randint(3, 99), r.randint(3, 30), r.randint(10, 60), r.randint(10**6, 10**7)
    return f"What is the remainder of {a}^({b}^{c}) divided by {m}?", str(pow(a, b**c, m))


@kind
def collatz(r: random.Random) -> Problem:
    """The longest Collatz sequence below a number."""
    n = r.randint(2_000, 9_000)

    def steps(x: int) -> int:
        count = 0
        while x != 1:
            x, count = (x // 2 if x % 2 == 0 else 3 * x + 1), count + 1
        return count

    best = max(range(1, n), key=lambda x: (steps(x), -x))
    return (
        f"Which starting number below {n} takes the most steps to reach 1 when even numbers are "
        "halved and odd numbers x become 3x + 1? Of several, the smallest.",
        str(best),
    )


@kind
def determinant(r: random.Random) -> Problem:
    """The determinant of a matrix."""
    rows = [[r.randint(-9, 9) for _ in range(4)] for _ in range(4)]

    def det(m: list[list[int]]) -> int:
        if len(m) == 1:
            return m[0][0]
        minors = ([row[:j] + row[j + 1 :] for row in m[1:]] for j in range(len(m)))
        return sum((-1) ** j * m[0][j] * det(minor) for j, minor in enumerate(minors))

    return f"What is the determinant of the matrix {rows}, given by its rows?", str(det(rows))


@kind
def fractions(r: random.Random) -> Problem:
    """A partial sum, as a fraction in lowest terms."""
    n, k = r.randint(12, 25), r.randint(2, 5)
    total = sum((Fraction(1, i * (i + k)) for i in range(1, n + 1)), Fraction(0))
    question = (
        f"What is the sum of 1/(i(i+{k})) for i from 1 to {n}, as a fraction in lowest terms?"
    )
    return question, f"{total.numerator}/{total.denominator}"


@kind
def paths(r: random.Random) -> Problem:
    """Paths in a grid around what is blocked."""
    w, h = r.randint(7, 11), r.randint(7, 11)
    blocked = sorted({(r.randint(1, w - 1), r.randint(1, h - 1)) for _ in range(6)})
    ways = [[0] * (h + 1) for _ in range(w + 1)]
    for x in range(w + 1):
        for y in range(h + 1):
            if (x, y) in blocked:
                continue
            before = (ways[x - 1][y] if x else 0) + (ways[x][y - 1] if y else 0)
            ways[x][y] = 1 if x == y == 0 else before
    return (
        f"How many paths lead from (0, 0) to ({w}, {h}) in steps of (+1, 0) or (0, +1) that avoid "
        f"the points {', '.join(map(str, blocked))}?",
        str(ways[w][h]),
    )


@kind
def recurrence(r: random.Random) -> Problem:
    """A term of a recurrence, modulo a prime."""
    a, b, c, n = r.randint(2, 9), r.randint(2, 9), r.randint(1, 9), r.randint(5_000, 20_000)
    x, y = 1, a
    for _ in range(n - 1):
        x, y = y, (a * y + b * x + c) % 1_000_003
    return (
        f"Let f(0) = 1, f(1) = {a} and f(n) = {a} f(n-1) + {b} f(n-2) + {c}. What is f({n}) modulo "
        "1000003?",
        str(y),
    )


@kind
def text(r: random.Random) -> Problem:
    """What a small program prints."""
    word = "".join(r.choice("abcdefgh") for _ in range(24))
    k = r.randint(3, 7)
    turned = "".join(chr((ord(c) - 97 + k * i) % 26 + 97) for i, c in enumerate(word))
    return (
        f"Take the string {word!r}. Shift its letter at index i (from 0) by {k}·i places in the "
        "alphabet a-z, wrapping around, then write the result backwards. What is it?",
        turned[::-1],
    )


@kind
def partitions(r: random.Random) -> Problem:
    """Ways to pay an amount."""
    coins = sorted(r.sample((1, 2, 3, 5, 7, 11, 13, 20, 25), 5))
    n = r.randint(150, 400)
    ways = [1] + [0] * n
    for coin in coins:
        for i in range(coin, n + 1):
            ways[i] += ways[i - coin]
    return f"In how many ways can {n} be paid with coins of {coins}, order ignored?", str(ways[n])


@kind
def chance(r: random.Random) -> Problem:
    """A probability, to six digits."""
    n, faces = r.randint(4, 7), r.choice((6, 8, 10))
    target = r.randint(n * faces // 2, n * faces - n)
    counts = {0: 1}
    for _ in range(n):
        later: dict[int, int] = {}
        for total, ways in counts.items():
            for face in range(1, faces + 1):
                later[total + face] = later.get(total + face, 0) + ways
        counts = later
    share = Fraction(sum(w for t, w in counts.items() if t >= target), faces**n)
    return (
        f"{n} fair dice with {faces} faces (1 to {faces}) are thrown. What is the probability that "
        f"their sum is at least {target}? Give the exact fraction or at least eight digits.",
        f"{share.numerator}/{share.denominator}",
    )


def questions() -> Iterator[dict[str, object]]:
    """All problems in order."""
    for name, make in KINDS.items():
        r = random.Random(f"houston {name}")
        for number in range(EACH):
            question, answer = make(r)
            split = "test" if number == TESTED else "train"
            yield {
                "id": f"{name}-{number}",
                "split": split,
                "question": question,
                "answers": [answer],
            }


if __name__ == "__main__":
    for one in questions():
        print(json.dumps(one))
