"""Where the executable starts: the command line of jsserver, and a check of the bundle itself.

`jsserver --import-check [MODULE ...]` imports every module of ours that was bundled, and others
that are named, and prints what failed as JSON.
"""

import codecs
import sys
import types


def bundled(tree: dict, folder: str, prefix: str) -> list[str]:
    """The modules below a package: those in PyInstaller's archive, and extensions in a folder."""
    import os

    names = []
    for name, below in tree.items():
        names.append(prefix + name)
        if isinstance(below, dict):  # a package
            names += bundled(below, os.path.join(folder, name), f"{prefix}{name}.")
    if os.path.isdir(folder):
        names += [prefix + n.partition(".")[0] for n in os.listdir(folder) if n.endswith(".so")]
    return names


def import_check(others: list[str]) -> int:
    import importlib
    import json
    import os

    from pyimod02_importers import get_pyz_toc_tree  # PyInstaller's, in the bundle

    folder = os.path.join(sys._MEIPASS, "jsserver")
    names = sorted(bundled(get_pyz_toc_tree()["jsserver"], folder, "jsserver."))
    failed = {}
    for name in [*names, *others]:
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever it is, it is what the check is for
            failed[name] = repr(error)
    print(json.dumps({"modules": names, "failed": failed}))
    return 1 if failed else 0


def host_codec(name: str) -> codecs.CodecInfo | None:
    """The codec "idna" of the standard library needs large tables, which the bundle lacks. As in
    nats-server, a name of a host is ASCII: another one is not found."""
    if name != "idna":
        return None
    of_ascii = codecs.lookup("ascii")
    return codecs.CodecInfo(of_ascii.encode, of_ascii.decode, name=name)


def normalize(form: str, text: str) -> str:
    """In place of unicodedata.normalize: urllib.parse refuses a login or host in which characters
    beyond ASCII would become separators. No text of a URL is normalized here, so none does."""
    return text


if __name__ == "__main__":
    codecs.register(host_codec)
    tables = types.ModuleType("unicodedata")
    tables.normalize = normalize
    sys.modules["unicodedata"] = tables
    if sys.argv[1:2] == ["--import-check"]:
        sys.exit(import_check(sys.argv[2:]))
    from jsserver.process import procs

    procs.join_launcher()
    from jsserver.cli import main

    sys.exit(main())
