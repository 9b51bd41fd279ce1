"""The graph of positives: rows spread to their neighbours, symmetrically normalised."""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from calibrank.tables import Interactions


@dataclass(frozen=True, eq=False)
class Graph:
    """The mean of a table and its `hops` neighbourhoods. Symmetric, so that a gradient goes back the same way."""

    matrix: sp.csr_array
    hops: int
    device: str

    @classmethod
    def of(cls, positives: Interactions, hops: int, device: str = "cpu") -> "Graph":
        users, items = positives.users, positives.items + positives.n_users
        degree = np.bincount(
            np.concatenate([users, items]), minlength=positives.n_users + positives.n_items
        )
        weight = (1 / np.sqrt(degree[users].astype(np.float64) * degree[items])).astype(np.float32)
        ends = np.concatenate([users, items]), np.concatenate([items, users])
        return cls(
            sp.csr_array((np.concatenate([weight, weight]), ends), shape=(len(degree),) * 2),
            hops,
            device,
        )

    @property
    def share(self) -> np.float32:
        """The weight of each neighbourhood in the mean."""
        return np.float32(1 / (self.hops + 1))

    def spread(self, table: Tensor) -> Tensor:
        """The mean for every row, as [node, width]: (x + A (x + A x)) / 3 for two hops."""
        near = table
        for _ in range(self.hops):
            near = table + self._tensor @ near
        return near * float(self.share)

    @cached_property
    def compressed(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Where rows start, the column of each number, and the numbers."""
        return (
            self.matrix.indptr.astype(np.int64),
            self.matrix.indices.astype(np.int32),
            self.matrix.data,
        )

    @cached_property
    def _tensor(self) -> Tensor:
        starts, columns, values = (
            torch.from_numpy(part).to(self.device) for part in self.compressed
        )
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Sparse", category=UserWarning
            )  # beta, and unchecked
            return torch.sparse_csr_tensor(
                starts.to(torch.int32), columns, values, self.matrix.shape
            )
