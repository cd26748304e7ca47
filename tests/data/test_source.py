import json
import os

import numpy as np
import pytest

from rankformer.data import DATASETS, DataSource
from rankformer.data.registry import git_blob_sha1
from rankformer.errors import ConfigError, DataError

needs_files = pytest.mark.skipif(
    not os.environ.get("RANKFORMER_DATA"), reason="RANKFORMER_DATA names no folder with the real datasets"
)


def raw_pairs(log):
    table = log.to_arrow()
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


@pytest.fixture
def folder(tmp_path):
    def make(**files):
        for name, content in files.items():
            (tmp_path / name.replace("_", ".", 1)).write_text(content)
        return tmp_path

    return make


def test_one_file_is_split_as_said(folder):
    path = folder(log_csv="user,item\n" + "".join(f"{n},{n % 3}\n" for n in range(20))) / "log.csv"
    parts = DataSource(source=path, parts=(0.5, 0.25, 0.25), split_seed=4).load()
    assert [len(part) for part in parts] == [10, 5, 5]
    assert parts.fingerprint == DataSource(source=path).load_log().split(parts=(0.5, 0.25, 0.25), seed=4).fingerprint
    assert parts.train.name == "log/train"


def test_folder_has_one_vocabulary_over_its_parts(folder):
    parts = DataSource(
        source=folder(train_csv="user,item\na,1\nb,2\n", valid_csv="user,item\nc,3\n", test_txt="a 9\n")
    ).load()
    assert [raw_pairs(part) for part in parts] == [[("a", 1), ("b", 2)], [("c", 3)], [("a", 9)]]
    assert all(part.user_ids.ids.to_pylist() == ["a", "b", "c"] for part in parts)
    assert parts.test.num_items == 4


def test_one_odd_id_in_test_makes_all_parts_strings(folder):
    parts = DataSource(source=folder(train_txt="7 1\n", test_txt="007 1\n")).load()
    assert raw_pairs(parts.train) == [("7", 1)]
    assert raw_pairs(parts.test) == [("007", 1)]


def test_folder_may_lack_valid_and_test(folder):
    parts = DataSource(source=folder(train_txt="1 2\n3 4\n")).load()
    assert [len(part) for part in parts] == [2, 0, 0]
    assert parts.test.num_users == 2


def test_folder_of_adjacency_lists_and_the_whole_log(folder):
    source = DataSource(source=folder(train_txt="0 1 2\n1 5\n", test_txt="0 3\n1 \n"))
    assert raw_pairs(source.load_log()) == [(0, 1), (0, 2), (1, 5), (0, 3)]
    assert raw_pairs(source.load().test) == [(0, 3)]


def test_filters_see_the_parts_together(folder):
    train = "user,item,rating\n1,1,5\n1,1,5\n1,2,5\n2,1,5\n3,9,5\n9,1,1\n"
    source = DataSource(
        source=folder(train_csv=train, test_csv="user,item,rating\n2,2,5\n"), duplicates="merge", min_weight=2, k_core=2
    )
    parts = source.load()
    assert raw_pairs(parts.train) == [(1, 1), (1, 2), (2, 1)]
    assert parts.train.weights.tolist() == [10, 5, 5]
    assert raw_pairs(parts.test) == [(2, 2)]
    assert parts.train.user_ids.ids.to_pylist() == [1, 2]


def test_filters_of_one_file(folder):
    path = folder(log_csv="user,item,rating\n1,1,2\n1,1,2\n1,2,4\n2,1,4\n2,2,4\n3,3,1\n") / "log.csv"
    log = DataSource(source=path, duplicates="merge", min_weight=4, k_core=2).load_log()
    assert raw_pairs(log) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_replays_from_json(folder):
    path = folder(log_csv="user,item,when\n" + "".join(f"{n % 4},{n},{n}\n" for n in range(40))) / "log.csv"
    source = DataSource(source=path, time="when", split="last", k_core=1)
    again = DataSource.model_validate(json.loads(json.dumps(source.model_dump(mode="json"))))
    assert again == source
    assert DataSource.model_validate_json(source.model_dump_json()) == source
    assert again.load().fingerprint == source.load().fingerprint


def test_absolute_paths_do_not_depend_on_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder(train_txt="1 2\n"))
    source = DataSource(source="train.txt").absolute()
    monkeypatch.chdir("/")
    assert len(source.load_log()) == 1
    assert DataSource(source="demo").absolute().source == "demo"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"source": "x", "splitt": "last"}, "unknown setting 'splitt'; did you mean 'split'"),
        ({"source": "x", "split": "rnd"}, r"split='rnd': input should be 'random'"),
        ({"source": "x", "format": "excel"}, "format='excel' is unknown; expected one of csv, tsv"),
        ({"source": "x", "k_core": 0}, "k_core=0: input should be greater than or equal to 1"),
        ({"source": "x", "min_weight": float("inf")}, "min_weight=inf"),
        ({"source": "x", "parts": (0.5, 0.1, 0.1)}, "sum to 1"),
        ({"source": "x", "split_seed": -1}, "split_seed=-1"),
        ({"source": ""}, "source=''"),
        ({}, "'source' is missing"),
    ],
)
def test_bad_settings_are_one_line_config_errors(settings, words):
    with pytest.raises(ConfigError, match=words) as caught:
        DataSource(**settings)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=words):
        DataSource.model_validate(settings)


def test_json_that_is_no_source():
    with pytest.raises(ConfigError, match="invalid JSON"):
        DataSource.model_validate_json("{")


@pytest.mark.parametrize("setting", [{"split": "last"}, {"parts": (0.8, 0.1, 0.1)}, {"split_seed": 1}])
def test_split_settings_for_split_data(folder, setting):
    path = folder(train_txt="1 2\n", test_txt="1 3\n")
    with pytest.raises(ConfigError, match="already split; leave"):
        DataSource(source=path, **setting).load()
    with pytest.raises(ConfigError, match="demo is already split"):
        DataSource(source="demo", **setting).load()


def test_default_split_settings_may_be_repeated_for_split_data(folder):
    path = folder(train_txt="1 2\n", test_txt="1 3\n")
    assert len(DataSource(source=path, split="random", parts=[0.7, 0.1, 0.2], split_seed=0).load().test) == 1


def test_folder_errors(folder, tmp_path):
    with pytest.raises(DataError, match="has no train file; expected train, valid and test"):
        DataSource(source=tmp_path).load()
    folder(train_txt="1 2\n", train_csv="user,item\n1,2\n")
    with pytest.raises(DataError, match=r"has train\.csv and train\.txt; expected one train file"):
        DataSource(source=tmp_path).load()


def test_parts_with_ids_of_different_types(folder):
    path = folder(train_jsonl='{"user": 1, "item": 2}\n', test_jsonl='{"user": "1", "item": 2}\n')
    with pytest.raises(DataError, match=r"user ids are int64 in train\.jsonl and string in test\.jsonl"):
        DataSource(source=path).load()


def test_unknown_source_suggests_a_name():
    with pytest.raises(DataError, match="did you mean 'epinions'"):
        DataSource(source="epinion").load()
    with pytest.raises(DataError, match="registered names are demo, ali-display"):
        DataSource(source="zzz").load()
    with pytest.raises(DataError, match="'zzz' is not a known dataset, folder or file"):
        DataSource(source="zzz").load()


def test_registered_sets_keep_gaps_and_refuse_columns(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKFORMER_DATA", str(tmp_path))
    (tmp_path / "epinions").mkdir()
    for part, text in (("train", "0 5\n0 5\n"), ("valid", "3 1\n"), ("test", "9 2\n")):
        (tmp_path / "epinions" / f"{part}.txt").write_text(text)
    parts = DataSource(source="epinions").load()
    assert (parts.train.num_users, parts.train.num_items, len(parts.train)) == (10, 6, 2)
    assert parts.test.users.tolist() == [9]
    with pytest.raises(ConfigError, match="user='u': epinions is registered"):
        DataSource(source="epinions", user="u").load()
    (tmp_path / "epinions" / "test.txt").write_text("x 2\n")
    with pytest.raises(DataError, match="expected integers from 0"):
        DataSource(source="epinions").load()


@needs_files
@pytest.mark.parametrize(
    ("name", "users", "items", "used_users", "used_items"),
    [
        ("ali-display", 17_730, 10_036, 17_730, 10_036),
        ("epinions", 17_894, 17_660, 17_885, 17_521),
        ("yelp2018-lightgcn", 31_668, 38_048, 31_668, 38_048),
    ],
)
def test_real_datasets(name, users, items, used_users, used_items):
    source = DataSource(source=name)
    parts, log = source.load(), source.load_log()
    assert [len(part) for part in parts] == [file.num_interactions for file in DATASETS[name].files]
    assert (log.num_users, log.num_items) == (users, items) == (DATASETS[name].num_users, DATASETS[name].num_items)
    assert (len(np.unique(log.users)), len(np.unique(log.items))) == (used_users, used_items)


@needs_files
def test_real_files_match_the_registered_checksums():
    from rankformer.data.registry import find_dataset

    for name in ("ali-display", "epinions"):
        for file in DATASETS[name].files:
            assert git_blob_sha1(find_dataset(name) / file.name) == file.blob_sha1


@needs_files
def test_real_ali_display_has_duplicates():
    parts = DataSource(source="ali-display").load()
    assert [len(part) - len(part.drop_duplicates()) for part in parts] == [5_296, 110, 418]
