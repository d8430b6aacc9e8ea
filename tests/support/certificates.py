"""Certificates for localhost that sign themselves, made by the command ``openssl``."""

import subprocess

from support.needed import program


def new_certificate(folder, name="service"):
    """The paths of a certificate and of its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    kind = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = [
        program("openssl"),
        "req",
        *kind.split(),
        "-keyout",
        key,
        "-out",
        certificate,
        *names,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return str(certificate), str(key)
