"""The bipartite graph of positives, and averaging vectors over it (LightGCN)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from calibrank.tables import Interactions

CompressedRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Graph:
    """The symmetrically normalized adjacency matrix A of users and items (items come after users).

    `propagate` computes (I + A + ... + A^layers) x / (layers + 1). The operator is symmetric, so
    gradients are propagated by the same function.
    """

    matrix: sp.csr_array
    layers: int
    device: str

    @classmethod
    def of(cls, positives: Interactions, layers: int, device: str = "cpu") -> Graph:
        """The graph with one edge per positive."""
        n_nodes = positives.n_users + positives.n_items
        users = positives.users
        items = positives.items + positives.n_users
        # Every edge appears in both directions, so that the matrix is symmetric.
        rows = np.concatenate([users, items])
        columns = np.concatenate([items, users])
        degree = np.bincount(rows, minlength=n_nodes)
        degree_product = degree[users].astype(np.float64) * degree[items]
        weights = (1 / np.sqrt(degree_product)).astype(np.float32)
        values = np.concatenate([weights, weights])
        matrix = sp.csr_array((values, (rows, columns)), shape=(n_nodes, n_nodes))
        return cls(matrix, layers, device)

    @property
    def layer_weight(self) -> np.float32:
        """The weight of each layer in the mean."""
        return np.float32(1 / (self.layers + 1))

    def propagate(self, table: Tensor) -> Tensor:
        """The mean over layers of a table of shape [node, width]."""
        # Horner's scheme: (x + A (x + A x)) / 3 for two layers.
        total = table
        for _ in range(self.layers):
            total = table + self._tensor @ total
        return total * float(self.layer_weight)

    @cached_property
    def compressed(self) -> CompressedRows:
        """The matrix in CSR format: row starts, column numbers, values."""
        return (
            self.matrix.indptr.astype(np.int64),
            self.matrix.indices.astype(np.int32),
            self.matrix.data,
        )

    @cached_property
    def _tensor(self) -> Tensor:
        starts, columns, values = self.compressed
        with warnings.catch_warnings():
            # torch warns that sparse CSR support is in beta and that invariants are not checked.
            warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
            return torch.sparse_csr_tensor(
                torch.from_numpy(starts).to(self.device).to(torch.int32),
                torch.from_numpy(columns).to(self.device),
                torch.from_numpy(values).to(self.device),
                self.matrix.shape,
            )
