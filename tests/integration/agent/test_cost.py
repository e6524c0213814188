"""What samples cost by declared prices, and a task's budget of it, with real worker processes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from houston_shared.records import RoleEngine
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from tests.integration.agent.endpoint import Answer, Endpoint, call, says
from tests.integration.agent.rig import Rig
from tests.support.endpoint_behaviours import without_usage

INPUT = {"input": 10_000.0, "output": 0.0}
"""A prompt of 100 tokens costs 1."""
TASK = "[budget]\nsteps = 9\nminimum_steps = 9\nevaluations = 0\ncost = 2.5\n"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(lambda body: call(text="x"))
    yield made
    made.close()


def costs(rig: Rig, rollout: str) -> list[float | None]:
    query = "SELECT cost FROM samples WHERE rollout = ? ORDER BY seq"
    return [cost for (cost,) in rig.query(query, rollout)]


def test_a_spent_budget_ends_the_rollout_and_the_agent_is_told(
    rig: Rig, endpoint: Endpoint
) -> None:
    rollout = rig.rollout(settings={**endpoint.settings, "price": INPUT}, task=TASK)
    rig.run(rollout)
    assert rig.state(rollout) == ("finished", "budget: cost")
    assert costs(rig, rollout) == [1.0, 1.0, 1.0]
    tails = [step.observation.tail for step in rig.steps(rollout) if step.observation]
    assert [f"cost {spent} of 2.5" in tail for spent, tail in enumerate(tails, 1)] == [True] * 3


QUESTIONS = """
[search]
corpus = "workspace/corpus.jsonl"
[questions]
file = "workspace/questions.jsonl"
[agent]
kind = "flow"
verify = false
"""
DOCUMENT = {"id": "doc-1", "title": "Arnsel", "text": "Arnsel was founded in 1612."}
QUESTION = {"id": "q-1", "question": "When was Arnsel founded?", "answers": ["1612"]}


@pytest.mark.parametrize(
    ("environment", "called", "task"),
    [
        ("small_workstation", "list", '[small_workstation]\nwanted = { "a.txt" = "two" }\n'),
        # Its answer without a planner comes too early, and is refused.
        ("search_qa", "search", QUESTIONS),
    ],
)
def test_a_world_that_scores_itself_does_so_where_the_cost_is_spent(
    rig: Rig, endpoint: Endpoint, environment: str, called: str, task: str
) -> None:
    endpoint.decide = lambda body: call(called, **({"query": "x"} if called == "search" else {}))
    files = {
        "a.txt": "one",
        "corpus.jsonl": json.dumps(DOCUMENT),
        "questions.jsonl": json.dumps(QUESTION),
    }
    rollout = rig.rollout(
        settings={**endpoint.settings, "price": INPUT},
        task=TASK.replace("evaluations = 0", "evaluations = 1") + task,
        environment=environment,
        files=files,
    )
    rig.run(rollout)
    assert rig.state(rollout) == ("finished", "budget: cost")
    last = rig.steps(rollout)[-1].results[-1]
    assert (last.kind, last.fields.get("overall_score")) == ("eval", 0.0), last.text


def test_another_worker_knows_what_was_spent(rig: Rig, endpoint: Endpoint) -> None:
    first = endpoint.settings
    rollout = rig.rollout(settings={**first, "price": INPUT}, task=TASK)

    def stall(body: dict[str, Any]) -> Answer:
        if len(endpoint.asked) < 3:
            return call(text="x")
        endpoint.refused.set()
        endpoint.closing.wait(60)
        return call(text="x")

    endpoint.decide = stall
    process = rig.work(rollout)
    assert endpoint.refused.wait(60)
    rig.kill(process, rollout)
    endpoint.decide = lambda body: call(text="x")
    rig.run(rollout)
    assert rig.state(rollout) == ("finished", "budget: cost")
    assert costs(rig, rollout) == [1.0, 1.0, 1.0], "what was asked and never stored is not known"


def test_without_counts_a_cost_is_reckoned_and_said_so(rig: Rig, endpoint: Endpoint) -> None:
    endpoint.decide = lambda body: without_usage()
    rollout = rig.rollout(settings={**endpoint.settings, "price": INPUT}, task=TASK)
    rig.run(rollout)
    assert rig.state(rollout) == ("finished", "budget: cost")
    with Reader(rig.home) as reader:
        usage = reader.run(rollout_queries.read_token_usage(rollout))
    assert usage.reckoned == usage.samples and usage.prompt_tokens is None
    assert usage.cost is not None and usage.cost >= 2.5


def test_a_role_costs_what_its_own_engine_does(rig: Rig, endpoint: Endpoint) -> None:
    """Forks ask a summary of an engine with a price; the policy's has none."""

    def decide(body: dict[str, Any]) -> Answer:
        return call(text="word " * 500) if "tools" in body else says("Nothing of use.")

    endpoint.decide = decide
    own = {**endpoint.settings, "price": {"input": 1.0, "output": 1.0}}
    rollout = rig.rollout(
        settings={**endpoint.settings, "window": 6_000},
        task="[budget]\nsteps = 9\nminimum_steps = 9\nevaluations = 0\n[agent.summary]\n"
        'engine = "dear"\n',
        role_engines={"summary": RoleEngine(engine="dear", engine_settings=own)},
    )
    rig.run(rollout)
    assert rig.state(rollout)[0] == "finished", rig.state(rollout)
    query = "SELECT role, count(*), count(cost) FROM samples WHERE rollout = ? GROUP BY role"
    counted = {
        role: (all_of_them, priced) for role, all_of_them, priced in rig.query(query, rollout)
    }
    assert counted["policy"][1] == 0
    assert counted["summary"][0] == counted["summary"][1] > 0
