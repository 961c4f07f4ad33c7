"""The gang schedulers, one module for each; the modules are independent of each other."""
