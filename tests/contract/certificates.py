"""Certificates of an authority that no client trusts by default."""

from datetime import datetime, timedelta, timezone
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from backend_plugin.shell.credentials import Tls


class Authority:
    def __init__(self, name="authority"):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name.from_rfc4514_string(f"CN={name}")
        self._certificate = self._signed(self._name, self._key, authority=True)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name, certificate, key, age=timedelta(0)):
        """Write a certificate for 127.0.0.1 and `server.test`, and its key. It expires when one day old."""
        secret = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name.from_rfc4514_string(f"CN={name}")
        signed = self._signed(subject, secret, age, authority=False)
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key.write_bytes(secret.private_bytes(serialization.Encoding.PEM, *form))

    def issue_server(self, folder, *, mutual=False, age=timedelta(0)):
        """Write the certificate and key of a server, and this authority as ``ca.crt``; return the files."""
        ca = folder / "ca.crt"
        ca.write_bytes(self.pem)
        files = Tls(certificate=folder / "tls.crt", key=folder / "tls.key", client_ca=ca if mutual else None)
        self.issue("server", files.certificate, files.key, age)
        return files

    def _signed(self, name, key, age=timedelta(0), *, authority):
        now = datetime.now(timezone.utc) - age
        names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("server.test")]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), False)
        )
        return builder.sign(self._key, hashes.SHA256())
