"""Stores for the inputs and outputs of tasks: a folder of this machine, or an S3 server; and volumes."""

import fsspec

from rig.api import build_manifest, path_of
from rig.control_plane import free_ports
from rig.process import LOOPBACK, Process, wait_for
from rig.tools import tool

_BUCKET = "flyte"
_REGION = "us-east-1"
_KEY = "rig"
_SECRET = "rig-secret"


class Folder:
    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.uri = folder.as_uri()

    @property
    def section(self):
        """The `storage` section, with the path as container name.

        A plain name would become the host of file URIs, which Python clients do not open.
        """
        return _section("local", {"path": "/"}, str(self._folder))

    def read(self, path):
        return (self._folder / path).read_bytes()


class S3:
    """An S3 server with one bucket, whose objects and logs are in `folder`; a context manager."""

    uri = f"s3://{_BUCKET}"

    def __init__(self, folder, place=LOOPBACK):
        (port,) = free_ports(1)
        self._port = port
        self.endpoint = f"http://{place.address}:{port}"
        self._objects, self._about = folder / "objects", folder / "about"
        self.process = Process(
            [
                *(tool("versitygw"), "--port", f"{place.listen}:{port}", "--health", "/health"),
                *("--access", _KEY, "--secret", _SECRET, "--region", _REGION),
                *("--access-log", folder / "access.log"),
                # Object metadata is stored in separate files, because some file systems have no extended
                # attributes.
                *("posix", "--sidecar", self._about, self._objects),
            ],
            folder / "s3.log",
            directory=folder,
            place=place,
        )

    def __enter__(self):
        (self._objects / _BUCKET).mkdir(parents=True)
        self._about.mkdir()
        self.process.start()
        self.process.wait_until(lambda: self.process.place.is_ready(self._port, "health"))
        return self

    def __exit__(self, *_):
        self.process.stop()

    @property
    def section(self):
        """The `storage` section for an S3 server other than Amazon's."""
        known = {"auth_type": "accesskey", "access_key_id": _KEY, "secret_key": _SECRET, "region": _REGION}
        return _section("s3", {**known, "endpoint": self.endpoint, "disable_ssl": "true"}, _BUCKET)

    @property
    def environment(self):
        """The environment variables with which clients on this machine find the server."""
        return self.environment_at(self.endpoint.removeprefix("http://").partition(":")[0])

    def environment_at(self, address):
        """Return the variables with which clients find the server at this address.

        They are those of AWS, of flytekit and of Trainer's initializers.
        """
        endpoint = f"http://{address}:{self._port}"
        keys = {"ACCESS_KEY_ID": _KEY, "SECRET_ACCESS_KEY": _SECRET}
        return {
            **{
                f"{client}{name}": value
                for client in ("AWS_", "FLYTE_AWS_", "")
                for name, value in keys.items()
            },
            **dict.fromkeys(("AWS_ENDPOINT_URL_S3", "FLYTE_AWS_ENDPOINT", "ENDPOINT"), endpoint),
            **dict.fromkeys(("AWS_REGION", "REGION"), _REGION),
        }

    def write(self, path, content):
        self._open().pipe_file(f"{_BUCKET}/{path}", content)

    def read(self, path):
        return self._open().cat_file(f"{_BUCKET}/{path}")

    def _open(self):
        return fsspec.filesystem("s3", key=_KEY, secret=_SECRET, endpoint_url=self.endpoint)


Store = Folder | S3


def _section(kind, config, container):
    return {
        "type": "stow",
        "stow": {"kind": kind, "config": config},
        "container": container,
        "enable-multicontainer": True,
    }


def add_volume(api, name, folder):
    """Create a volume of 1 GiB for all nodes, and return when a new claim is bound to it immediately.

    Create it before its claim: the controller manager looks again at a claim without a volume after 15 s. It
    marks a claim as lost if a test binds it to a volume that the controller manager has not read yet.
    """
    spec = {
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
    }
    path = path_of(api.create(build_manifest("v1", "PersistentVolume", name, spec=spec)))
    wait_for(lambda: api.get(f"{path}/{name}"), lambda found: found["status"].get("phase") == "Available")
