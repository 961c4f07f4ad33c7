"""containerd, runc and CNI plugins from Debian packages, unpacked into the user's cache without installation.

apt verifies the downloads against the signed lists of its distribution.
"""

import hashlib
import os
import shutil
import subprocess
from functools import cache

from rig.process import run_command
from rig.tools import CACHES, cached_folder

PACKAGES = (
    "containerd=1.6.20~ds1-1+deb12u3",
    "containernetworking-plugins=1.1.1+ds1-3+b5",
    "libip4tc2=1.8.9-2",
    "libip6tc2=1.8.9-2",
    "libjansson4=2.14-2",
    "libmnl0=1.0.4-3",
    "libnftables1=1.0.6-2+deb12u2",
    "libnftnl11=1.2.4-2",
    "libxtables12=1.8.9-2",
    "nftables=1.0.6-2+deb12u2",
    "runc=1.1.5+ds1-1+deb12u1",
)
MPI = (
    "libevent-core-2.1-7=2.1.12-stable-8+deb12u1",
    "libevent-pthreads-2.1-7=2.1.12-stable-8+deb12u1",
    "libhwloc15=2.9.0-1",
    "libibverbs1=44.0-2",
    "libmunge2=0.5.15-2+deb12u1",
    "libnl-3-200=3.7.0-0.2+b1",
    "libnl-route-3-200=3.7.0-0.2+b1",
    "libopenmpi3=4.1.4-3+b1",
    "libpmix2=4.2.2-1+deb12u1",
    "libwrap0=7.6.q-32",
    "openmpi-bin=4.1.4-3+b1",
    "openmpi-common=4.1.4-3",
    "openssh-server=1:9.2p1-2+deb12u10",
    "python3-mpi4py=3.1.4-2+b2",
)
"""Open MPI, sshd and mpi4py for the Python of the distribution."""
_MINUTES = 600


class NoPackages(Exception):
    """The Debian packages are not available on this machine."""


@cache
def packages(names=PACKAGES):
    """Return the folder that contains the unpacked packages; download them if necessary.

    Raises:
        NoPackages: If the machine has no apt, other versions, or no access to a mirror.
    """
    home = CACHES / "debian" / hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]
    if home.exists():
        return home
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NoPackages("the tests need packages of Debian, and this machine has no apt-get")
    with cached_folder(home) as root:
        _download(root.parent, names)
        for archive in sorted(root.parent.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", archive, root], check=True, timeout=_MINUTES)
    return home


def path():
    root = packages()
    found = (root / "usr/bin", root / "usr/sbin", root / "sbin")
    return os.pathsep.join([*map(str, found), os.environ.get("PATH", os.defpath)])


def libraries():
    return os.pathsep.join(str(each) for each in sorted(packages().glob("usr/lib/*-linux-gnu*")))


def _download(folder, names):
    # By default apt downloads as a user without write access to this folder.
    download = ("-o", "APT::Sandbox::User=root", "download", *names)
    if _apt(folder, *download).returncode == 0:
        return
    _apt(folder, "update")  # The package lists are outdated or missing.
    tried = _apt(folder, *download)
    if tried.returncode != 0:
        raise NoPackages(f"apt-get cannot download the packages: {tried.stderr.strip()}")


def _apt(folder, *words):
    return run_command("apt-get", "--quiet", *words, cwd=folder, timeout=_MINUTES)
