"""Qdrant: the bodies of its REST requests, for any client; points are numbered, since raw ids need not be integers."""

import json
from itertools import islice
from pathlib import Path

from rankformer.export.contents import Contents, Tables
from rankformer.export.documents import documents, table_of
from rankformer.export.targets import SIDES, Target

_POINTS = 256  # in a request, whose size Qdrant limits


class Qdrant(Target):
    """SIDE.collection.json for PUT /collections/NAME; each line of SIDE.points.jsonl for PUT .../NAME/points."""

    name = "qdrant"
    files = tuple(f"{side}s.{kind}" for side in SIDES for kind in ("collection.json", "points.jsonl"))

    def write(self, contents: Contents, folder: Path) -> None:
        collection = {"vectors": {"size": contents.metadata["dimension"], "distance": "Dot"}}
        for side, table in zip(SIDES, contents.tables, strict=True):
            (folder / f"{side}s.collection.json").write_text(json.dumps(collection) + "\n", encoding="ascii")
            with open(folder / f"{side}s.points.jsonl", "w", encoding="ascii") as stream:
                points = (f'{{"id":{n},"vector":{vector},"payload":{row}}}' for n, row, vector in documents(table))
                while batch := list(islice(points, _POINTS)):
                    stream.write(f'{{"points":[{",".join(batch)}]}}\n')

    def read(self, folder: Path) -> Tables:
        tables = []
        for side in SIDES:
            with open(folder / f"{side}s.points.jsonl", encoding="ascii") as stream:
                points = (point for line in stream for point in json.loads(line)["points"])
                tables.append(table_of({**point["payload"], "vector": point["vector"]} for point in points))
        return Tables(*tables)
