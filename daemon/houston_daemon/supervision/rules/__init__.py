"""Rules: steps that a policy should not learn, found without a model.

Each rule is a pure function over a whole rollout (`trace`), which may look ahead, with a name, a
version and a reason in words; `catalog` names them. A rule only ever masks, and none is written
against patience, debugging, exploration or backups. Verdicts are sent elsewhere.
"""
