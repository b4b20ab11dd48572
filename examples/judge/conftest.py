"""Puts the project's folder into the import path, as a run does."""
