"""The weekly liveness report: what died, since when, why that is believed, and what to do.

Tables -> ``Facts`` (``tables``) -> ``Report`` (``build``) -> HTML and Markdown (``render``), JSON (``folder``),
with a page for each owner (``folder``). The same tables give the same bytes: the clock only decides which
verdicts are of a clock that was ahead, and (by ``asked_for``) whether the rollup may have stopped.
"""
