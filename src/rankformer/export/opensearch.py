"""OpenSearch: an index with a vector field, and the lines of its bulk API."""

import json
from itertools import islice
from pathlib import Path

from rankformer.export.contents import Contents, Tables
from rankformer.export.documents import documents, plain_ids, table_of
from rankformer.export.targets import SIDES, Target


class OpenSearch(Target):
    """SIDE.index.json for PUT /NAME, the metadata in its mapping's _meta; SIDE.bulk.ndjson for POST /NAME/_bulk."""

    name = "opensearch"
    files = tuple(f"{side}s.{kind}" for side in SIDES for kind in ("index.json", "bulk.ndjson"))

    def write(self, contents: Contents, folder: Path) -> None:
        method = {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
        vector = {"type": "knn_vector", "dimension": contents.metadata["dimension"], "method": method}
        for side, table in zip(SIDES, contents.tables, strict=True):
            ids = "keyword" if str(plain_ids(table.ids).type) == "string" else "long"
            properties = {"id": {"type": ids}, "title": {"type": "text"}, "vector": vector}
            mappings = {"_meta": {"rankformer": contents.metadata}, "properties": properties}
            index = {"settings": {"index": {"knn": True}}, "mappings": mappings}
            (folder / f"{side}s.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="ascii")
            with open(folder / f"{side}s.bulk.ndjson", "w", encoding="ascii") as stream:
                for number, row, numbers in documents(table):
                    stream.write(f'{{"index":{{"_id":"{number}"}}}}\n{row[:-1]}, "vector": {numbers}}}\n')

    def read(self, folder: Path) -> Tables:
        tables = []
        for side in SIDES:
            with open(folder / f"{side}s.bulk.ndjson", encoding="ascii") as stream:
                tables.append(table_of(json.loads(line) for line in islice(stream, 1, None, 2)))
        return Tables(*tables)
