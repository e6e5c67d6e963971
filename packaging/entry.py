"""Where the executable starts: the command line of jsserver, and a check of the bundle itself.

`jsserver --import-check` imports every module that was bundled and prints what failed as JSON.
"""

import sys


def import_check() -> int:
    import importlib
    import json
    import pkgutil

    import jsserver

    names = sorted(m.name for m in pkgutil.walk_packages(jsserver.__path__, "jsserver."))
    failed = {}
    for name in names:
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever it is, it is what the check is for
            failed[name] = repr(error)
    print(json.dumps({"modules": names, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--import-check"]:
        sys.exit(import_check())
    from jsserver import procs

    procs.join_launcher()
    from jsserver.cli import main

    sys.exit(main())
