"""What runs inside a replica, in a pod or on this machine.

`launch`    where and how a task runs: inline, as processes here, or as a node of a cluster
`local`     the processes of a job laid out on this machine
`group`     processes started, watched and gone together; `console` shows what they write
`replica`   one worker: the user's function, its result or its failure
`agent`     one node of an elastic job
`aftermath` what a group left, as a value or an exception; `report` puts it on one screen
"""

from typing import Final

TORCH_IMPORT_ERROR_MESSAGE: Final = "PyTorch is not installed here. Install it with: pip install torch"
