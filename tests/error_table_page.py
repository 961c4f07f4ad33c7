"""Table of API server responses for docs/explanation/kubernetes-api-use.md, from the table in the code."""

import generated

from backend_plugin.kube.api_errors import TABLE


def build_error_table() -> str:
    rows = (
        [
            row.answer,
            "yes" if row.repeated else "",
            row.create.value,
            row.get.value,
            row.delete.value,
        ]
        for row in TABLE
    )
    return generated.table(["answer", "sent again", "create", "get", "delete"], rows)
