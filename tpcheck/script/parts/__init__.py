"""What scripts are made of: modules that are pasted into one file, each of which needs torch, those
before it, and nothing else. `write` takes their imports together.
"""
