"""Functions of the C library as builtin functions of Python.

ctypes converts the arguments of every call, which takes as long as 500 scores. The library's
functions have the signature of builtin functions instead (METH_FASTCALL) and are given pointers to
the functions of Python's stable binary interface that they need. So the library is still compiled
without Python's headers, and one build fits every version.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_void_p, cast, py_object
from typing import Any

import numpy as np

_METH_FASTCALL = 0x80

# In the order of the pointers in `native_maps.h`.
_FUNCTIONS = (
    "PyFloat_AsDouble",
    "PyFloat_FromDouble",
    "PyBytes_AsString",
    "PyErr_Occurred",
    "Py_IncRef",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", c_char_p),
        ("function", c_void_p),
        ("flags", c_int),
        ("description", c_char_p),
    )


class _Python(ctypes.Structure):
    """What the library needs of Python and NumPy, in the order of `native_maps.h`."""

    _fields_ = (
        ("header", c_size_t),
        ("as_double", c_void_p),
        ("from_double", c_void_p),
        ("bytes_of", c_void_p),
        ("current_error", c_void_p),
        ("add_reference", c_void_p),
        ("release_lock", c_void_p),
        ("acquire_lock", c_void_p),
        ("float32", py_object),
        ("float64", py_object),
        ("yes", py_object),
        ("no", py_object),
    )


class _Array(ctypes.Structure):
    """The first fields of a NumPy array, after the header of an object."""

    _fields_ = (
        ("data", c_void_p),
        ("dimensions", c_int),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("base", c_void_p),
        ("dtype", c_void_p),
    )


# Python keeps pointers to these as long as the functions exist.
_methods: list[_Method] = []


def is_supported() -> bool:
    """Whether arrays have the layout that the library reads, in an interpreter that is CPython."""
    if not hasattr(ctypes, "pythonapi"):
        return False
    array = np.zeros((2, 3))
    if object.__basicsize__ + ctypes.sizeof(_Array) > np.ndarray.__basicsize__:
        return False
    fields = _Array.from_address(id(array) + object.__basicsize__)
    return (
        fields.data == array.ctypes.data
        and fields.dimensions == 2
        and tuple(fields.shape[:2]) == array.shape
        and fields.dtype == id(array.dtype)
    )


def connect(library: ctypes.CDLL) -> None:
    """Give the library the functions and objects of this interpreter."""
    functions = [_address(getattr(ctypes.pythonapi, name)) for name in _FUNCTIONS]
    objects = [np.dtype(np.float32), np.dtype(np.float64), True, False]
    library.use_python(byref(_Python(object.__basicsize__, *functions, *objects)))


def builtin(function: Any) -> Callable[..., Any]:
    """A function of the library as a builtin function."""
    method = _Method(function.__name__.encode(), _address(function), _METH_FASTCALL, None)
    _methods.append(method)
    create = ctypes.PYFUNCTYPE(py_object, POINTER(_Method), c_void_p, c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    made: Callable[..., Any] = create(byref(method), None, None)
    return made


def _address(function: Any) -> c_void_p:
    return cast(function, c_void_p)
