"""One file for each figure that the project promises; `python -m benchmarks` writes them down.

`measure`     several sides timed in turn, each run in fresh processes
`comparison`  what was measured, as rows of a table
`upstream`    the published plugin, in an environment of its own
`scripts/`    what is run: the same file by torchrun, by our plugin and by upstream's
"""
