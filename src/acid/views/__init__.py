"""Results for people to look at: one plan, a demo, a diagnosis, a model card."""
