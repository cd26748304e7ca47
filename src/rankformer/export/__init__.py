"""A trained model's vectors in the forms that other programs search.

Adding a target is one file with a `base.Target` in it, and one line here.
"""

TARGETS = {
    "parquet": "rankformer.export.parquet:ParquetFiles",
    "numpy": "rankformer.export.numpy_arrays:NumpyArrays",
    "faiss": "rankformer.export.faiss_index:FaissIndex",
    "pgvector": "rankformer.export.pgvector:PgVector",
}
