"""Wrong kernels whose fault few cases show: each needs several conditions at once.

Written without knowledge of what the hunt is guided by, to measure it against plain drawing. Each
docstring says the exact condition.
"""
