"""Check data sets and models that an initializer of Kubeflow Trainer loads before a training starts.

Trainer 2.3 defines the URI schemes, environment variables and paths in its package `pkg/initializers`.
"""

import re
from collections.abc import Mapping
from typing import Final

DATASET: Final = "dataset"
MODEL: Final = "model"
WORKSPACE: Final = "/workspace"
PATHS: Final[Mapping[str, str]] = {DATASET: f"{WORKSPACE}/dataset", MODEL: f"{WORKSPACE}/model"}
"""The directories of the loaded data set and the loaded model in the pods of a job."""
PATH_VARIABLES: Final[Mapping[str, str]] = {
    DATASET: "FLYTE_KFPYTORCH_DATASET",
    MODEL: "FLYTE_KFPYTORCH_MODEL",
}
"""The environment variables of ranks with the directory of the data set, and with that of the model."""
URI_VARIABLE: Final = "STORAGE_URI"
"""The environment variable of an initializer that Trainer sets to the URI of the data set or model."""
CACHE_SCHEME: Final = "cache://"
CACHE_REFUSAL: Final = (
    "Trainer 2.3 rejects a data cache on its own runtime: must have volumeMount with name - initializer in "
    "container dataset-initializer of the dataset-initializer job"
)
CACHE_REMEDY: Final = "name a runtime of yours that has this mount, as runtime"

_URIS: Final = {
    "hf": (re.compile(r"hf://[\w.-]+/[\w.-]+", re.ASCII), "hf://owner/name"),
    "s3": (re.compile(r"s3://[a-z0-9][a-z0-9.-]*[a-z0-9](/.*)?"), "s3://bucket/prefix"),
    "cache": (re.compile(r"cache://[^/]+/[^/]+"), "cache://schema/table"),
}
_LONGEST_URI: Final = 2048
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSWORD|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
_SECRET_VALUE: Final = re.compile(r"hf_[A-Za-z0-9]{20,}|(AKIA|ASIA)[A-Z0-9]{16}")
MOST_VARIABLES: Final = 128


def find_uri_remedy(kind: str, uri: str) -> str | None:
    """Return a remedy such as ``write hf://owner/name`` for an invalid URI; None if the URI is valid.

    `kind` is `DATASET` or `MODEL`.
    """
    schemes = [each for each in _URIS if each != "cache" or kind == DATASET]
    scheme = uri.partition("://")[0]
    if scheme not in schemes or "://" not in uri:
        return f"write {' or '.join(_URIS[each][1] for each in schemes)}"
    pattern, form = _URIS[scheme]
    if pattern.fullmatch(uri) is None:
        return f"write {form}"
    return f"write at most {_LONGEST_URI} characters" if len(uri) > _LONGEST_URI else None


def find_variable_remedy(name: str, value: str) -> str | None:
    """Return a remedy if an initializer must not have this environment variable; None if it is valid."""
    if _VARIABLE.fullmatch(name) is None:
        return "write letters, digits and '_', not a digit first"
    if name == URI_VARIABLE:
        return "leave it out, because Trainer sets it to the URI"
    if _SECRET.search(name) or _SECRET_VALUE.search(value):
        return "put it into a Secret, and write the name of the Secret as secret"
    return None
