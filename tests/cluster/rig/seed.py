"""The seed of all random tests: constant, so that a new failure is the result of a change.

The variable `KFPYTORCH_SEED` sets another seed, and `KFPYTORCH_SEED=random` a random one.
"""

import os
from random import SystemRandom

_SAID = os.environ.get("KFPYTORCH_SEED", "420780")
SEED = SystemRandom().randrange(1_000_000) if _SAID == "random" else int(_SAID)
