"""Ciphers of stores that are encrypted, by OpenSSL."""

cimport cython
import os

from cpython.pycapsule cimport PyCapsule_New

from libc.errno cimport EAGAIN, EDQUOT, EINVAL, ENAMETOOLONG, ENOENT, ENOMEM, ENOSPC
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset, strcmp, strcspn, strdup, strlen, strncmp, strrchr
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR, O_TRUNC
from posix.types cimport off_t

from jsserver.cext.bytes cimport *

include "cipher/openssl.pxi"
include "cipher/chacha.pxi"
include "cipher/sealed.pxi"
include "cipher/files.pxi"
include "cipher/model.pxi"
include "cipher/keyfiles.pxi"
include "cipher/text.pxi"
include "cipher/replace.pxi"
include "cipher/whole.pxi"
include "cipher/opening.pxi"
include "cipher/table.pxi"
include "cipher/faces.pxi"

fetch_all()
