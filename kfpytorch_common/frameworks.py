"""The frameworks whose processes a TrainJob can start."""

from typing import Final

TORCH: Final = "torch"
JAX: Final = "jax"
MPI: Final = "mpi"
FRAMEWORKS: Final = (TORCH, JAX, MPI)

MPI_HOSTFILE_VARIABLE: Final = "OMPI_MCA_orte_default_hostfile"
"""Environment variable with the path of the host file; Trainer sets it in the launcher of an MPI job."""
MPI_SSH_PORT: Final = 2222
"""The port on which sshd listens in each node of an MPI job."""
MPI_SSH_DIRECTORY: Final = "/etc/kfpytorch/ssh"
