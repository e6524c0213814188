"""Reinforcement learning from Houston's own rollouts: GRPO and DAPO with TRL's loss.

Groups of rollouts are started and waited for, their rows get credit (`training.credit`), and a
policy is trained on them and given back to the engine, over and over. The loss, optimizer and
checkpoints are TRL's and transformers'; sampling is the daemon's, as for every rollout.
"""
