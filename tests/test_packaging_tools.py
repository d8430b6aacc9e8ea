"""Files for deployments, as the programs that read them judge them, where these are installed."""

import re
import shutil
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from belated.client import Client
from support.certificates import new_certificate
from support.needed import program
from support.running_service import served

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


def answers(port):
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def nginx_settings(tmp_path, service="127.0.0.1:8787"):
    """The sample with certificates that exist, and on ports that this machine has to give."""
    certificate, key = new_certificate(tmp_path)
    text = (PACKAGING / "nginx.conf").read_text()
    text = text.replace("/etc/ssl/certs/bandits.example.pem", certificate)
    text = text.replace("/etc/ssl/private/bandits.example.key", key)
    text = re.sub(r"listen (?!\[)", "listen 127.0.0.1:", text).replace("[::]:", "127.0.0.2:")
    tls = free_port()
    for port, free in (("80", free_port()), ("443", tls)):
        text = re.sub(rf"(listen \S+):{port}\b", rf"\1:{free}", text)
    (tmp_path / "belated.conf").write_text(
        text.replace("server 127.0.0.1:8787", f"server {service}")
    )
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path))
    return ["-p", tmp_path, "-c", tmp_path / "nginx.conf"], certificate, tls


def test_nginx_accepts_its_sample(tmp_path):
    judged("nginx", "-t", *nginx_settings(tmp_path)[0])


def test_a_shop_behind_nginx_is_one_address_and_decides_as_often_as_it_likes(tmp_path):
    with served() as (service, _):
        settings, certificate, port = nginx_settings(tmp_path, service.removeprefix("http://"))
        command = [program("nginx"), *map(str, settings), "-g", "daemon off;"]
        nginx = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while nginx.poll() is None and not answers(port):
                time.sleep(0.01)
            with Client(f"https://localhost:{port}", ca_file=certificate, retries=0) as client:
                client.put_bandit("shop", {"family": "bernoulli", "dim": 1})
                client.change_actions("shop", {"a": [1.0]})
                with ThreadPoolExecutor(16) as threads:
                    made = list(threads.map(lambda _: client.decide("shop"), range(1000)))
                assert len({one.decision_id for one in made}) == 1000
            context = ssl.create_default_context(cafile=certificate)
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"https://localhost:{port}/metrics", context=context)
        finally:
            nginx.terminate()
            nginx.wait(30)


def test_caddy_accepts_its_sample():
    judged("caddy", "validate", "--adapter", "caddyfile", "--config", PACKAGING / "Caddyfile")


def test_prometheus_accepts_its_rules_and_its_settings(tmp_path):
    rules = shutil.copy(PACKAGING.parent / "examples" / "alerts.yml", tmp_path)
    settings = shutil.copy(PACKAGING / "compose" / "prometheus.yml", tmp_path)
    judged("promtool", "check", "rules", rules)
    judged("promtool", "check", "config", settings)
    Path(rules).write_text(Path(rules).read_text().replace("> 0.1", "> > 0.1"))
    judged("promtool", "check", "config", settings, refuses=True)


ALERTS = """
rule_files: [{rules}]
tests:
  - interval: 1m
    input_series:
      - {{series: 'up{{job="belated", instance="dead"}}', values: "0x20"}}
      - {{series: 'up{{job="belated", instance="reading"}}', values: "1x20"}}
      - {{series: 'belated_ready{{job="belated", instance="reading"}}', values: "0x20"}}
    alert_rule_test:
      - alertname: BelatedDown
        eval_time: 2m
        exp_alerts:
          - exp_labels: {{severity: critical, job: belated, instance: dead}}
            exp_annotations: {{summary: "belated dead does not answer Prometheus."}}
      - {{alertname: BelatedNotReady, eval_time: 9m, exp_alerts: []}}
      - alertname: BelatedNotReady
        eval_time: 11m
        exp_alerts:
          - exp_labels: {{severity: critical, job: belated, instance: reading}}
            exp_annotations: {{summary: "reading is still reading the log."}}
  - interval: 1m
    input_series: [{{series: 'up{{job="another"}}', values: "1x20"}}]
    alert_rule_test:
      - alertname: BelatedDown
        eval_time: 2m
        exp_alerts:
          - exp_labels: {{severity: critical, job: belated}}
            exp_annotations: {{summary: "belated  does not answer Prometheus."}}
"""


def test_a_dead_process_is_an_alert_and_one_that_reads_its_log_for_ten_minutes(tmp_path):
    path = tmp_path / "test.yml"
    path.write_text(ALERTS.format(rules=PACKAGING.parent / "examples" / "alerts.yml"))
    judged("promtool", "test", "rules", path)
    path.write_text(path.read_text().replace("eval_time: 9m", "eval_time: 11m"))
    judged("promtool", "test", "rules", path, refuses=True)


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
