"""Deliberately broken clusters as test cases for `kfpytorch doctor`."""
