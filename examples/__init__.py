"""What this package does, one file a thing: start with `01_digits_elastic.py`."""
