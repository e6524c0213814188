"""What `houston demo` needs: a tour of the commands, a packaged task and recorded rollouts."""
