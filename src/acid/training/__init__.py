"""Recipes: from a dataset to a checkpoint, one file for each thing that is trained."""
