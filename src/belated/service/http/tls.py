"""TLS of the service itself: the certificate that it presents."""

import ssl

from belated.core.arguments import wrong


def new_context(certificate: str, key: str) -> ssl.SSLContext:
    """Returns a context for a server with this certificate (and those it is signed by) and its key.

    Both are PEM files. Raises ``ValueError`` with the option and the file that cannot be used.
    """
    for option, path in (("tls-certificate", certificate), ("tls-key", key)):
        try:
            open(path, "rb").close()
        except OSError as error:
            raise wrong(option, path, f"a PEM file that can be read ({error.strerror})") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(certificate)  # tells which of the two files is wrong
    except ssl.SSLError:
        raise wrong("tls-certificate", certificate, "a PEM file with a certificate") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, PermissionError):
        expected = f"the PEM key of {certificate}, without a password"
        raise wrong("tls-key", key, expected) from None
    return context


def _no_password() -> str:
    raise PermissionError  # OpenSSL would ask at the terminal
