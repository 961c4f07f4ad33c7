"""A certificate authority for one cluster, and the certificates that it signs."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BITS = 2048
# The training operator renews a certificate that is valid for less than 90 days.
_VALID = datetime.timedelta(days=365)


@dataclass(frozen=True)
class CertificatePair:
    certificate: Path
    key: Path


class ClusterAuthority:
    def __init__(self, folder, name="rig"):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        # The training operator expects this name in the certificate of its authority.
        names = [x509.DNSName(f"{name}-ca")]
        self._certificate = (
            self._builder(_name(f"{name}-ca", ""), self._key)
            .issuer_name(_name(f"{name}-ca", ""))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = self._written("ca", self._certificate, self._key)

    @property
    def certificate(self):
        """The certificate file of the authority, for clients that trust it."""
        return self.pair.certificate

    def server(self, name, addresses=("127.0.0.1", "localhost")):
        """Return a certificate for a server with these addresses and names."""
        return self._signed(name, "", addresses, ExtendedKeyUsageOID.SERVER_AUTH)

    def client(self, file, user, group=""):
        """Return a client certificate that Kubernetes maps to this user and group."""
        return self._signed(file, group, (), ExtendedKeyUsageOID.CLIENT_AUTH, user)

    def _signed(self, file, group, addresses, usage, user=""):
        key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        builder = (
            self._builder(_name(user or file, group), key)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if addresses:
            names = x509.SubjectAlternativeName([_general(each) for each in addresses])
            builder = builder.add_extension(names, critical=False)
        return self._written(file, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject, key):
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _VALID)
        )

    def _written(self, file, certificate, key):
        pair = CertificatePair(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.TraditionalOpenSSL  # The training operator reads only PKCS#1 keys.
        pair.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        pair.key.chmod(0o600)
        return pair


def _name(user, group):
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _general(address):
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
