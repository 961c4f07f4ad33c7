"""Examples of the plugin, one file for each feature; start with `01_digits_elastic.py`."""
