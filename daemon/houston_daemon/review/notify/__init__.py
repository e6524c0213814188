"""Messages to people who are away, as rollouts begin to need one: which, when, and through what.

What needs a person is `houston_shared.store.attention_ranking`'s to say; here is only said to whom
nobody has looked yet.
"""
