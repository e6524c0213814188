"""Process reward models: what each decision of a rollout is worth, from 0 to 1.

Labels, training, scoring, and the process that scores steps as rollouts go on. Only what trains or
scores imports torch.
"""
