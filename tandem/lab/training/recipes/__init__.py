"""Configures runs: every choice that makes a checkpoint, by kind of run.

- recipe.py: the kinds and their fields; named_recipes.py: the named ones
- recipe_settings.py: single fields changed by their names
"""
