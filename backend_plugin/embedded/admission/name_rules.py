"""The rules of Kubernetes for names, labels and environment variables.

Each function returns the error messages of the API server for one rule; an empty list means a valid value.
"""

import re
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_QUALIFIED})?"

LABEL_LENGTH: Final = 63
SUBDOMAIN_LENGTH: Final = 253
_PORT_NAME_LENGTH: Final = 15
_LOOKED_AT: Final = 4_096

_QUALIFIED_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    f" '{_QUALIFIED}')"
)
_LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used"
    f" for validation is '{_LABEL_VALUE}')"
)
_DNS_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start"
    " and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    f" '{_LABEL}')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    f" '{_SUBDOMAIN}')"
)
_DNS_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
    " character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for"
    f" validation is '{_DNS_1035}')"
)


def check_subdomain(value: str) -> list[str]:
    """Return the errors in the name of an object of most kinds."""
    return [*_check_length(value, SUBDOMAIN_LENGTH), *_check_pattern(value, _SUBDOMAIN, _SUBDOMAIN_RULE)]


def check_dns_label(value: str) -> list[str]:
    """Return the errors in the name of a namespace, container or volume."""
    wrong = _check_pattern(value, _LABEL, _DNS_LABEL_RULE)
    if wrong and not _check_pattern(value, _SUBDOMAIN, ""):
        wrong = ["must not contain dots"]
    return [*_check_length(value, LABEL_LENGTH), *wrong]


def check_dns_1035_label(value: str) -> list[str]:
    """Return the errors in the name of a service, or of a job whose pods have services."""
    return [*_check_length(value, LABEL_LENGTH), *_check_pattern(value, _DNS_1035, _DNS_1035_RULE)]


def check_qualified_name(value: str) -> list[str]:
    """Return the errors in a name with an optional domain prefix, as of labels, annotations and resources."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_QUALIFIED_RULE} {example}"]
    wrong = []
    if slash:
        wrong = [
            f"prefix part {each}" for each in (check_subdomain(prefix) if prefix else ["must be non-empty"])
        ]
    of_name = [*_check_length(name, LABEL_LENGTH), *_check_pattern(name, _QUALIFIED, _QUALIFIED_RULE)]
    of_name = of_name if name else ["must be non-empty", *of_name]
    return [*wrong, *(f"name part {each}" for each in of_name)]


def check_label_value(value: str) -> list[str]:
    """Return the errors in the value of a label."""
    return [*_check_length(value, LABEL_LENGTH), *_check_pattern(value, _LABEL_VALUE, _LABEL_VALUE_RULE)]


def check_variable_name(value: str) -> list[str]:
    """Return the errors in the name of an environment variable, by the relaxed rule of Kubernetes 1.34."""
    rule = "a valid environment variable name must consist only of printable ASCII characters other than '='"
    return [] if value.isascii() and value.isprintable() and "=" not in value else [rule]


def check_port_name(value: str) -> list[str]:
    """Return the errors in the name of a container port."""
    rules = {
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": re.fullmatch(
            "[-a-z0-9]+", value
        )
        is None,
        "must contain at least one letter (a-z)": re.search("[a-z]", value) is None,
        "must not contain consecutive hyphens": "--" in value,
        "must not begin or end with a hyphen": value.startswith("-") or value.endswith("-"),
    }
    return [
        *_check_length(value, _PORT_NAME_LENGTH),
        *(rule for rule, is_broken in rules.items() if is_broken),
    ]


def _check_length(value: str, most: int) -> list[str]:
    return [f"must be no more than {most} characters"] if len(value.encode()) > most else []


def _check_pattern(value: str, pattern: str, rule: str) -> list[str]:
    # A longer value is rejected for its length.
    return [] if len(value) > _LOOKED_AT or re.fullmatch(pattern, value) else [rule]
