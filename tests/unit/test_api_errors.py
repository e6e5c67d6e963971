"""Errors of the API as they are raised, logged and answered."""

from jsserver.wire import errcodes


def test_an_error_reads_as_its_description() -> None:
    """What a line of the log shows, and what stands in the answer."""
    error = errcodes.STREAM_DELETE(err="it is busy")
    assert str(error) == error.body.description
    assert "it is busy" in str(error) and "(" not in str(error)
    assert error.err_code == error.body.err_code
