"""pinproof: does the pin hold?

One module a noun. Dependencies point one way: values <- facts <- acts <- judgements <- pages
(tests/test_layers.py holds the table). Nothing here imports Snakemake, vLLM or torch.
"""
