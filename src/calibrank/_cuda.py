"""CUDA kernels from source text, compiled once each."""

from typing import Any

from calibrank.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

_KERNELS: dict[str, Any] = {}


def compile_kernel(code: str) -> Any:
    """A function of one tensor from CUDA source; compiling takes a fifth of a second, once."""
    if code not in _KERNELS:
        _KERNELS[code] = torch.cuda.jiterator._create_jit_fn(code)  # noqa: SLF001  (documented under this name)
    return _KERNELS[code]
