"""Supervised fine-tuning of exact rows: TRL's SFTTrainer, with a weight for every token.

`sft_recipe`, `batch_plan`, `sft_run_folder` and `run_progress` import no torch: commands and the
daemon use them.
"""
