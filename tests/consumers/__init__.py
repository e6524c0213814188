"""Rows as verl and LLaMA-Factory themselves read them (`make test-consumers`): each file checks
one consumer, whose own code runs in an environment of its own. No file is named `test_…`, so no
other tier collects them.
"""
