"""What trainers of every kind share: progress, checkpoints, and the process around the training."""
