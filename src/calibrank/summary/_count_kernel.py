"""Count scores and labels in bins in the shared memory of a GPU.

Additions there take a fraction of the time that they take in the memory of the whole GPU. A block
of threads keeps three words for each bin: the number of its rows with the sum of their positions
inside the bin, the sum of the squares of these, and the first word again for positive rows. All
are whole numbers, so that their sums are exact, in any order. Where not all bins fit, rows are
read once for each part of the bins.

It needs `cuda.bindings`, which torch brings.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor

from calibrank.summary.bins import Sums
from calibrank.summary.grid import SINGLE, Grid

# The position of a score inside its bin has this many bits: rounding it moves the score by less
# than a 512th of the bin.
_INNER_BITS = 8

_THREADS = 1024
_WORDS = 3
_SUMS = 5

# A word has 20 bits for the sum of positions and 12 for the number of rows. Whoever adds row 2048
# moves the word to the sums. All threads wait for each other after 2048 rows, so until it is moved
# the word holds fewer than 4096 rows.
_SOURCE = r"""
typedef unsigned long long Sum;

static __device__ void empty(unsigned *word, Sum *rows, Sum *inner)
{
    unsigned held = atomicExch(word, 0);
    atomicAdd(rows, (Sum)(held >> 20));
    atomicAdd(inner, (Sum)(held & 0xFFFFF));
}

extern "C" __global__ void __launch_bounds__(1024, 1)
count_rows(const float *scores, const LABEL *labels, long long rows, Sum *sums, int size, int part,
           int first, int offset, double scale, double other_scale, int shift, int floor, int bits)
{
    extern __shared__ unsigned words[];
    unsigned *squares = words + part, *positives = squares + part;
    Sum *inner_sums = sums + size, *square_sums = inner_sums + size;
    Sum *positive_sums = square_sums + size, *positive_inner_sums = positive_sums + size;
    long long begin = blockIdx.x * 2048LL + threadIdx.x, step = gridDim.x * 2048LL;

    for (int start = 0; start < size; start += part) {
        for (int i = threadIdx.x; i < 3 * part; i += 1024)
            words[i] = 0;
        __syncthreads();
        float next_score[2];
        LABEL next_label[2];
        for (int i = 0; i < 2; i++) {
            long long row = begin + i * 1024;
            next_score[i] = row < rows ? scores[row] : 0.0f;
            next_label[i] = row < rows ? labels[row] : (LABEL)0;
        }
        for (long long base = begin; base - threadIdx.x < rows; base += step) {
            float score[2] = {next_score[0], next_score[1]};
            LABEL label[2] = {next_label[0], next_label[1]};
            /* The rows that follow are read while these are added. */
            for (int i = 0; i < 2; i++) {
                long long row = base + step + i * 1024;
                next_score[i] = row < rows ? scores[row] : 0.0f;
                next_label[i] = row < rows ? labels[row] : (LABEL)0;
            }
            for (int i = 0; i < 2; i++) {
                /* The key of a score, as `Grid` explains it. */
                int leading = __float_as_int(score[i]);
                int key = ((leading & 0x7FFFFFFF) >> shift) - offset;
                if (key < floor)
                    key = (int)(fabs((double)score[i]) * scale * other_scale);
                key = (key ^ (leading >> 31)) - first;
                unsigned bin = (unsigned)((key >> bits) - start), at = bin + start;
                if (base + i * 1024 >= rows || bin >= part || at >= size)
                    continue;
                unsigned inner = key & ((1 << bits) - 1), row = (1u << 20) + inner;
                atomicAdd(squares + bin, inner * inner);
                if (atomicAdd(words + bin, row) >> 20 == 2047) {
                    empty(words + bin, sums + at, inner_sums + at);
                    atomicAdd(square_sums + at, (Sum)atomicExch(squares + bin, 0));
                }
                if (label[i] != 0 && atomicAdd(positives + bin, row) >> 20 == 2047)
                    empty(positives + bin, positive_sums + at, positive_inner_sums + at);
            }
            __syncthreads();
        }
        for (int i = threadIdx.x; i < part; i += 1024) {
            int at = start + i;
            if (words[i])
                empty(words + i, sums + at, inner_sums + at);
            if (squares[i])
                atomicAdd(square_sums + at, (Sum)squares[i]);
            if (positives[i])
                empty(positives + i, positive_sums + at, positive_inner_sums + at);
        }
        __syncthreads();
    }
}
"""


def count(grid: Grid, first: int, size: int, scores: Tensor, positive: Tensor) -> Sums:
    """Sums over rows of weight 1 with labels of 0 and 1, in `size` bins of a grid from `first` on.

    Scores are float32, and the grid reads their bits.
    """
    bits = min(_INNER_BITS, SINGLE.mantissa - grid.bits)
    counted = _launch(grid, first, size, bits, scores.contiguous(), _labels(positive))
    # The host computes this while the GPU counts.
    low, high = grid.ends(np.arange(first, first + size))
    step = (high - low) / (1 << bits)
    lowest = low + step / 2
    rows, inner, squares, positives, positive_inner = counted.cpu().numpy().astype(np.float64)
    # A score is `lowest + step * inner`.
    moment = rows * lowest + step * inner
    second_moment = lowest * (moment + step * inner) + step**2 * squares
    totals = np.stack([rows, moment, second_moment], axis=1)
    positive_moment = positives * lowest + step * positive_inner
    of_positives = np.stack([positives, positive_moment, positives, positives], axis=1)
    return Sums(totals, of_positives, rows)


def _labels(positive: Tensor) -> Tensor:
    """Labels of a type that the kernel reads."""
    if positive.dtype == torch.float32:
        return positive.contiguous()
    if positive.element_size() == 1:
        return positive.contiguous().view(torch.uint8)
    return positive.to(torch.uint8)


def _launch(grid: Grid, first: int, size: int, bits: int, scores: Tensor, labels: Tensor) -> Tensor:
    """Start to count: the five sums by bin are complete when the stream is."""
    kernel = _kernel(scores.device.index, "float" if labels.is_floating_point() else "char")
    parts = -(-size // kernel.bins)
    part = -(-size // parts)
    sums = torch.zeros((_SUMS, size), dtype=torch.int64, device=scores.device)
    fine = Grid(grid.top, grid.bits + bits, grid.placement)
    arguments: list[tuple[Any, Any]] = [
        (scores.data_ptr(), ctypes.c_void_p),
        (labels.data_ptr(), ctypes.c_void_p),
        (len(scores), ctypes.c_longlong),
        (sums.data_ptr(), ctypes.c_void_p),
        (size, ctypes.c_int),
        (part, ctypes.c_int),
        (first << bits, ctypes.c_int),
        (fine.offset(SINGLE), ctypes.c_int),
        (fine.scales[0], ctypes.c_double),
        (fine.scales[1], ctypes.c_double),
        (SINGLE.mantissa - fine.bits, ctypes.c_int),
        (1 << fine.bits, ctypes.c_int),
        (bits, ctypes.c_int),
    ]
    values, types = zip(*arguments, strict=True)
    stream = torch.cuda.current_stream(scores.device).cuda_stream
    shape = (kernel.blocks, 1, 1, _THREADS, 1, 1)
    memory = 4 * _WORDS * part
    with torch.cuda.device(scores.device):
        _done(driver.cuLaunchKernel(kernel.function, *shape, memory, stream, (values, types), 0))
    return sums


class _Kernel(NamedTuple):
    function: Any
    blocks: int
    """As many as run at a time."""
    bins: int
    """Those that fit into the shared memory of a block."""


@cache
def _kernel(device: int, label: str) -> _Kernel:
    """The kernel for a GPU and a type of labels; compiling it takes a tenth of a second."""
    properties = torch.cuda.get_device_properties(device)
    (program,) = _done(nvrtc.nvrtcCreateProgram(_SOURCE.encode(), b"count.cu", 0, None, None))
    target = f"-arch=sm_{properties.major}{properties.minor}"
    options = [target.encode(), f"-DLABEL={label}".encode()]
    _done(nvrtc.nvrtcCompileProgram(program, len(options), options))
    (size,) = _done(nvrtc.nvrtcGetCUBINSize(program))
    code = b" " * size
    _done(nvrtc.nvrtcGetCUBIN(program, code))
    with torch.cuda.device(device):
        (module,) = _done(driver.cuModuleLoadData(code))
        (function,) = _done(driver.cuModuleGetFunction(module, b"count_rows"))
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        (number,) = _done(driver.cuDeviceGet(device))
        (memory,) = _done(driver.cuDeviceGetAttribute(attribute, number))
        largest = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _done(driver.cuFuncSetAttribute(function, largest, memory))
    return _Kernel(function, properties.multi_processor_count, memory // (4 * _WORDS))


def _done(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call of CUDA gave, without its status."""
    status, *values = result
    if status.value != 0:
        raise RuntimeError(f"CUDA: {status.name}")
    return tuple(values)
