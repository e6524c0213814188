-- Roles of a rollout that have an engine of their own: {"summary": {"engine": …, "policy": …}}.
ALTER TABLE rollouts ADD COLUMN role_engines TEXT NOT NULL DEFAULT '{}';
