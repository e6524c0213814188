"""The workstation: terminals, files and an evaluator, as in ResearchGym's action families."""
