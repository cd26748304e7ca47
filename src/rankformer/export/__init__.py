"""A trained model's vectors in the forms that other programs search.

Adding a target is a `targets.Target`, and one line here.
"""

TARGETS = {
    "parquet": "rankformer.export.targets:ParquetFiles",
    "numpy": "rankformer.export.targets:NumpyArrays",
    "faiss": "rankformer.export.targets:FaissIndex",
    "pgvector": "rankformer.export.pgvector:PgVector",
    "qdrant": "rankformer.export.qdrant:Qdrant",
    "milvus": "rankformer.export.milvus:Milvus",
    "opensearch": "rankformer.export.opensearch:OpenSearch",
    "redis": "rankformer.export.redis:Redis",
    "onnx": "rankformer.export.programs:OnnxProgram",
    "torch-export": "rankformer.export.programs:TorchProgram",
}
