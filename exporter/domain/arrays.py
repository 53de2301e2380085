"""The kinds of columns: numpy arrays with one element per row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""Unix seconds or seconds; NaN where not known."""

Offsets = NDArray[np.int64]
"""Kafka offsets; a mask beside them says where they are known."""

Flags = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Members of an enum, as indices into the tuple of them."""

Rows = NDArray[np.intp]
"""Indices of rows."""
