"""Supervised fine-tuning of exact rows: TRL's SFTTrainer, with a weight for every token.

`recipe`, `plan`, `run_folder` and `progress` import no torch: commands and the daemon use them.
"""
