"""What people say and do: who they are, what their role allows, and what becomes of it."""
