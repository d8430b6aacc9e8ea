"""Files for deployments, as the programs that read them judge them, where these are installed."""

import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from support.certificates import new_certificate
from support.needed import program

pytestmark = pytest.mark.slow
PACKAGING = Path(__file__).parents[1] / "packaging"
NGINX = """
pid {folder}/nginx.pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    include {folder}/belated.conf;
}}
"""


def judged(name, *args, refuses=False):
    """Run a program that finds nothing wrong, or something."""
    done = subprocess.run([program(name), *map(str, args)], capture_output=True, text=True)
    assert (done.returncode != 0) is refuses, done.stdout + done.stderr


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def test_nginx_accepts_its_sample(tmp_path):
    """With certificates that exist, and on ports that this machine has to give."""
    certificate, key = new_certificate(tmp_path)
    text = (PACKAGING / "nginx.conf").read_text()
    text = text.replace("/etc/ssl/certs/bandits.example.pem", certificate)
    text = text.replace("/etc/ssl/private/bandits.example.key", key)
    text = re.sub(r"listen (?!\[)", "listen 127.0.0.1:", text).replace("[::]:", "127.0.0.2:")
    for port in ("80", "443"):
        text = text.replace(f":{port}", f":{free_port()}")
    (tmp_path / "belated.conf").write_text(text)
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path))
    judged("nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf")


def test_caddy_accepts_its_sample():
    judged("caddy", "validate", "--adapter", "caddyfile", "--config", PACKAGING / "Caddyfile")


def test_prometheus_accepts_its_rules_and_its_settings(tmp_path):
    rules = shutil.copy(PACKAGING.parent / "examples" / "alerts.yml", tmp_path)
    settings = shutil.copy(PACKAGING / "compose" / "prometheus.yml", tmp_path)
    judged("promtool", "check", "rules", rules)
    judged("promtool", "check", "config", settings)
    Path(rules).write_text(Path(rules).read_text().replace("> 0.1", "> > 0.1"))
    judged("promtool", "check", "config", settings, refuses=True)


@pytest.mark.parametrize(
    ("command", "file", "right", "wrong"),
    [
        ("hadolint", "image/Dockerfile", "WORKDIR /build", "WORKDIR build"),
        ("kubernetes-validate --strict", "kubernetes/belated.yaml", "replicas: 2", "replica: 2"),
        (
            *("check-jsonschema --builtin-schema vendor.compose-spec", "compose/compose.yaml"),
            *("depends_on:", "depend_on:"),
        ),
    ],
    ids=["hadolint", "kubernetes", "compose"],
)
def test_a_linter_accepts_a_file_and_refuses_a_slip(tmp_path, command, file, right, wrong):
    path = PACKAGING / file
    judged(*command.split(), path)
    assert right in path.read_text()
    spoiled = tmp_path / path.name
    spoiled.write_text(path.read_text().replace(right, wrong, 1))
    judged(*command.split(), spoiled, refuses=True)
