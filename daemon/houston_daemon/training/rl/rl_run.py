"""One run of reinforcement learning, from its folder to the resulting policy.

Each update gives the policy to the engine, waits for the groups that it sampled, trains on them and
writes a checkpoint. After a kill it resumes from the last checkpoint with the same groups, which
are found under their keys; weights that were registered give the same version again.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import TrainerCallback, set_seed
from trl import GRPOConfig

from houston_daemon.suites.suite_run import suites_folder
from houston_daemon.training.echo.echo_batches import EchoBatches
from houston_daemon.training.echo.run_critic import RunCritic
from houston_daemon.training.policies import policy_files
from houston_daemon.training.policies.policy_registration import register_run_policy
from houston_daemon.training.prm.prm_scorer import load_scorer
from houston_daemon.training.prm.reward_policy import find_reward_policy
from houston_daemon.training.rl.decision_batches import DecisionBatches
from houston_daemon.training.rl.engine_sampler import EngineSampler
from houston_daemon.training.rl.policy_gradient_trainer import (
    LOSS_TYPE,
    Pass,
    PolicyGradientTrainer,
)
from houston_daemon.training.rl.policy_versions import PolicyVersions, WeightSync
from houston_daemon.training.rl.process_rewards import ProcessRewards
from houston_daemon.training.rl.recorded_states import list_states
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, critic_family
from houston_daemon.training.rl.rollout_groups import (
    GroupCoordinator,
    GroupOutcome,
    StopRequested,
    SuiteTasks,
)
from houston_daemon.training.rl.update_batches import UpdateBatch, UpdateBatches
from houston_daemon.training.rl.update_figures import (
    CriticFigures,
    LossFigures,
    UpdateFigures,
    ValidationFigures,
)
from houston_daemon.training.runs import run_checkpoints
from houston_daemon.training.runs.run_folder import require_finite
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_daemon.training.runs.run_trackers import OWN_REPORTS, RunTrackers
from houston_daemon.training.sft import sft_model, training_run
from houston_daemon.training.sft.sft_recipe import model_recipe
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.stale_critic import staleness
from houston_shared.store.store_reader import Reader
from houston_shared.training_figures import read_run_figures

WIDE_GAP = 0.02
"""Mean difference of log-probabilities, nats a token, above which something is wrong: in bf16 it is
a few thousandths, in fp32 a few millionths."""
_SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear"}


class RlRun:
    """A run at work; used by one process."""

    def __init__(self, folder: RlRunFolder, writer: ProgressWriter) -> None:
        self._folder = folder
        self._writer = writer
        spec = self._spec = folder.spec
        recipe = self._recipe = spec.recipe
        loaded = load_configuration(spec.home, os.environ.get("HOUSTON_CONFIG"))
        self._versions = PolicyVersions(
            loaded,
            recipe.engine,
            spec.run,
            spec.name,
            spec.parent,
            Path(recipe.base),
            spec.base_hash,
            lambda line: writer.set_state("running", line),
            recipe.full,
        )
        self._watch = UpdateWatch(folder, recipe, self._update_done)
        tasks = SuiteTasks(recipe.suite, suites_folder(loaded.home) / "tasks", recipe.tasks)
        self._coordinator = GroupCoordinator(
            loaded,
            spec.run,
            spec.recipe,
            tasks,
            folder.path,
            self._watch.stop_requested,
            self._report_waiting,
        )
        self._trackers = RunTrackers(folder, spec, writer)
        self._trainer = self._make_trainer()
        self._critic = None if recipe.critic == "none" else self._make_critic(loaded)
        self._batches = self._make_batches(loaded)
        self._update = -1
        self._policy = ""
        self._batch: UpdateBatch | None = None
        self._weight_sync = WeightSync("")
        self._validation: ValidationFigures | None = None
        self._began_training = 0.0
        self._message_before_pause = ""
        """What was said before rollouts were paused; empty while none is."""

    def train(self) -> str:
        """Train, or go on; the policy that it became. Empty: it was asked to end."""
        newest = run_checkpoints.newest_checkpoint(self._folder.checkpoints)
        if newest:
            self._writer.log(f"going on from {newest.name}")
            if self._critic:
                self._critic.resume(newest)
        try:
            with closing(self._trackers):
                self._trainer.train(resume_from_checkpoint=str(newest) if newest else None)
                return "" if self._watch.ended else self._finish()
        except StopRequested:
            return ""

    def _finish(self) -> str:
        """Keep what was trained, measure it, and give the engine what it had before; the policy
        that it is. Raises StopRequested."""
        self._writer.set_state("running", "saving")
        base = Path(self._recipe.base) if self._recipe.full else None
        training_run.save_output(self._trainer, self._folder, base)
        policy = register_result(self._folder)
        validation = None
        if self._recipe.evaluate_updates:
            self._versions.activate(policy, f"{self._spec.run}/validation")
            validation = self._validate(self._recipe.updates, policy)
            self._trackers.report(_tracked_validation(validation))
        self._versions.activate(self._spec.active_before, f"{self._spec.run}/end")
        if self._critic:
            self._critic.begin(self._recipe.updates)
        updates = self._folder.updates
        self._folder.write_result(
            {
                "updates": len(updates),
                "first": updates[0] if updates else None,
                "last": updates[-1] if updates else None,
                "critic": self._critic.name if self._critic else "",
                "policy": policy,
                "validation": validation,
            }
        )
        return policy

    def _passes(self, step: int) -> list[Pass]:
        """The passes of an optimizer step: with the first of an update its batch is made."""
        update, part = divmod(step, self._recipe.update_steps)
        if update != self._update:
            self._begin_update(update)
        assert self._batch is not None
        minibatch = part % self._recipe.minibatches
        if self._critic and self._batch.critic:
            self._critic.step(self._batch.critic.parts[minibatch])
        return self._batch.parts[minibatch]

    def _update_done(self, logged: list[dict[str, float]]) -> None:
        """Keep and show the figures of an update whose last optimizer step is done."""
        batch = self._batch
        assert batch is not None
        figures = UpdateFigures(
            update=self._update,
            policy=self._policy,
            sampling=batch.figures,
            loss=_mean_losses(logged),
            trained_tokens=batch.trained,
            gap_mean=batch.gap.mean,
            gap_largest=batch.gap.largest,
            gap_tokens=batch.gap.tokens,
            gap_truncated=batch.gap.truncated,
            seconds={
                "sampling": round(batch.sampling_seconds, 3),
                "scoring": round(batch.scoring_seconds, 3),
                "training": round(time.monotonic() - self._began_training, 3),
                **{name: round(each, 3) for name, each in self._weight_sync.seconds.items()},
            },
            validation=self._validation,
            gate=batch.gate,
            critic=self._critic_figures(batch),
        )
        self._folder.keep_update(figures)
        gains = read_run_figures(self._folder.path).critic_gains
        if (stale := staleness(gains)) and not staleness(gains[:-1]):
            self._writer.log(f"the critic {stale}")
        if figures.gap_mean > WIDE_GAP and not figures.sampling.stale:
            self._writer.log(
                f"engine and trainer are {figures.gap_mean:.3f} nats per token apart on what the"
                f" engine sampled; less than {WIDE_GAP} is usual: they compute differently"
            )
        self._writer.update_done(figures_line(figures), self._update + 1, self._recipe.updates)
        self._batch = None

    def _critic_figures(self, batch: UpdateBatch) -> CriticFigures | None:
        if self._critic is None or batch.critic is None:
            return None
        loss = _mean_losses(self._critic.logged)
        return msgspec.structs.replace(batch.critic.figures, loss=loss)

    def _begin_update(self, update: int) -> None:
        """Give the engine the policy as it is now, and have its rollouts."""
        self._policy = self._publish(update)
        if self._critic:
            self._critic.begin(update)
        every = self._recipe.evaluate_updates
        due = every and update % every == 0
        self._validation = self._validate(update, self._policy) if due else None
        self._writer.set_state("running", f"sampling for update {update + 1}")
        self._batches.begin(update, self._policy)
        self._batch = self._batches.make(update, self._policy)
        self._update = update
        if self._recipe.ahead and update + 1 < self._recipe.updates:
            self._batches.begin(update + 1, self._policy)
        self._trainer.note_metrics(_tracked_figures(self._batch, self._weight_sync))
        if self._validation:
            self._trackers.report(_tracked_validation(self._validation))
        self._writer.set_state("running", f"training update {update + 1}")
        self._began_training = time.monotonic()

    def _report_waiting(self, line: str) -> None:
        """Show why rollouts do not end, and that they go on again."""
        if line and self._writer.now.message != line:
            self._message_before_pause = self._message_before_pause or self._writer.now.message
            self._writer.set_state("running", line)
        elif not line and self._message_before_pause:
            self._writer.set_state("running", self._message_before_pause)
            self._message_before_pause = ""

    def _publish(self, update: int) -> str:
        """The policy of an update, active on the engine; of the first: what the run began from."""
        if not update:
            self._versions.activate(self._spec.parent, f"{self._spec.run}/begin")
            self._weight_sync = WeightSync(self._spec.parent or BASE_MODEL)
            return self._weight_sync.policy
        self._writer.set_state("running", f"giving the engine the policy of update {update}")
        self._weight_sync = self._versions.publish(
            self._trainer.save_model, self._folder.path / "version", update
        )
        return self._weight_sync.policy

    def _validate(self, update: int, policy: str) -> ValidationFigures:
        """Of the policy as it is after so many updates; the engine samples with it already."""
        self._writer.set_state("running", f"measuring {policy} on validation tasks")
        groups = self._coordinator.begin_validation(update, policy)
        outcomes = self._coordinator.wait(groups)
        return _validation_figures(outcomes, self._recipe.solved)

    def _make_trainer(self) -> PolicyGradientTrainer:
        recipe = self._recipe
        device = training_run.training_device(recipe.device)
        set_seed(recipe.seed)
        loaded = load_policy_model(recipe, device)
        net, new = sft_model.add_adapter(loaded.net, model_recipe(recipe, recipe.full))
        return PolicyGradientTrainer(
            model=net,
            arguments=_trainer_arguments(self._folder, recipe, loaded.bf16, device),
            source=self._passes,
            keep=recipe.keep_checkpoints,
            processing_class=loaded.tokenizer,
            peft_config=new,
            callbacks=[self._watch, self._trackers],
        )

    def _make_critic(self, loaded: LoadedConfiguration) -> RunCritic:
        spec, recipe = self._spec, self._recipe
        versions = PolicyVersions(
            loaded,
            recipe.engine,
            spec.run,
            critic_family(spec.name),
            recipe.critic_policy,
            Path(recipe.base),
            spec.base_hash,
            self._report_waiting,
        )
        begun = None
        if recipe.critic_policy and recipe.critic == "trained":
            begun = policy_files.named_policy(loaded.home, recipe.critic_policy).folder
        return RunCritic(self._trainer, self._folder, versions, begun)

    def _make_batches(self, loaded: LoadedConfiguration) -> UpdateBatches | DecisionBatches:
        """What makes the batch of each update: of rollouts, with a critic of refinements, or of
        decisions at recorded states."""
        recipe, folder = self._recipe, self._folder
        sampler = EngineSampler(
            loaded,
            recipe.asked_critic_engine,
            self._watch.stop_requested,
            self._report_waiting,
            trained=recipe.critic != "frozen",
        )
        if self._critic:
            return EchoBatches(
                loaded,
                recipe,
                self._coordinator,
                self._trainer,
                self._pad(),
                self._critic,
                sampler,
                folder.critiques,
            )
        if not recipe.process_reward:
            return UpdateBatches(loaded, recipe, self._coordinator, self._trainer, self._pad())
        with Reader(loaded.home) as reader:
            model = find_reward_policy(loaded.home, reader, recipe.process_reward, "process_reward")
            judge = load_scorer(model.folder, recipe.device)
            if not recipe.states:
                rewards = ProcessRewards(folder.process_rewards, judge)
                return UpdateBatches(
                    loaded, recipe, self._coordinator, self._trainer, self._pad(), rewards
                )
            states = list_states(
                reader, recipe.states, suites_folder(loaded.home), sampler.tokenizer
            )
        return DecisionBatches(
            loaded, recipe, states, sampler, judge, self._trainer, self._pad(), folder.decisions
        )

    def _pad(self) -> int:
        tokenizer: Any = self._trainer.processing_class
        return int(tokenizer.pad_token_id or 0)


class UpdateWatch(TrainerCallback):  # type: ignore[misc]
    """Tells a run when an update is done; saves, ends on SIGTERM, refuses what is no number."""

    def __init__(
        self,
        folder: RlRunFolder,
        recipe: RlRecipe,
        update_done: Callable[[list[dict[str, float]]], None],
    ) -> None:
        """update_done: called with what was logged in its optimizer steps."""
        self._folder = folder
        self._recipe = recipe
        self._update_done = update_done
        self._logged: list[dict[str, float]] = []
        self._stop_requested = False
        self.ended = False
        """Whether it ended before the last update because it was asked to."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        self._stop_requested = True

    def stop_requested(self) -> bool:
        """Whether somebody asked it to end."""
        return self._stop_requested

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Save where an update is done, and end there where that was asked for."""
        update, part = divmod(state.global_step, self._recipe.update_steps)
        if part:
            return
        last = update == self._recipe.updates
        self.ended = self._stop_requested and not last
        control.should_save = last or self.ended or update % self._recipe.save_updates == 0
        control.should_training_stop = self.ended or control.should_training_stop

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float], **rest: Any
    ) -> None:
        """Raises HoustonError as `require_finite`."""
        if "loss" not in logs:
            return
        lower_rate = f"--set learning_rate={self._recipe.learning_rate / 10:g}"
        require_finite(self._folder, state.global_step, logs, lower_rate)
        self._logged.append(dict(logs))
        if state.global_step % self._recipe.update_steps == 0:
            logged, self._logged = self._logged, []
            self._update_done(logged)


def load_policy_model(recipe: RlRecipe, device: torch.device) -> sft_model.LoadedModel:
    """The model that is trained, without its adapter. TRL pads rows on both sides."""
    return sft_model.load_model(model_recipe(recipe, recipe.full), device, pads=True)


def _trainer_arguments(
    folder: RlRunFolder, recipe: RlRecipe, bf16: bool, device: torch.device
) -> GRPOConfig:
    more: dict[str, Any] = {"use_cpu": True} if device.type == "cpu" else {}
    return GRPOConfig(
        output_dir=str(folder.checkpoints),
        max_steps=recipe.updates * recipe.update_steps,
        per_device_train_batch_size=2,  # TRL wants whole groups in a batch; ours come otherwise
        num_generations=2,
        gradient_accumulation_steps=1,
        loss_type=LOSS_TYPE,
        epsilon=recipe.clip_low,
        epsilon_high=recipe.clip_high,
        beta=recipe.kl,
        use_bias_correction_kl=False,  # the published estimate (arXiv 2402.03300, eq. 4)
        temperature=1.0,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=_SCHEDULES[recipe.schedule],
        warmup_steps=recipe.warmup_steps,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        seed=recipe.seed,
        bf16=bf16,
        gradient_checkpointing=recipe.gradient_checkpointing,
        save_strategy="no",  # the watch says when
        **OWN_REPORTS,
        remove_unused_columns=False,
        dataloader_pin_memory=device.type == "cuda",
        **more,
    )


def _tracked_figures(batch: UpdateBatch, weight_sync: WeightSync) -> dict[str, float]:
    """What a tracker is told of an update beside TRL's own figures."""
    sampling = batch.figures
    return {
        "rollouts/solved": sampling.solved,
        "rollouts/reward": sampling.reward,
        "rollouts/process_reward": sampling.process_reward,
        "rollouts/tool_failures": sampling.tool_failures,
        "rollouts/tool_failures_kept": sampling.tool_failures_kept,
        "rollouts/steps": sampling.steps,
        "rollouts/tokens": sampling.tokens,
        "rollouts/zero_variance_groups": sampling.zero_variance,
        "rollouts/stale": sampling.stale,
        "purification/kept_raw": batch.gate.kept_raw,
        "engine/gap_mean": batch.gap.mean,
        "engine/gap_largest": batch.gap.largest,
        "seconds/sampling": batch.sampling_seconds,
        "seconds/scoring": batch.scoring_seconds,
        **{f"seconds/{name}": each for name, each in weight_sync.seconds.items()},
        **(_tracked_critic(batch.critic.figures) if batch.critic else {}),
    }


def _tracked_validation(figures: ValidationFigures) -> dict[str, float]:
    return {
        f"validation/{name}": getattr(figures, name)
        for name in ("solved", "tool_failures", "steps")
    }


def _tracked_critic(figures: CriticFigures) -> dict[str, float]:
    return {
        f"critic/{name}": float(getattr(figures, name))
        for name in ("before", "after", "gain", "improved", "worsened", "malformed", "gap_mean")
    }


def _mean_losses(logged: Sequence[Mapping[str, float]]) -> LossFigures:
    """The mean of what TRL logged in each optimizer step."""

    def mean(name: str) -> float:
        values = [logs[name] for logs in logged if name in logs]
        return sum(values) / len(values) if values else 0.0

    return LossFigures(
        loss=mean("loss"),
        grad_norm=mean("grad_norm"),
        entropy=mean("entropy"),
        clip_low=mean("clip_ratio/low_mean"),
        clip_high=mean("clip_ratio/high_mean"),
        kl=mean("kl"),
    )


def _validation_figures(outcomes: Sequence[GroupOutcome], solved: float) -> ValidationFigures:
    sound = [outcome for outcome in outcomes if outcome.members]
    members = [member for outcome in sound for member in outcome.members]
    count = max(len(members), 1)
    return ValidationFigures(
        tasks=len(members),
        solved=sum((member.score or 0.0) >= solved for member in members) / count,
        tool_failures=sum(
            counts.failures_after for outcome in sound for counts in outcome.purification
        )
        / count,
        steps=sum(outcome.steps for outcome in sound) / count,
    )


def figures_line(figures: UpdateFigures) -> str:
    """An update as a person reads it."""
    sampling, loss = figures.sampling, figures.loss
    parts = [
        f"solved {sampling.solved:.0%}",
        f"reward {sampling.reward:+.2f}",
        f"{sampling.tool_failures:.2f} failed calls a rollout",
        f"{sampling.groups - sampling.zero_variance - sampling.failed} of {sampling.groups} groups",
        f"entropy {loss.entropy:.2f}",
        f"clipped {loss.clip_low + loss.clip_high:.1%}",
    ]
    if critic := figures.critic:
        parts[:2] = [f"score {critic.before:.2f}", *_critique_words(critic)]
    if sampling.process_reward:
        parts.insert(2, f"process reward {sampling.process_reward:.2f} a decision")
    if syncing := figures.seconds.get("syncing"):
        parts.append(f"syncing {syncing:.1f} s")
    if figures.validation is not None:
        parts.insert(0, f"validation {figures.validation.solved:.0%}")
    return ", ".join(parts)


def _critique_words(critic: CriticFigures) -> list[str]:
    """What came of the critiques of an update, and how many were none."""
    tried = critic.critiques - critic.malformed - critic.silent
    words = [
        f"with the critic {critic.before_refined:.2f} to {critic.after:.2f}",
        f"gain {critic.gain:+.2f}",
    ]
    if not tried:
        words = ["no critique to try"]
    if critic.malformed:
        words.append(f"{critic.malformed} of {critic.critiques} critiques malformed")
    return words


def register_result(folder: RlRunFolder) -> str:
    """The policy that a finished run became; asked again, the same one. Raises HoustonError."""
    spec, updates = folder.spec, folder.updates
    return register_run_policy(
        spec, folder.output, updates[-1] if updates else {}, parent=spec.parent
    )
