"""Files for deployments, as the programs that read them judge them, where these are installed."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from support.certificates import new_certificate

pytestmark = pytest.mark.slow
PACKAGING = Path(__file__).parents[1] / "packaging"
SERVERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])  # where Debian has nginx
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


def judged(program, *args):
    """Run a program that must find nothing wrong; skip where it is not installed."""
    found = shutil.which(program, path=SERVERS)
    if found is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([found, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


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
    judged("promtool", "check", "rules", rules)
    judged(
        *("promtool", "check", "config"),
        shutil.copy(PACKAGING / "compose" / "prometheus.yml", tmp_path),
    )


def test_hadolint_accepts_the_dockerfile():
    judged("hadolint", PACKAGING / "image" / "Dockerfile")


def test_kubernetes_accepts_the_manifests():
    judged("kubernetes-validate", PACKAGING / "kubernetes" / "belated.yaml")
