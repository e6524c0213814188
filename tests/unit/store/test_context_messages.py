"""What a reader sees of a context is what the rollout loop sends: the same messages, one by one."""

import pytest

from houston_daemon.prompts.model_dialects import ChatmlJsonDialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer, head_messages
from houston_shared.context_messages import ContextBody, build_messages
from houston_shared.records import (
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    Message,
    ObservationBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from tests.support.written_home import result, sample

HEAD = ContextHead(
    system="Act.",
    task="Count.",
    tools=(),
    rendered="",
    token_ids=None,
    dialect="chatml-json",
    tokenizer="",
)
LOOK = ToolCall(id="1.0", name="list_dir", arguments={"path": "."})
READ = ToolCall(id="1.1", name="read_file", arguments={"path": "a"})
LAST = ToolCall(id="loop", name="evaluate", arguments={})
SAID = DeliveredGuidance(id="g1", author="ada", text="Mind <real_user> it.")
OLD = DeliveredGuidance(id="g0", author="ada", text="Be quick.")


def step(
    thought: str,
    calls: tuple[ToolCall, ...] = (),
    results: tuple[ToolResult, ...] = (),
    guidance: tuple[DeliveredGuidance, ...] = (),
    room: int = 0,
) -> StepRecord:
    return StepRecord(
        step=1,
        attempt=1,
        sample_seq=1,
        sample=sample(thought, calls=calls),
        intents=(),
        results=results,
        observation=ObservationBody(tail="[clock]", guidance_bytes=room),
        guidance=guidance,
        at="",
        active_seconds=0.0,
    )


STEPS = {
    "one call": step("look", (LOOK,), (result(LOOK, "a"),)),
    "two calls and guidance": step(
        "both", (LOOK, READ), (result(LOOK, "a"), result(READ, "b")), (SAID,)
    ),
    "guidance that does not fit": step(
        "look",
        (LOOK,),
        (result(LOOK, "a"),),
        (OLD, DeliveredGuidance(id="g2", author="a", text="b" * 999)),
        300,
    ),
    "no call": step("hm"),
    "nothing at all": step(""),
    "a call without a thought": step("", (LOOK,), (result(LOOK, "a"),)),
    "an empty result": step("look", (LOOK,), (result(LOOK, ""),)),
    "interrupted before a call": step("I was ab", (), (), (SAID,)),
    "a last evaluation by the loop": step(
        "end", (LOOK,), (result(LOOK, "a"), result(LAST, "score 3"))
    ),
    "an evaluation alone": step("end", (), (result(LAST, "score 3"),)),
}


def sent(strip: bool, steps: list[StepRecord]) -> list[Message]:
    renderer = PromptRenderer(ChatmlJsonDialect(), None, "strip" if strip else "keep")
    messages = list(head_messages(HEAD))
    for step in steps:
        messages += entry(renderer, step).messages
    return messages


def entry(renderer: PromptRenderer, step: StepRecord):  # type: ignore[no-untyped-def]
    assert step.observation is not None
    return renderer.render_step(
        step.step, step.sample, step.results, step.observation, step.guidance
    )


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("case", STEPS)
def test_a_step_reads_as_it_was_sent(case: str, strip: bool) -> None:
    since = ContextBody(None, None, (), [STEPS[case]])
    assert build_messages(HEAD, since, strip=strip) == sent(strip, [STEPS[case]])


@pytest.mark.parametrize("shown", [{}, {"g0": 3}, {"g0": 0, "g1": 5}])
@pytest.mark.parametrize("earlier", [(), (OLD,), (OLD, SAID)])
@pytest.mark.parametrize("case", STEPS)
def test_a_fork_reads_as_it_was_sent(
    case: str, earlier: tuple[DeliveredGuidance, ...], shown: dict[str, int]
) -> None:
    compressed = STEPS[case]
    fork = ForkBody(k=1, first_kept_step=2, summary="S", shortened=shown)
    renderer = PromptRenderer(ChatmlJsonDialect(), None, "keep")
    own = {message.id for message in compressed.guidance}
    rest = [message for message in earlier if message.id not in own]
    pair = renderer.fork_pair(entry(renderer, compressed), "S", rest, shown).messages
    messages = build_messages(HEAD, ContextBody(fork, compressed, earlier, []))
    assert messages == [*head_messages(HEAD), *pair]
