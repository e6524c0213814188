"""A critic: reads one attempt with its official score, and says what to do differently (ECHO)."""
