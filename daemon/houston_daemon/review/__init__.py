"""Reviewing what rollouts did: attention signals for people, rules, the judge, and the verdicts
they give.
"""
