"""Arrow columns of messages, and the layers of the server's data plane that they stand on."""

from jsserver_spark.cext import bytes as _lowest

if getattr(_lowest, "__file__", None) is None:  # Python takes the folder of its sources for it
    raise ImportError(
        f"the extensions of jsserver-spark are not built in {__path__[0]}: run `make pipeline` in"
        " the checkout; or `pip install ./pipeline`, and start Python without this folder in its"
        " path"
    )
