"""From a dataset to the parts of a cell: `fit(recipe(part, model, scale), data, cell)`."""

from acid.training.fit import PARTS, fit, recipe, task_name
from acid.training.part import Recipe

__all__ = ["PARTS", "Recipe", "fit", "recipe", "task_name"]
