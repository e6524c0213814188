"""Makes a tiny policy: a Llama of 1 to 10 million parameters that writes words (`words_dialect`).

Its weights start at random and are warmed up by plain SFT on traces of a scripted agent with
faults, until it solves 5 to 30 % of unseen worlds: with less, rewards teach nothing; with more,
nothing is left to learn. The traces are made in this process by the environment, dialect and
renderer of rollouts (`word_episodes`), without a daemon: the ids are the same, and a thousand take
two seconds. The folder is an ordinary model: transformers, the embedded engine and vLLM load it.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from houston_daemon.prompts.words_dialect import BEGIN, END, MARKUP, PADDING
from houston_daemon.review.critic.critique_prompt import FULL_SCORE
from houston_daemon.suites.suite_results import check_can_learn
from houston_daemon.suites.word_critiques import (
    CritiqueTrace,
    critique_trace,
    named_boxes,
    scripted_critique,
)
from houston_daemon.suites.word_episodes import WordEpisode, WordSpeaker, scripted_episode
from houston_daemon.suites.word_tokenizer import write_word_tokenizer
from houston_daemon.suites.word_worlds import LEVELS, WordLevel, level_words, word_world
from houston_shared.atomic_file import fill_folder_atomically
from houston_shared.errors import unwritable_as_error

WINDOW = 512
"""Positions of the model: a context takes at most 120, and a first answer must have room."""
_LAYERS, _HEAD_WIDTH = 4, 32
_ANSWER_TOKENS = 8
_NOT_TRAINED = -100


@dataclass(frozen=True, slots=True)
class TinyRecipe:
    """How it is made."""

    parameters: int = 1_800_000
    """About how many, embeddings apart; 4 layers of such a width."""
    level: str = "medium"
    """Of the worlds that its traces are of."""
    traces: int | None = None
    """None: as many as the level says."""
    seed: int = 0
    """Of weights, traces and their order."""
    wrong: float | None = None
    """How often a trace goes for a wrong box; None: as often as the level says."""
    errors: float = 0.25
    """How often a step of a trace is one that fails."""
    ordered: float = 0.2
    """How often a person names a box in a trace and is obeyed."""
    critic_right: float = 0.4
    """How often the box that a scripted critique names is the right one."""
    critic_general: float = 0.15
    """How often it names none."""
    epochs: int = 12
    """Most passes over the traces."""
    rows: int = 32
    """Traces of one optimizer step."""
    rate: float = 2e-3
    """Highest learning rate; it falls to nothing over all passes (AdamW, cosine)."""
    enough: float = 0.10
    """Share of validation worlds at which training ends before its last pass."""
    settled: int = 8
    """Passes before it may end so: one that has just begun to solve worlds learns little from
    rewards (docs/decisions.md)."""
    worlds: int = 128
    """Validation worlds after each pass."""


def make_tiny_policy(
    folder: Path, recipe: TinyRecipe, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Make, warm up and save a policy; what it does, as also kept in `tiny_policy.json`.

    folder: new or empty; it gets the whole model or nothing. tell: takes a line for people after
    each pass. Raises HoustonError where it cannot be written, and where the policy ends outside of
    5 to 30 %; then the folder is there all the same.
    """
    with (
        unwritable_as_error(folder, "Nothing was made."),
        fill_folder_atomically(folder) as filled,
    ):
        report = _warm_up_and_save(filled, recipe, tell)
    advice = "Try other --warm-up, --wrong or --seed."
    check_can_learn(f"The policy in {folder}", report["success"], "worlds", advice)
    return report


def _warm_up_and_save(
    folder: Path, recipe: TinyRecipe, tell: Callable[[str], None]
) -> dict[str, Any]:
    begun = time.monotonic()
    level = LEVELS[recipe.level]
    words = level_words(level)
    speaker = WordSpeaker(write_word_tokenizer(folder, words))
    torch.manual_seed(recipe.seed)
    net = tiny_model(recipe.parameters, speaker, words)
    traces = scripted_traces(speaker, level, recipe)
    success = 0.0
    for number in warm_up(net, traces, recipe):
        success = solved_share(net, speaker, level, "validation", recipe.worlds, recipe.seed)
        seconds = time.monotonic() - begun
        tell(f"pass {number}: {success:.0%} of {recipe.worlds} worlds, {seconds:.0f} s")
        if number >= recipe.settled and success >= recipe.enough:
            break
    net.save_pretrained(folder)
    report = {
        **asdict(recipe),
        "parameters": sum(weights.numel() for weights in net.parameters()),
        "success": success,
        "passes": number,
        "seconds": round(time.monotonic() - begun, 1),
        "tokens": sum(len(trace.ids) for trace in traces),
    }
    (folder / "tiny_policy.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def tiny_model(parameters: int, speaker: WordSpeaker, words: Sequence[str]) -> LlamaForCausalLM:
    """A Llama with random weights. parameters: about 48 × width², in steps of a head's width."""
    width = max(1, round((parameters / (12 * _LAYERS)) ** 0.5 / _HEAD_WIDTH)) * _HEAD_WIDTH
    ids = {token: speaker.tokens.id_of(token) for token in (BEGIN, END, PADDING)}
    config = LlamaConfig(
        vocab_size=len(dict.fromkeys((*MARKUP, *words))),
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=_LAYERS,
        num_attention_heads=width // _HEAD_WIDTH,
        num_key_value_heads=width // _HEAD_WIDTH,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=False,
        bos_token_id=ids[BEGIN],
        eos_token_id=ids[END],
        pad_token_id=ids[PADDING],
    )
    net = LlamaForCausalLM(config)
    net.generation_config = GenerationConfig(eos_token_id=ids[END], pad_token_id=ids[PADDING])
    return net


def scripted_traces(
    speaker: WordSpeaker, level: WordLevel, recipe: TinyRecipe
) -> list[WordEpisode | CritiqueTrace]:
    """Traces of the imperfect agent in worlds of the train split; of a level with a critic also
    critiques of some of them."""
    source = random.Random(f"{recipe.seed}/traces")
    wrong = level.wrong if recipe.wrong is None else recipe.wrong
    traces: list[WordEpisode | CritiqueTrace] = []
    for index in range(recipe.traces or level.traces):
        world = word_world(level, "train", index)
        critique = ""
        if level.criticised and source.random() < level.criticised:
            # By chance: it learns to obey, and nothing of which box is right.
            critique = scripted_critique(
                world, list(world.wanted), source, 1 / level.boxes, recipe.critic_general
            )
        episode = scripted_episode(
            speaker,
            world,
            source,
            wrong=wrong,
            errors=recipe.errors,
            ordered=recipe.ordered,
            steps=level.steps,
            critique=critique,
            told=named_boxes(critique, world),
        )
        traces.append(episode)
        needs_critique = level.criticised and episode.score < FULL_SCORE
        if needs_critique and source.random() < level.criticised / 2:
            critic_answer = scripted_critique(
                world, episode.missed, source, recipe.critic_right, recipe.critic_general
            )
            traces.append(critique_trace(speaker, episode, critic_answer, WINDOW))
    return traces


def warm_up(
    net: LlamaForCausalLM, traces: Sequence[WordEpisode | CritiqueTrace], recipe: TinyRecipe
) -> Iterator[int]:
    """Train on every answer of the traces; the number of each pass as it ends."""
    batches = -(-len(traces) // recipe.rows)
    optimizer = torch.optim.AdamW(net.parameters(), lr=recipe.rate, betas=(0.9, 0.95))
    falling = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.rate, total_steps=batches * recipe.epochs, pct_start=0.1
    )
    source = random.Random(f"{recipe.seed}/order")
    for number in range(1, recipe.epochs + 1):
        net.train()
        for batch in _batches(traces, recipe.rows, source):
            loss = net(**_collate(batch)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            falling.step()
            optimizer.zero_grad()
        net.eval()
        yield number


def _batches(
    traces: Sequence[WordEpisode | CritiqueTrace], rows: int, source: random.Random
) -> list[list[WordEpisode | CritiqueTrace]]:
    """Batches of about the same length, so that little is padding, in random order."""
    some = sorted(traces, key=lambda trace: (len(trace.ids), source.random()))
    batches = [some[start : start + rows] for start in range(0, len(some), rows)]
    source.shuffle(batches)
    return batches


def _collate(batch: Sequence[WordEpisode | CritiqueTrace]) -> dict[str, torch.Tensor]:
    """Ids, mask and labels, shape (traces, longest); answers alone have labels."""
    longest = max(len(trace.ids) for trace in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, _NOT_TRAINED)
    for row, trace in enumerate(batch):
        ids[row, : len(trace.ids)] = torch.tensor(trace.ids)
        mask[row, : len(trace.ids)] = 1
        for begin, end in trace.answers:
            labels[row, begin:end] = ids[row, begin:end]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def solved_share(
    net: LlamaForCausalLM,
    speaker: WordSpeaker,
    level: WordLevel,
    split: str,
    worlds: int,
    seed: int = 0,
) -> float:
    """The share of a split's first worlds that the policy solves, at temperature 1."""
    torch.manual_seed(seed)
    episodes = [
        WordEpisode(speaker, word_world(level, split, index), level.steps)
        for index in range(worlds)
    ]
    while going := [episode for episode in episodes if not episode.done]:
        for episode, answer in zip(going, sampled_answers(net, speaker, going), strict=True):
            episode.step(answer)
    return sum(episode.score >= 100.0 for episode in episodes) / worlds


def sampled_answers(
    net: LlamaForCausalLM, speaker: WordSpeaker, episodes: Sequence[WordEpisode]
) -> list[list[int]]:
    """One answer for each episode, its stop token included; all in one batch, padded in front."""
    longest = max(len(episode.ids) for episode in episodes)
    ids = torch.zeros(len(episodes), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, episode in enumerate(episodes):
        ids[row, longest - len(episode.ids) :] = torch.tensor(episode.ids)
        mask[row, longest - len(episode.ids) :] = 1
    with torch.inference_mode():
        sampled: Any = net.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=_ANSWER_TOKENS,
            do_sample=True,
            temperature=1.0,
            top_k=0,
        )
    return [_until_end(row, speaker.end) for row in sampled[:, longest:].tolist()]


def _until_end(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids
