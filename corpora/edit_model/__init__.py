"""The default model's edit adapter: its synthetic tasks, its training and its evaluation.

Nothing here ships with the package; only the adapter that `train.py` writes does.
"""
