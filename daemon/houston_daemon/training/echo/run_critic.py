"""The critic of a run: an adapter next to the policy's, its versions, and its optimizer steps.

A frozen critic has no adapter in the trainer; the engine samples with what the critic began as. The
training loop calls `begin` once an update and `step` with each optimizer step of the policy.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

from houston_daemon.training.echo.adapter_track import AdapterTrack
from houston_daemon.training.rl.policy_gradient_trainer import Pass, PolicyGradientTrainer
from houston_daemon.training.rl.policy_versions import PolicyVersions, save_weights
from houston_daemon.training.rl.rl_run_folder import RlRunFolder

TRACK = "critic"
"""Its adapter in the trainer's model, and its folder in a checkpoint."""


class RunCritic:
    """See `echo_batches.CriticInUse`."""

    def __init__(
        self,
        trainer: PolicyGradientTrainer,
        folder: RlRunFolder,
        versions: PolicyVersions,
        begun: Path | None,
    ) -> None:
        """versions: of the critic's own family. begun: folder of the adapter that it begins as;
        None: a new one of the policy's shape, which says what the base model says."""
        recipe = folder.spec.recipe
        self.name = recipe.first_critic
        self._folder = folder
        self._versions = versions
        self._track: AdapterTrack | None = None
        self._figures: list[dict[str, float]] = []
        if recipe.critic == "trained":
            policy = trainer.model.peft_config[trainer.model.active_adapter]
            self._track = AdapterTrack(trainer, TRACK, begun or copy.deepcopy(policy))
            trainer.checkpoint_savers.append(self._track.save)

    @property
    def scorer(self) -> AdapterTrack | None:
        """Its adapter as it is; None where it is frozen."""
        return self._track

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint of the run."""
        if self._track is not None:
            self._track.load(checkpoint)

    def begin(self, update: int) -> None:
        """Register the version that an update samples with. Raises HoustonError."""
        if update and self._track is not None:
            self.name = self._register(self._track, update)
        self._figures = []

    def step(self, passes: Sequence[Pass]) -> None:
        """One optimizer step on scored passes."""
        if self._track is not None:
            self._figures.append(self._track.step(passes))

    @property
    def logged(self) -> list[dict[str, float]]:
        """What TRL said of the loss in each step of the update."""
        return self._figures

    def _register(self, track: AdapterTrack, update: int) -> str:
        place = save_weights(track.write_adapter, self._folder.path / "critic_version")
        return self._versions.register(place, update)
