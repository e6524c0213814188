"""Messages to people who are away when rollouts need one: which, when, and through what.

`houston_shared.store.attention_ranking` decides what needs a person; this package only reports
rollouts that nobody looks at.
"""
