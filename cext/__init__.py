"""The data plane: compiled, free of the GIL on the message path."""

from jsserver.cext import bytes as _lowest

if getattr(_lowest, "__file__", None) is None:  # Python takes the folder of its sources for it
    raise ImportError(
        f"the extensions of jsserver are not built in {__path__[0]}: run `make build` there; or,"
        " where jsserver is installed, start Python in another folder than its sources'"
    )
