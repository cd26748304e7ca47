"""The paper's tables and figures, each made of results that are computed once and stored.

Imported by `rankformer reproduce` only, when it runs; pictures need the extra `research`.
"""
