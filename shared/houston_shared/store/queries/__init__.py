"""What can be asked of the journal: plans by subject, shared by commands and console.

Each is run by a reader: `reader.run(steps.records(rollout, 1, 20))`. SQL and mapping live here and
nowhere else.
"""
