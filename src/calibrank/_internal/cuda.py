"""CUDA kernels compiled from source text."""

from typing import Any

from calibrank.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

_KERNELS: dict[str, Any] = {}


def compile_kernel(code: str) -> Any:
    """Compile an elementwise function of one tensor from CUDA source text.

    The result is cached, since compiling takes about 0.2 seconds.
    """
    if code not in _KERNELS:
        # torch documents this function under its private name.
        _KERNELS[code] = torch.cuda.jiterator._create_jit_fn(code)  # noqa: SLF001  (see above)
    return _KERNELS[code]
