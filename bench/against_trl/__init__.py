"""TRL's own GRPOTrainer in worlds of words, beside which `bench/rl.py` measures Houston's runs."""
