"""Decodes a task template into a job: `custom` calls the other modules."""
