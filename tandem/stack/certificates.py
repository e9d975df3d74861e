"""Makes an authority, and a certificate for each process of one machine."""

import datetime
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tandem.stack.data_folder import FULL_DISK

# Each kind of process, and the caller names that it accepts; empty if callers need none.
PEERS: Mapping[str, tuple[str, ...]] = {
    "gateway": (),
    "orchestrator": (),
    "encoder": ("orchestrator",),
    "index": ("orchestrator",),
    "rerank": ("orchestrator",),
    "triton": ("encoder", "rerank"),
}
_AUTHORITY_LIFE = datetime.timedelta(days=365)
_CERTIFICATE_LIFE = datetime.timedelta(days=30)
# The clocks of machines differ.
_BEFORE = datetime.timedelta(hours=1)


class LocalAuthority:
    """Issues certificates into a private folder."""

    def __init__(self, folder: Path) -> None:
        """Loads the folder's authority, or makes one; raises OSError, ValueError."""
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key_path, certificate_path = folder / "ca.key", folder / "ca.crt"
        if certificate_path.exists():
            self._key = _read_key(key_path)
            self._certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
            # An authority that expires before its certificates is of no use.
            if self._certificate.not_valid_after_utc > _now() + 2 * _CERTIFICATE_LIFE:
                return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _authority_certificate(self._key)
        _write({key_path: _key_pem(self._key), certificate_path: _pem(self._certificate)})

    @property
    def authority_file(self) -> Path:
        """PEM file of the authority, for callers: TANDEM_AUTHORITY_FILE."""
        return self._folder / "ca.crt"

    def issue(self, name: str, *more_names: str) -> Path:
        """Writes a new pair for the names and the loopback addresses; returns its folder.

        The folder has `tls.crt`, `tls.key` and `ca.crt`, which servers reload. On a full disk it
        keeps the last ones.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(key, (name, *more_names, "localhost"))
        folder = self._folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        pair = {
            folder / "tls.key": _key_pem(key),
            folder / "tls.crt": _pem(certificate),
            folder / "ca.crt": _pem(self._certificate),
        }
        try:
            _write(pair)
        except OSError as error:
            if error.errno not in FULL_DISK or not all(path.is_file() for path in pair):
                raise
        return folder

    def issue_all(self) -> dict[str, dict[str, str]]:
        """Writes a new pair for every kind of process; returns the TLS_… variables of each."""
        variables = {}
        for kind, peers in PEERS.items():
            folder = self.issue(kind)
            variables[kind] = {
                "TLS_CERTIFICATE_FILE": str(folder / "tls.crt"),
                "TLS_KEY_FILE": str(folder / "tls.key"),
                "TLS_AUTHORITY_FILE": str(folder / "ca.crt"),
                "TLS_CLIENT_CERTIFICATE_REQUIRED": str(bool(peers)).lower(),
                "TLS_PEER_NAMES": ",".join(peers),
            }
        return variables

    def _sign(self, key: ec.EllipticCurvePrivateKey, names: tuple[str, ...]) -> x509.Certificate:
        addresses = [ipaddress.ip_address(each) for each in ("127.0.0.1", "::1")]
        return (
            _builder(names[0], _CERTIFICATE_LIFE)
            .public_key(key.public_key())
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [*map(x509.DNSName, names), *map(x509.IPAddress, addresses)]
                ),
                critical=False,
            )
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )


def _authority_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    # A unique name, so that an authority is never mistaken for its successor.
    name = f"tandem {_now():%Y-%m-%d %H:%M:%S}"
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(name, _AUTHORITY_LIFE)
        .public_key(key.public_key())
        .issuer_name(_common_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(name: str, lifetime: datetime.timedelta) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _BEFORE)
        .not_valid_after(_now() + lifetime)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path}: not a key that `tandem up --tls` made; delete its folder")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(files: Mapping[Path, bytes]) -> None:
    """Replaces private files atomically, all or none, so that no reader sees half a pair."""
    parts = {path: path.with_name(f".{path.name}.part") for path in files}
    try:
        for path, part in parts.items():
            with os.fdopen(
                os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as file:
                file.write(files[path])
    except OSError as error:
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    for path, part in parts.items():
        part.replace(path)
