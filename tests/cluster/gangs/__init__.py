"""Gangs on the schedulers that there are, as a platform has them: what is made, who waits, and what is told.

`grounds` are clusters with one scheduler each, and the platforms on them; `scene` is one of them with our
server before it. `scenarios` are what happens there, and `told` is what a user hears of it meanwhile.
"""
