"""What an interaction counts: by its event, by a column, by its age."""

import gzip
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from rankformer.data.interactions import Interactions
from rankformer.data.source import DataSource
from rankformer.errors import ConfigError, DataError

DAY = 86_400
WEIGHTS = {"view": 1, "cart": 3, "purchase": 10}
SHOP = """visitor,sku,kind,quantity,ts
a,1,view,1,1700000000
a,2,cart,2,1700086400
b,1,purchase,3,1700172800
b,3,view,1,1700259200
c,2,share,1,1700345600
"""


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.csv"
    path.write_text(SHOP)
    return path


def read(path, **options):
    return Interactions.read(path, user="visitor", item="sku", event="kind", **options)


def test_each_event_has_its_weight_and_zero_drops_it(shop):
    log = read(shop, event_weights={**WEIGHTS, "view": 0, "share": 0.5})
    assert log.weights.tolist() == [3, 10, 0.5]
    assert log.user_ids.ids.to_pylist() == ["a", "b", "c"]
    assert log.item_ids.ids.to_pylist() == [1, 2]  # 3 was viewed only
    assert log.times.tolist() == [1700086400, 1700172800, 1700345600]


def test_an_event_that_is_not_listed_is_named_and_refused_unless_the_others_have_a_weight(shop):
    with pytest.raises(DataError, match=r"shop.csv: no weight for 'share' in column 'kind' \(1 rows\); .*other=0"):
        read(shop, event_weights=WEIGHTS)
    with pytest.raises(DataError, match=r"'cart', 'share' in column 'kind' \(2 rows\)"):
        read(shop, event_weights={"view": 1, "purchase": 1})
    assert len(read(shop, event_weights={**WEIGHTS, "other": 0})) == 4
    assert read(shop, event_weights={**WEIGHTS, "other": 2}).weights.tolist() == [1, 3, 10, 1, 2]


def test_a_missing_event_is_one_that_is_not_listed():
    table = pa.table({"user": [1, 2], "item": [1, 2], "kind": ["view", None]})
    with pytest.raises(DataError, match=r"\(missing\) in column 'kind'"):
        Interactions.from_arrow(table, event="kind", event_weights=WEIGHTS)
    assert len(Interactions.from_arrow(table, event="kind", event_weights={**WEIGHTS, "other": 0})) == 1


def write_csv_gz(table, folder):
    with gzip.open(folder / "shop.csv.gz", "wb") as stream:
        pa.csv.write_csv(table, stream)
    return folder / "shop.csv.gz"


def write_tsv(table, folder):
    pa.csv.write_csv(table, folder / "shop.tsv", pa.csv.WriteOptions(delimiter="\t"))
    return folder / "shop.tsv"


def write_inter(table, folder):
    rows = [[f"{name}:token" for name in table.column_names], *(row.values() for row in table.to_pylist())]
    (folder / "shop.inter").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return folder / "shop.inter"


def write_jsonl(table, folder):
    (folder / "shop.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return folder / "shop.jsonl"


def write_parquet(table, folder):
    pq.write_table(table, folder / "shop.parquet")
    return folder / "shop.parquet"


def write_pattern(table, folder):
    for part in range(2):
        pq.write_table(table[part * 3 : part * 3 + 3], folder / f"part{part}.parquet")
    return folder / "part*.parquet"


def write_partitions(table, folder):
    for number, row in enumerate(table.to_pylist()):
        part = folder / "log" / f"part={number}" / f"kind={row['kind']}"
        part.mkdir(parents=True)
        pa.csv.write_csv(table[number : number + 1].drop_columns("kind"), part / "rows.csv")
    return folder / "log"


def write_layout(table, folder):
    (folder / "ml").mkdir()
    names = {"visitor": "userId", "sku": "movieId", "quantity": "rating", "ts": "timestamp"}
    pa.csv.write_csv(table.rename_columns(names), folder / "ml" / "ratings.csv")
    (folder / "ml" / "movies.csv").write_text("movieId,title\n1,One\n2,Two\n3,Three\n")
    return folder / "ml"


WRITERS = [write_csv_gz, write_tsv, write_inter, write_jsonl, write_parquet, write_pattern, write_partitions]


@pytest.mark.parametrize("write", [*WRITERS, write_layout], ids=lambda write: write.__name__.removeprefix("write_"))
def test_events_come_from_whatever_is_read(write, shop, tmp_path):
    path = write(pa.csv.read_csv(shop), tmp_path)
    columns = {} if write is write_layout else {"user": "visitor", "item": "sku"}
    log = DataSource(source=path, event="kind", event_weights={**WEIGHTS, "other": 0}, **columns).load_log()
    assert log.weights.tolist() == [1, 3, 10, 1]
    assert log.user_ids.ids.to_pylist() == ["a", "b"]
    with pytest.raises(DataError, match="no weight for 'share'"):
        DataSource(source=path, event="kind", event_weights=WEIGHTS, **columns).load_log()


def test_an_id_of_a_dropped_event_does_not_make_the_others_strings(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item,kind\n1,7,view\nguest,8,bot\n2,7,view\n")
    log = Interactions.read(path, event="kind", event_weights={"view": 1, "other": 0})
    assert log.user_ids.ids.to_pylist() == [1, 2]
    assert log.item_ids.ids.to_pylist() == [7]


def test_a_row_without_an_event_is_a_bad_row(tmp_path, caplog):
    path = tmp_path / "log.csv"
    path.write_text("user,item,kind\n1,7,view\n1,8,\n2,7,cart\n")
    options = {"event": "kind", "on_bad_row": "skip"}
    assert Interactions.read(path, **options, event_weights=WEIGHTS).weights.tolist() == [1, 3]
    assert "skipped 1 of 3 rows (1 without an event)" in caplog.text
    assert Interactions.read(path, **options, event_weights={**WEIGHTS, "other": 2}).weights.tolist() == [1, 2, 3]


def test_two_frames_with_events_keep_their_own_rows():
    first = pd.DataFrame({"user": [1, 2, 3], "item": [1, 2, 1], "kind": ["view", "bot", "cart"]})
    second = pd.DataFrame({"user": [2, 3], "item": [1, 2], "kind": ["bot", "view"]})
    train, valid = Interactions.parts_of([first, second], event="kind", event_weights={**WEIGHTS, "bot": 0})
    assert (train.weights.tolist(), valid.weights.tolist()) == ([1, 3], [1])
    assert train.user_ids.take(train.users).to_pylist() == [1, 3]
    assert valid.user_ids.take(valid.users).to_pylist() == [3]


def test_a_weight_column_multiplies_only_if_it_is_named(shop):
    weights = {**WEIGHTS, "other": 0}
    assert read(shop, event_weights=weights, weight="quantity").weights.tolist() == [1, 6, 30, 1]
    shop.write_text(SHOP.replace("quantity", "count"))  # a name that would be found
    assert read(shop, event_weights=weights).weights.tolist() == [1, 3, 10, 1]


def test_events_come_from_any_table_and_may_be_numbers():
    frame = pd.DataFrame({"user": ["a", "b"], "item": [1, 2], "kind": pd.Categorical(["cart", "view"])})
    assert Interactions.from_pandas(frame, event="kind", event_weights=WEIGHTS).weights.tolist() == [3, 1]
    frame = pl.DataFrame({"user": ["a", "b"], "item": [1, 2], "kind": [2, 7]})
    assert Interactions.from_polars(frame, event="kind", event_weights={"2": 5, "7": 1}).weights.tolist() == [5, 1]


def test_a_column_and_the_weights_belong_together(shop):
    with pytest.raises(ConfigError, match=r"give event_weights \(--event-weights\) too"):
        read(shop)
    with pytest.raises(ConfigError, match=r"give event \(--event-column\) too"):
        Interactions.read(shop, user="visitor", item="sku", event_weights=WEIGHTS)
    with pytest.raises(DataError, match=r"no column 'sort'.*--event-column"):
        Interactions.read(shop, user="visitor", item="sku", event="sort", event_weights=WEIGHTS)


@pytest.mark.parametrize("weights", [{"view": -1}, {"view": float("nan")}, {"view": float("inf")}, {}])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(ConfigError, match=r"event_weights|finite|number"):
        DataSource(source="shop.csv", event="kind", event_weights=weights)


def timed(times, **columns):
    return Interactions.from_indices(np.arange(len(times)), [0] * len(times), times=np.array(times), **columns)


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**9])
def test_an_interaction_counts_half_after_its_half_life_whatever_the_unit_of_the_times(per_second):
    newest = 1_700_000_000
    times = [(newest - days * DAY) * per_second for days in (0, 15, 30, 60)]
    log = timed(times).decay("30d")
    np.testing.assert_allclose(log.confidence, [1, 0.5**0.5, 0.5, 0.25], rtol=1e-6)
    assert log.weights is None
    weighted = timed(times, weights=np.array([1, 2, 3, 4], np.float32)).decay("4.285714285714286w")
    np.testing.assert_allclose(weighted.confidence, [1, 2 * 0.5**0.5, 1.5, 1], rtol=1e-6)
    np.testing.assert_allclose(timed(times).decay("720h").confidence, log.confidence)
    np.testing.assert_allclose(timed(times).decay(30 * DAY * per_second).confidence, log.confidence)


def test_dates_decay_too(tmp_path):
    (tmp_path / "log.csv").write_text("user,item,date\n1,1,2024-03-01\n1,2,2024-03-31\n")
    np.testing.assert_allclose(Interactions.read(tmp_path / "log.csv").decay("30d").confidence, [0.5, 1])


def test_each_part_counts_age_from_its_own_newest_interaction():
    log = timed([1_700_000_000 + day * DAY for day in range(10)]).decay("1d")
    parts = log.split(by="time", parts=(0.6, 0.2, 0.2))
    assert parts.train.confidence.tolist() == [2.0**-age for age in range(5, -1, -1)]
    assert parts.test.confidence.tolist() == [0.5, 1]


def test_a_very_old_interaction_still_counts_a_little():
    log = timed([100_000_000, 1_700_000_000]).decay("1h")
    assert log.confidence.tolist() == [2.0**-20, 1]


def test_half_lives_that_cannot_be_are_refused():
    log = timed([1_700_000_000])
    for text in ("30", "d", "30 days", "-3d", "0d", "3m", ""):
        with pytest.raises(ConfigError, match="expected a number above 0 with h, d or w"):
            log.decay(text)
        with pytest.raises(ConfigError, match="h, d or w"):
            DataSource(source="a.csv", half_life=text)
    for number in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="expected a number above 0"):
            log.decay(number)
    with pytest.raises(DataError, match="has no times, so half_life cannot be applied; name a time column"):
        Interactions.from_indices([0], [0]).decay("3d")
    with pytest.raises(DataError, match="the newest time is 900, which is not a time since 1970"):
        timed([5, 900]).decay("3d")
    assert timed([5, 900]).decay(895).confidence.tolist() == [0.5, 1]


def test_logs_that_count_otherwise_have_another_fingerprint():
    log = timed([1_600_000_000, 1_700_000_000])
    prints = {log.fingerprint, log.decay("3d").fingerprint, log.decay("4d").fingerprint}
    assert len(prints) == 3


def test_a_written_log_has_the_confidence_as_weight():
    log = timed([1_700_000_000 - 3 * DAY, 1_700_000_000]).decay("3d")
    assert log.to_arrow()["weight"].to_pylist() == [0.5, 1]


def test_a_source_keeps_events_and_half_life(shop):
    columns = {"user": "visitor", "item": "sku", "time": "ts", "event": "kind"}
    source = DataSource(source=shop, **columns, event_weights={**WEIGHTS, "other": 0}, half_life="1d", parts=(1, 0, 0))
    assert source.load().train.confidence.tolist() == [0.125, 0.75, 5, 1]
    again = DataSource.model_validate(json.loads(json.dumps(source.model_dump(mode="json"))))
    assert again.load().fingerprint == source.load().fingerprint
    with pytest.raises(ConfigError, match="event='kind': demo is registered"):
        DataSource(source="demo", event="kind", event_weights=WEIGHTS).load()
    with pytest.raises(DataError, match="has no times"):
        DataSource(source="demo", half_life="3d").load()
