# include trace.py


# PASTE this file beside yours. Before the run: tracer = Trace(model, "theirs"). Where you rotate q and k, add:
#     tracer.rotated(q, k)
