"""Adds this folder to the import path for its subfolders."""
