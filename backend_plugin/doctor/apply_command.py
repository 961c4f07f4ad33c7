"""Builds the kubectl command that creates the objects of a manifest."""


def build_apply_command(manifest: str) -> str:
    """Return a command that applies a manifest, which is YAML without single quotes.

    The document separator is necessary: kubectl reads text that begins with a brace as JSON.
    """
    return f"echo '---\n{manifest}' | kubectl apply -f -"
