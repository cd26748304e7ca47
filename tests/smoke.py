"""The whole way in one process, for an environment of the lowest versions allowed: `python -m tests.smoke`.

Reads csv, Parquet and DuckDB, trains by steps and in closed form, saves, loads, evaluates, recommends, explains,
exports and serves over a real socket. Prints one line for each and ends with 1 at the first that fails.
"""

import sys
import tempfile
from pathlib import Path

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from tests.serving.clients import serving_in_thread

from rankformer.cli.main import run


def main() -> int:
    """Try each step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        users, items = [f"u{n * 7 % 40}" for n in range(600)], [f"i{n * n % 31}" for n in range(600)]
        table = pa.table({"user": users, "item": items, "time": range(600), "title": [f"é {item}" for item in items]})
        pq.write_table(table, folder / "log.parquet")
        (folder / "log.csv").write_text(
            "user,item\n" + "".join(f"{u},{i}\n" for u, i in zip(users, items, strict=True))
        )
        with duckdb.connect(str(folder / "log.duckdb")) as database:
            database.execute(f"create table log as select * from read_parquet('{folder / 'log.parquet'}')")
        csv, runs = str(folder / "log.csv"), [str(folder / name) for name in ("steps", "closed")]
        commands = [
            ["models"],
            ["train", "--help"],
            ["data", "info", csv],
            ["data", "info", str(folder / "log.parquet"), "--json"],
            ["data", "info", f"duckdb:{folder / 'log.duckdb'}", "--table", "log"],
            ["train", csv, "--model", "rankformer", "--set", "epochs=2", "--duplicates", "merge", "--out", runs[0]],
            ["train", str(folder / "log.parquet"), "--model", "ease", "--duplicates", "merge", "--out", runs[1]],
            *(["evaluate", each, "--json"] for each in runs),
            ["recommend", runs[0], "--user", "u7"],
            ["recommend", runs[1], "--history", "i1,i4", "--json"],
            ["explain", runs[0], "--user", "u7", "--item", "i4"],
            ["recommend", runs[0], "--all", "--out", str(folder / "lists.parquet")],
            ["export", runs[0], "--to", "faiss", "--out", str(folder / "faiss")],
            ["tune", csv, "--model", "ials", "--trials", "2", "--duplicates", "merge", "--out", str(folder / "tuned")],
        ]
        for command in commands:
            code = run(command)
            print(f"{code}  {' '.join(command)[:100]}", flush=True)
            if code:
                return 1
        with serving_in_thread(Path(runs[0])) as url:
            for path in ("/v1/recommend/u7", "/v1/model", "/openapi.json", "/metrics", "/"):
                answer = httpx.get(url + path, timeout=60)
                print(f"{answer.status_code}  {path}", flush=True)
                if answer.status_code != 200:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
