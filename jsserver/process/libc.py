"""Calls into the C library that Python has no function for."""


def call(name: str, *arguments: int | bytes) -> int:
    """What the C function `name` returns, an int; bytes are passed as a pointer to them."""
    # ctypes costs some 8 ms to import, this part of it under one.
    import _ctypes

    function = _ctypes.dlsym(_ctypes.dlopen("", 0), name)
    result: int = _ctypes.call_function(function, arguments)
    return result
