"""Certificates for tests: an authority, and what it signs, as PEM files in a folder."""

import datetime
import hashlib
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
ATTRIBUTES = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "UID": NameOID.USER_ID,
    "SERIALNUMBER": NameOID.SERIAL_NUMBER,
    "GIVENNAME": NameOID.GIVEN_NAME,
}


def name_of(text: str) -> x509.Name:
    """A name of `CN=a,O=b+OU=c`, in this order."""
    rdns = []
    for rdn in text.split(","):
        pairs = [pair.split("=", 1) for pair in rdn.split("+")]
        rdns.append(
            x509.RelativeDistinguishedName(
                x509.NameAttribute(ATTRIBUTES[key], value) for key, value in pairs
            )
        )
    return x509.Name(rdns)


class Issued:
    """A certificate and its key."""

    def __init__(self, cert: Path, key: Path, made: x509.Certificate) -> None:
        self.cert = cert
        self.key = key
        self.made = made

    @property
    def pin(self) -> str:
        """SHA-256 of its SubjectPublicKeyInfo."""
        der = self.made.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(der).hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate."""
        return hashlib.sha256(self.made.public_bytes(serialization.Encoding.DER)).hexdigest()


class Authority:
    """Signs certificates; its own is in `cert`."""

    def __init__(self, folder: Path, subject: str = "CN=test authority") -> None:
        self._folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._name = name_of(subject)
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)
        builder = self._builder(self._name, self.key.public_key(), 30)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        made = self._write("authority", builder, self.key)
        self.cert, self.made = made.cert, made.made

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: float
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now + days * _DAY)
        )

    def _write(
        self, name: str, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> Issued:
        made = builder.sign(self.key, hashes.SHA256())
        cert, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.touch(mode=0o600)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return Issued(cert, private, made)

    def issue(
        self,
        subject: str = "CN=localhost",
        *,
        dns: tuple[str, ...] = (),
        emails: tuple[str, ...] = (),
        uris: tuple[str, ...] = (),
        ips: tuple[str, ...] = (),
        days: float = 30,
        name: str = "",
        responder: str = "",
        must_staple: bool = False,
        answers: bool = False,
    ) -> Issued:
        """`days` until it ends; `name` of its files, whose contents it replaces. `responder`: the
        URL where OCSP tells of it; `answers`: it may sign OCSP responses for the authority."""
        self._count += 1
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name_of(subject), key.public_key(), days)
        others: list[x509.GeneralName] = [
            *(x509.RFC822Name(e) for e in emails),
            *(x509.DNSName(d) for d in dns),
            *(x509.UniformResourceIdentifier(u) for u in uris),
            *(x509.IPAddress(ipaddress.ip_address(i)) for i in ips),
        ]
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), False)
        if responder:
            access = x509.AccessDescription(
                AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier(responder)
            )
            builder = builder.add_extension(x509.AuthorityInformationAccess([access]), False)
        if must_staple:
            feature = x509.TLSFeature([x509.TLSFeatureType.status_request])
            builder = builder.add_extension(feature, False)
        if answers:
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING])
            builder = builder.add_extension(usage, False)
        return self._write(name or f"issued{self._count}", builder, key)

    def server(
        self,
        name: str = "",
        subject: str = "CN=localhost",
        *,
        responder: str = "",
        must_staple: bool = False,
    ) -> Issued:
        """A certificate for 127.0.0.1."""
        return self.issue(
            subject,
            dns=("localhost",),
            ips=("127.0.0.1",),
            name=name,
            responder=responder,
            must_staple=must_staple,
        )

    def client_context(
        self,
        issued: Issued | None = None,
        *,
        least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> ssl.SSLContext:
        """A client that trusts it, with a certificate of its own or without."""
        context = ssl.create_default_context(cafile=str(self.cert))
        context.minimum_version, context.maximum_version = least, most
        if issued is not None:
            context.load_cert_chain(issued.cert, issued.key)
        return context
