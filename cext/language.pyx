"""The configuration language: a text in, a tree of values with their places out."""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcpy, memset

from jsserver.cext.bytes cimport Bytes, bytes_add, bytes_free, rune_size, sha256, span, subject_is_valid

cdef extern from "<string.h>" nogil:
    void* memmem(const void* p, size_t n, const void* what, size_t size)

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* n) except NULL
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    int Py_EnterRecursiveCall(const char* where) except -1
    void Py_LeaveRecursiveCall()
    void PyUnicode_InternInPlace(PyObject** text)
    str PyUnicode_DecodeUTF8(const char* p, Py_ssize_t n, const char* errors)

cdef const char* HEX_DIGITS = "0123456789abcdef"

include "language/lexer.pxi"
include "language/states.pxi"
include "language/numbers.pxi"
include "language/values.pxi"
include "language/tree.pxi"
include "language/digest.pxi"
