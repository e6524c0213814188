"""Rows: what of a rollout is trained, token by token, and in which context.

`row` has the types; `token_rows` and `chat_rows` make them. Everything here runs on the base
install: no torch, no transformers.
"""
