"""What an API request fails with: a code as in HTTP, a JetStream err_code, and a text."""

import msgspec


class ErrorBody(msgspec.Struct, frozen=True):
    """The `error` object of a response."""

    code: int
    err_code: int
    description: str


class ApiError(Exception):
    """Ends a request; the dispatcher turns it into the `error` object of the answer. Its notes
    (`add_note`) are for the operator: they go to the log."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.body = ErrorBody(code, err_code, description)

    @property
    def err_code(self) -> int:
        """The JetStream error code, 10002 and up."""
        return self.body.err_code


class ErrorTemplate(msgspec.Struct, frozen=True):
    """An entry of the catalogue; calling it with the texts to insert makes the exception."""

    code: int
    err_code: int
    description: str

    def __call__(self, **inserts: object) -> ApiError:
        return ApiError(self.code, self.err_code, self.description.format(**inserts))
