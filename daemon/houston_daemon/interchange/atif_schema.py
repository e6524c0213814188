"""ATIF, the Agent Trajectory Interchange Format of Harbor, as records.

Source: Harbor's RFC 0001 and its models (`harbor.models.trajectories` of harbor 0.26), versions 1.0
to 1.8. Fields that Houston neither reads nor writes are not here. What reads and writes them is
`atif_import` and `atif_export`.
"""

from typing import Any, Literal

import msgspec

ATIF_VERSION = "ATIF-v1.7"
"""What is written."""
ATIF_PREFIX = "ATIF-v1."
"""How every version begins that is read."""
ATIF_USER = "user"
"""Source of what a person says, and its author where a file names none."""
COPIED_REASON = "copied from an earlier trajectory (ATIF's is_copied_context)"
"""Of the verdict that keeps a copied step from training."""
DISPATCHED_REASON = "no model decided it (ATIF's llm_call_count is 0)"
"""Of the verdict on a step that a program decided."""
REASONING_LENGTH = "reasoning_length"
"""Among a sample's parameters: characters of its thought that were `reasoning_content` in ATIF."""
HOUSTON_EXTRA = "houston"
"""Key in `extra` under which Houston keeps what ATIF has no field for."""


class AtifRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of what stands in a trajectory; a field without a value is left out."""


class AtifSource(AtifRecord, frozen=True):
    """Where a picture or a sound lies."""

    media_type: str = ""
    path: str = ""


class AtifPart(AtifRecord, frozen=True):
    """A part of a message that is not text alone."""

    type: str
    text: str | None = None
    source: AtifSource | None = None


AtifContent = str | list[AtifPart]


class AtifCall(AtifRecord, frozen=True):
    """A tool call."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class AtifResult(AtifRecord, frozen=True):
    """One result within an observation."""

    source_call_id: str | None = None
    """The call of the same step that it answers; None for none."""
    content: AtifContent | None = None
    subagent_trajectory_ref: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class AtifObservation(AtifRecord, frozen=True):
    """What came of a step."""

    results: list[AtifResult]


class AtifMetrics(AtifRecord, frozen=True):
    """What an answer cost. Token ids and log-probabilities are neither read nor written."""

    prompt_tokens: int | None = None
    """With those of the cache."""
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    completion_token_ids: list[int] | None = None
    """Read only to say that they are left out."""
    extra: dict[str, Any] | None = None


class AtifStep(AtifRecord, frozen=True):
    """One turn: what somebody said, and for an agent what followed."""

    step_id: int
    source: Literal["system", "user", "agent"]
    message: AtifContent
    timestamp: str | None = None
    """ISO 8601."""
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[AtifCall] | None = None
    observation: AtifObservation | None = None
    metrics: AtifMetrics | None = None
    is_copied_context: bool | None = None
    """Copied from an earlier trajectory: not to be trained."""
    llm_call_count: int | None = None
    """0: no model decided it."""
    extra: dict[str, Any] | None = None


class AtifAgent(AtifRecord, frozen=True):
    """The agent."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    """In OpenAI's form."""
    extra: dict[str, Any] | None = None


class AtifFinalMetrics(AtifRecord, frozen=True):
    """Sums over the steps."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_steps: int | None = None
    extra: dict[str, Any] | None = None


class AtifTrajectory(AtifRecord, frozen=True):
    """One document."""

    schema_version: str
    agent: AtifAgent
    steps: list[AtifStep]
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: AtifFinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[msgspec.Raw] | None = None
    extra: dict[str, Any] | None = None
