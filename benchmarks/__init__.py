"""Benchmarks for the figures that the documentation promises; `python -m benchmarks` writes the results.

`measure`     times several sides in turn, each run in a new process
`comparison`  the rows of the table of results
`upstream`    the published plugin, in a separate environment
`scripts/`    the measured programs: the same file under torchrun, this plugin and upstream's plugin
"""
