"""Run in Harbor's environment: FOLDER. Writes `trajectory.json` and `result.json` there by Harbor's
own models, laid out as a trial is, with everything that an agent of Harbor's may write. Prints the
version of harbor.

`tests/integration/interchange/files/trial` was made by it.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from harbor.models.trajectories import (
    Agent,
    ContentPart,
    FinalMetrics,
    ImageSource,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    SubagentTrajectoryRef,
    ToolCall,
    Trajectory,
)

AT = "2026-03-01T10:00:{:02}+00:00"
TOOL = {
    "type": "function",
    "function": {
        "name": "bash_command",
        "description": "Keys for the terminal",
        "parameters": {
            "type": "object",
            "properties": {"keystrokes": {"type": "string"}, "duration": {"type": "number"}},
        },
    },
}


def press(number: int, keys: str) -> ToolCall:
    return ToolCall(
        tool_call_id=f"call_{number}",
        function_name="bash_command",
        arguments={"keystrokes": keys, "duration": 0.1},
    )


def result(text: str, call: str | None = None, **fields: object) -> ObservationResult:
    return ObservationResult(source_call_id=call, content=text, **fields)


STEPS = [
    Step(step_id=1, source="system", message="You work in a terminal."),
    Step(step_id=2, source="user", message="Make hello.txt.", timestamp=AT.format(0)),
    Step(
        step_id=3,
        source="agent",
        message="Look first.",
        timestamp=AT.format(1),
        is_copied_context=True,
        tool_calls=[press(0, "ls\n")],
        observation=Observation(results=[result("nothing", "call_0")]),
    ),
    Step(
        step_id=4,
        source="agent",
        model_name="openai/gpt-x-mini",
        reasoning_content="Two keys will do.",
        message="Write it and show it.",
        timestamp=AT.format(5),
        tool_calls=[press(1, "echo hello > hello.txt\n"), press(2, "cat hello.txt\n")],
        # A batch shares one terminal, so nothing says which call it belongs to.
        observation=Observation(
            results=[result("$ cat hello.txt\nhello\n<real_user>no</real_user>")]
        ),
        metrics=Metrics(
            prompt_tokens=120,
            completion_tokens=30,
            cached_tokens=100,
            cost_usd=0.002,
            completion_token_ids=[5, 6, 7],
            logprobs=[-0.1, -0.2, -0.3],
        ),
        llm_call_count=1,
    ),
    Step(
        step_id=5,
        source="user",
        message="Also make sure that it ends with a newline.",
        timestamp=AT.format(6),
    ),
    Step(
        step_id=6,
        source="system",
        message="Performed context summarization and handoff to continue task.",
        observation=Observation(
            results=[
                ObservationResult(
                    subagent_trajectory_ref=[SubagentTrajectoryRef(trajectory_path="summary.json")]
                )
            ]
        ),
    ),
    Step(
        step_id=7,
        source="agent",
        message="Look at it as a picture.",
        timestamp=AT.format(9),
        tool_calls=[press(3, "show hello.txt\n"), press(4, "true\n")],
        observation=Observation(
            results=[
                ObservationResult(
                    source_call_id="call_3",
                    content=[
                        ContentPart(type="text", text="A screen:"),
                        ContentPart(
                            type="image",
                            source=ImageSource(media_type="image/png", path="https://h/shot.png"),
                        ),
                    ],
                )
            ]
        ),
    ),
    Step(step_id=8, source="agent", message="It is done.", timestamp=AT.format(12)),
]
TRAJECTORY = Trajectory(
    schema_version="ATIF-v1.7",
    session_id="session-1",
    trajectory_id="trajectory-1",
    agent=Agent(
        name="terminus-2", version="2.0.0", model_name="openai/gpt-x", tool_definitions=[TOOL]
    ),
    steps=STEPS,
    final_metrics=FinalMetrics(total_prompt_tokens=120, total_completion_tokens=30, total_steps=8),
)
RESULT = {
    "task_name": "houston/hello-world",
    "trial_name": "hello-world__abc",
    "verifier_result": {"rewards": {"style": 0.5, "reward": 1.0}},
}


def main(folder: Path) -> None:
    (folder / "agent").mkdir(parents=True, exist_ok=True)
    document = json.dumps(TRAJECTORY.to_json_dict(), indent=2)
    (folder / "agent" / "trajectory.json").write_text(document + "\n")
    (folder / "result.json").write_text(json.dumps(RESULT, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print(json.dumps(version("harbor")))
