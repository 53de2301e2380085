"""The types of columns: numpy arrays with one element for each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""Unix seconds or seconds; NaN where unknown."""

Offsets = NDArray[np.int64]
"""Kafka offsets; a mask shows where they are known."""

Flags = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Members of an enum, as indices into a tuple of its members."""

Rows = NDArray[np.intp]
"""Indices of rows."""
