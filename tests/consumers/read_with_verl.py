"""Run in verl's environment: FOLDER FILE KIND. Prints what verl makes of an export's rows.

`sft`: batches of verl's SFT trainer, from its own `create_sft_dataset` and collator, and its own
loss. `rl`: `DataProto`s of the module in the folder, in the form that verl's engines and losses
take.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from omegaconf import OmegaConf
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import SFTTensorCollator
from verl.workers.utils.losses import sft_loss
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding


def read_sft(folder: Path, file: str) -> list[dict]:
    from verl.trainer.sft_trainer import create_sft_dataset

    longest = max(file["longest"] for file in manifest(folder)["files"])
    config = OmegaConf.create(
        {
            "custom_cls": {"path": str(folder / "verl_rows.py"), "name": "TokenRows"},
            "max_length": longest,
            "pad_mode": "no_padding",
        }
    )
    tokenizer = SimpleNamespace(pad_token_id=0)
    dataset = create_sft_dataset(str(folder / file), config, tokenizer, None)
    rows = []
    for at in range(0, len(dataset), 2):
        items = [dataset[index] for index in range(at, min(at + 2, len(dataset)))]
        batch = SFTTensorCollator(config.pad_mode)(items)
        masks = batch["loss_mask"].unbind()
        for ids, mask in zip(batch["input_ids"].unbind(), masks, strict=True):
            rows.append({"ids": ids.tolist(), "mask": mask.tolist()})
        rows[-1]["loss"], rows[-1]["trained_of_batch"] = loss_of(batch)
    return rows


def loss_of(batch: dict) -> tuple[float, int]:
    """verl's SFT loss where each token's log-probability is its position in the batch, from 1: so
    the loss says which positions it took."""
    ids = batch["input_ids"]
    positions = torch.arange(1, ids.values().numel() + 1, dtype=torch.float64)
    count = int(batch["loss_mask"].values().sum())
    output = {"log_probs": torch.nested.nested_tensor_from_jagged(positions, ids.offsets())}
    data = tu.get_tensordict({"loss_mask": batch["loss_mask"]}, {})
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=1)
    return float(sft_loss(None, output, data)[0]), count


def read_rl(folder: Path, file: str) -> list[dict]:
    spec = importlib.util.spec_from_file_location("verl_rows", folder / "verl_rows.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = []
    for update, batch in module.read_updates(str(folder / file), pad=0):
        data = batch.to_tensordict()
        padded = {name: data[name].clone() for name in module._BY_TOKEN}
        packed = left_right_2_no_padding(data)
        flat = packed["input_ids"].values().double()
        # An engine gives at each token the log-probability of the next; here, the next token's id.
        following = torch.cat([flat[1:], torch.tensor([-1.0], dtype=torch.float64)])
        offsets = packed["input_ids"].offsets()
        output = torch.nested.nested_tensor_from_jagged(following, offsets)
        aligned = no_padding_2_padding(output, packed)
        for number, ids in enumerate(packed["input_ids"].unbind()):
            rows.append(
                {
                    "row": batch.non_tensor_batch["row"][number],
                    "uid": batch.non_tensor_batch["uid"][number],
                    "update": update,
                    "ids": ids.tolist(),
                    "aligned": aligned[number].tolist(),
                    **{name: values[number].tolist() for name, values in padded.items()},
                    "score": float(data["token_level_scores"][number].sum()),
                }
            )
        rows[-1]["loss"] = policy_loss(batch)
    return rows


def policy_loss(batch) -> float:
    """verl's own clipped loss at a ratio of 1: minus the mean advantage of trained tokens."""
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

    config = OmegaConf.create(
        {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0,
         "global_batch_info": {}}
    )  # fmt: skip
    tensors = batch.batch
    loss = compute_policy_loss_vanilla(
        old_log_prob=tensors["rollout_log_probs"],
        log_prob=tensors["rollout_log_probs"],
        advantages=tensors["advantages"],
        response_mask=tensors["response_mask"],
        loss_agg_mode="token-mean",
        config=config,
    )[0]
    return float(loss)


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


if __name__ == "__main__":
    read = {"sft": read_sft, "rl": read_rl}[sys.argv[3]]
    print(json.dumps(read(Path(sys.argv[1]), sys.argv[2])))
