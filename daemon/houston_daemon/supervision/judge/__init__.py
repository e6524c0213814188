"""The judge: a model that says of whole steps whether a policy should learn them.

`template` holds its words, `framing` and `windows` what it is shown, `answers` what it may say,
`cache` what it said before, `engine` and `asking` how it is asked, `judging` all of a rollout.
`calibration` measures it, and the rules, against people.
"""
