"""What is drawn by chance is drawn from here, the same every time: what fails is the doing of a change.

``KFPYTORCH_SEED`` names another number to draw from, and ``KFPYTORCH_SEED=random`` any.
"""

import os
from random import SystemRandom
from typing import Final

_SAID: Final = os.environ.get("KFPYTORCH_SEED", "420780")
SEED: Final = SystemRandom().randrange(1_000_000) if _SAID == "random" else int(_SAID)
