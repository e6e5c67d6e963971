"""The files of a stream's archive, taken out and put together again with others."""

import io
import json
import tarfile

from jsserver.cext.bytes import hh64, s2_encode, sha256
from jsserver.text.s2 import decompress

Files = dict[str, bytes]


def files_of(archive: bytes) -> Files:
    with tarfile.open(fileobj=io.BytesIO(decompress(archive, 1 << 30))) as tar:
        return {m.name: read.read() for m in tar.getmembers() if (read := tar.extractfile(m))}


def archive_of(files: Files, stream: str) -> bytes:
    """Checksums of configurations are made anew."""
    parts = []
    for name, content in files.items():
        folder, _, file = name.rpartition("/")
        if file == "meta.sum":
            asset = f"{stream}/{folder.removeprefix('obs/')}" if folder else stream
            inf = files[name.removesuffix("sum") + "inf"]
            content = hh64(sha256(asset.encode()), inf).to_bytes(8, "little").hex().encode()
        info = tarfile.TarInfo(name)
        info.size = len(content)
        parts.append(info.tobuf() + content + bytes(-len(content) % tarfile.BLOCKSIZE))
    return s2_encode(b"".join(parts) + bytes(2 * tarfile.BLOCKSIZE))


def changed(files: Files, name: str, /, **fields: object) -> Files:
    """With other fields in one of the configurations."""
    meta = json.loads(files[name]) | fields
    return files | {name: json.dumps(meta).encode()}
