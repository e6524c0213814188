"""Rules: steps that a policy should not learn, found without a model, each a pure function of a
whole rollout.
"""
