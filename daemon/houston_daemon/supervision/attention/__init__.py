"""Attention: cheap signals, without a model, that say where a person should look.

Each signal is a pure function over a window of the last steps (`window`), which gives its reason in
words or nothing; `catalog` names them. They see what the journal holds of these steps and what is
left of the budgets, nothing else, so that a resumed worker finds the same ones.
"""
