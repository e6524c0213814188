"""What is on the screen. Widgets show state and lines made elsewhere; they read no database."""
