"""Decodes a task template into a `TrainingJob`. The module `custom` calls the other modules."""
