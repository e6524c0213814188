"""What a reader sees of a context is what the rollout loop sends: the same messages, one by one."""

import pytest

from houston_daemon.dialects.chatml_json import ChatmlJson
from houston_daemon.rollout.rendering import Renderer, head_messages
from houston_shared.records import (
    Call,
    Delivered,
    ForkBody,
    Head,
    Message,
    ObservationBody,
    Result,
    StepRecord,
)
from houston_shared.store.messages import Since, of_context
from tests.support.written_home import result, sample

HEAD = Head(
    system="Act.",
    task="Count.",
    tools=(),
    rendered="",
    token_ids=None,
    dialect="chatml-json",
    tokenizer="",
)
LOOK = Call(id="1.0", name="list_dir", arguments={"path": "."})
READ = Call(id="1.1", name="read_file", arguments={"path": "a"})
LAST = Call(id="loop", name="evaluate", arguments={})
SAID = Delivered(id="g1", author="ada", text="Mind <real_user> it.")
OLD = Delivered(id="g0", author="ada", text="Be quick.")


def step(
    thought: str,
    calls: tuple[Call, ...] = (),
    results: tuple[Result, ...] = (),
    guidance: tuple[Delivered, ...] = (),
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
        (OLD, Delivered(id="g2", author="a", text="b" * 999)),
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
    renderer = Renderer(ChatmlJson(), None, "strip" if strip else "keep")
    found = list(head_messages(HEAD))
    for one in steps:
        found += entry(renderer, one).messages
    return found


def entry(renderer: Renderer, one: StepRecord):  # type: ignore[no-untyped-def]
    assert one.observation is not None
    return renderer.entry(one.step, one.sample, one.results, one.observation, one.guidance)


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("case", STEPS)
def test_a_step_reads_as_it_was_sent(case: str, strip: bool) -> None:
    since = Since(None, None, (), [STEPS[case]])
    assert of_context(HEAD, since, strip=strip) == sent(strip, [STEPS[case]])


@pytest.mark.parametrize("shown", [{}, {"g0": 3}, {"g0": 0, "g1": 5}])
@pytest.mark.parametrize("earlier", [(), (OLD,), (OLD, SAID)])
@pytest.mark.parametrize("case", STEPS)
def test_a_fork_reads_as_it_was_sent(
    case: str, earlier: tuple[Delivered, ...], shown: dict[str, int]
) -> None:
    compressed = STEPS[case]
    fork = ForkBody(k=1, first_kept_step=2, summary="S", shortened=shown)
    renderer = Renderer(ChatmlJson(), None, "keep")
    own = {one.id for one in compressed.guidance}
    kept = [one for one in earlier if one.id not in own]
    pair = renderer.pair(entry(renderer, compressed), "S", kept, shown).messages
    found = of_context(HEAD, Since(fork, compressed, earlier, []))
    assert found == [*head_messages(HEAD), *pair]
