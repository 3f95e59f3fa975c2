"""What a person looks at: one plan, a demo, a diagnosis, a model card."""
