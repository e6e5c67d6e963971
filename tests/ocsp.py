"""An OCSP responder for tests, which says of each certificate what it is told to."""

import base64
import datetime
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import ocsp

from tests.certificates import Authority, Issued

STATUSES = {
    "good": ocsp.OCSPCertStatus.GOOD,
    "revoked": ocsp.OCSPCertStatus.REVOKED,
    "unknown": ocsp.OCSPCertStatus.UNKNOWN,
}


class Responder:
    """Answers for an authority on 127.0.0.1; as a context manager it ends with its block.

    `says`: what of which serial number, else `otherwise`. `begins` and `ends` are seconds from now
    on. `signer`: who signs instead of the authority. `raw`: what is answered whatever is asked.
    """

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.says: dict[int, str] = {}
        self.otherwise = "good"
        self.begins = -10.0
        self.ends: float | None = 3600.0
        self.signer: Issued | None = None
        self.signs_for: Authority = authority
        self.raw: bytes | None = None
        self.status = 200
        self.delay = threading.Event()
        self.delay.set()
        self.asked: list[str] = []
        """The methods of the requests that came."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                self._answer(self.rfile.read(size))

            def do_GET(self) -> None:
                text = urllib.parse.unquote(self.path.removeprefix("/"))
                self._answer(base64.b64decode(text))

            def _answer(self, request: bytes) -> None:
                outer.asked.append(self.command)
                outer.delay.wait(30)
                body = outer.answer(request)
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> "Responder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.delay.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def answer(self, request: bytes) -> bytes:
        if self.raw is not None:
            return self.raw
        return self.made(ocsp.load_der_ocsp_request(request).serial_number)

    def made(self, serial: int) -> bytes:
        """An answer about the certificate of a number."""
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        seconds = datetime.timedelta(seconds=1)
        status = STATUSES[self.says.get(serial, self.otherwise)]
        revoked = status is ocsp.OCSPCertStatus.REVOKED
        issuer = self.signs_for.made
        signer, key = issuer, self.signs_for.key
        builder = ocsp.OCSPResponseBuilder()
        if self.signer is not None:
            signer = self.signer.made
            key = serialization.load_pem_private_key(self.signer.key.read_bytes(), None)  # type: ignore[assignment]
            builder = builder.certificates([signer])
        key_hash = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key()).digest
        name_hash = hashes.Hash(hashes.SHA1())
        name_hash.update(issuer.subject.public_bytes())
        builder = builder.add_response_by_hash(
            issuer_name_hash=name_hash.finalize(),
            issuer_key_hash=key_hash,
            serial_number=serial,
            algorithm=hashes.SHA1(),
            cert_status=status,
            this_update=now + self.begins * seconds,
            next_update=None if self.ends is None else now + self.ends * seconds,
            revocation_time=now - 60 * seconds if revoked else None,
            revocation_reason=x509.ReasonFlags.key_compromise if revoked else None,
        ).responder_id(ocsp.OCSPResponderEncoding.HASH, signer)
        made = builder.sign(key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.DER)
