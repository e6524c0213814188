"""Looking at what rollouts did: signals for people, rules, the judge, verdicts."""
