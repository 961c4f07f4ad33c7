"""The frameworks whose processes a TrainJob can start."""

from typing import Final

TORCH: Final = "torch"
JAX: Final = "jax"
MPI: Final = "mpi"
FRAMEWORKS: Final = (TORCH, JAX, MPI)

MPI_HOSTFILE_VARIABLE: Final = "OMPI_MCA_orte_default_hostfile"
"""The variable that Trainer sets in the launcher of an MPI job: the path of the file with the nodes."""
MPI_SSH_PORT: Final = 2222
"""The port of sshd in the nodes of an MPI job."""
MPI_SSH_DIRECTORY: Final = "/etc/kfpytorch/ssh"
