"""What may cost something and is asked before it is done: branches."""
