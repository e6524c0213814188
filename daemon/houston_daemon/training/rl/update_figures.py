"""The figures of one update, as they are kept, shown and reported: sampling, loss, time."""

import msgspec


class SamplingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the rollouts of one update went, before anything was dropped."""

    groups: int
    zero_variance: int
    """Groups that were dropped because their rewards were all alike."""
    failed: int
    """Groups that were dropped because one of their rollouts failed, or something of it was erased,
    archived or set aside before it was trained."""
    rollouts: int
    solved: float
    """Share of them with the least score that is solved."""
    reward: float
    """Their mean reward."""
    tool_failures: float
    """Failed calls of a rollout as the policy made them at first, mean."""
    tool_failures_kept: float
    """Failed calls that stand in a rollout after purification, mean."""
    purified_steps: float
    """Steps of a rollout that were replaced by a correction, mean."""
    corrections: float
    """Corrections that were sampled for a rollout, mean."""
    correction_seconds: float
    """Time that sampling and running them took, of all rollouts together."""
    recovered_at: dict[str, int]
    """By number of the correction that came right, how many steps it replaced."""
    steps: float
    """Steps of a rollout, mean."""
    tokens: float
    """Tokens of a rollout's longest context, mean."""
    overlong: int
    """Rollouts that overlong filtering leaves out of training."""
    stale: float
    """Share of the trained groups that an older version than the newest sampled."""
    process_reward: float = 0.0
    """Mean process reward of a decision, 0 to 1; 0 where none is given."""


class GateFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the importance-ratio gate made of purified steps that were to be trained."""

    checked: int = 0
    kept_raw: int = 0
    """Of them, those that were trained as they had been sampled."""
    ratio: float = 0.0
    """Mean over them of p(correction | purified) / p(correction | with the failure), each a
    geometric mean over its tokens."""


class LossFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What TRL says of the loss, mean over the optimizer steps of an update."""

    loss: float = 0.0
    grad_norm: float = 0.0
    entropy: float = 0.0
    """Of the policy at trained tokens, nats."""
    clip_low: float = 0.0
    """Share of trained tokens whose ratio was clipped from below."""
    clip_high: float = 0.0
    kl: float = 0.0


class ValidationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The policy on validation tasks, one rollout each."""

    tasks: int
    solved: float
    tool_failures: float
    steps: float


class CriticFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the critiques of one update went (ECHO). Scores are shares of the full one."""

    policy: str
    """That the critic sampled with; `base` for the engine's own model."""
    attempts: int
    full: int
    """Attempts with the full score, which are not criticised."""
    failed: int
    """Attempts that failed, or whose refinements did, through no fault of a policy."""
    critiques: int
    malformed: int
    """Answers that are no critique."""
    silent: int
    """Critiques that had nothing to change in an attempt without the full score."""
    before: float
    """Mean score of all attempts."""
    before_refined: float
    """Mean score of the attempts that were refined."""
    after: float
    """Mean score of their refinements."""
    gain: float
    """Mean gain of the critiques that were tried."""
    improved: float
    """Share of them after which the score was higher."""
    worsened: float
    """Share after which it was lower."""
    shortened: int
    """Attempts of which the critic was shown a part."""
    trained_tokens: int
    gap_mean: float
    """As of the policy: engine and trainer at a trained token, nats."""
    gap_largest: float
    cached_critiques: float
    """Share of the critic's prompt tokens that the engine had in its cache."""
    cached_refinements: float
    """The same of the refinements' prompts."""
    seconds: dict[str, float]
    """Of `attempts`, `critiques`, `refinements`, `scoring`."""
    loss: LossFigures = LossFigures()


class UpdateFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `updates.jsonl`."""

    update: int
    """From 0."""
    policy: str
    """That the update began from; `base` for the engine's own model."""
    sampling: SamplingFigures
    loss: LossFigures
    trained_tokens: int
    gap_mean: float
    """Mean distance of engine's and trainer's log-probabilities at a trained token, nats."""
    gap_largest: float
    gap_tokens: int
    """Tokens for which the engine's were known."""
    gap_truncated: int
    """Tokens whose importance weight was cut off."""
    seconds: dict[str, float]
    """Of `sampling`, `scoring`, `training`, and of `syncing`, which gives the version
    to the engine: `saving`, `registering` and `loading` it."""
    validation: ValidationFigures | None = None
    """Of the version that the update began from."""
    gate: GateFigures = GateFigures()
    critic: CriticFigures | None = None
    """Where a critic takes part."""
