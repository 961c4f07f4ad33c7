"""A module that freezes what is loaded, as the start of a process does after it imported torch."""

import gc

gc.freeze()
