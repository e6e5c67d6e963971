"""Ciphers of stores that are encrypted, by OpenSSL."""

cimport cython
import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from jsserver.cext.bytes cimport *

include "cipher/openssl.pxi"
include "cipher/chacha.pxi"
include "cipher/sealed.pxi"
include "cipher/files.pxi"
include "cipher/faces.pxi"

fetch_all()
