"""Benchmarks for the figures that the documentation promises; `python -m benchmarks` fills RESULTS.md.

A side is one of the programs that a benchmark compares. Our side is this plugin or its server. Upstream's
plugin, also called the published plugin, is Flyte's flytekitplugins-kfpytorch.

`measure`     times several sides in turn, with a new process for each run
`comparison`  the rows of the tables of results
`results_page` the hand-written page with the tables
`upstream`    the published plugin, in a separate environment
`scripts/`    the measured programs
"""
