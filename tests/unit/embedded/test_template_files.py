"""PodTemplates from files."""

import json

import pytest
import yaml

from backend_plugin.embedded import pod_templates

TEMPLATE = {"kind": "PodTemplate", "metadata": {"name": "t"}, "template": {"spec": {}}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.yaml", yaml.safe_dump_all([TEMPLATE, {"kind": "ConfigMap"}, None])),
        ("t.json", json.dumps(TEMPLATE)),
        ("list.json", json.dumps({"kind": "List", "items": [TEMPLATE, {"kind": "Pod"}]})),
    ],
)
def test_templates_are_read_from_a_file_or_from_its_folder(tmp_path, name, content):
    file = tmp_path / name
    file.write_text(content)
    (tmp_path / "README").write_text("no template")
    assert pod_templates.read_templates(file) == pod_templates.read_templates(tmp_path) == [TEMPLATE]


@pytest.mark.parametrize(
    ("name", "content"), [("t.yaml", b"a: ["), ("t.yaml", b"- a"), ("t.json", b"{"), ("t.json", b"\xff")]
)
def test_unreadable_template_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(pod_templates.UnreadableTemplates, match=f"^{tmp_path / name}: "):
        pod_templates.read_templates(tmp_path)


def test_missing_template_path_is_named(tmp_path):
    assert pod_templates.read_templates(None) == ()
    with pytest.raises(pod_templates.UnreadableTemplates, match="nowhere: No such file or directory"):
        pod_templates.read_templates(tmp_path / "nowhere")
