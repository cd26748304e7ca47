from pathlib import Path

import pytest

from rankformer.data.registry import DATASETS, cache_folder, dataset_named, find_dataset
from rankformer.errors import ConfigError, DataError


def test_names_and_files_are_complete():
    assert list(DATASETS) == ["demo", "ali-display", "epinions", "amazon-cds", "yelp2018", "yelp2018-lightgcn"]
    for dataset in DATASETS.values():
        assert dataset.description.endswith(".")
        assert dataset.is_generated or [file.name for file in dataset.files] == ["train.txt", "valid.txt", "test.txt"]
        if dataset.url_base:
            assert dataset.url_base.startswith("https://")
            assert all(len(file.blob_sha1) == 40 for file in dataset.files)
    hashes = [file.blob_sha1 for dataset in DATASETS.values() for file in dataset.files if file.blob_sha1]
    assert len(set(hashes)) == 12
    assert DATASETS["epinions"].num_interactions == 301_378
    assert DATASETS["yelp2018"].num_interactions == 1_970_721
    assert DATASETS["demo"].num_interactions is None


def test_cache_folder_follows_the_environment():
    assert cache_folder({"RANKFORMER_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/rankformer")
    assert cache_folder({}) == Path.home() / ".cache" / "rankformer"


def test_data_folder_comes_before_the_cache(tmp_path):
    environ = {"RANKFORMER_DATA": str(tmp_path / "data"), "RANKFORMER_CACHE": str(tmp_path / "cache")}
    for place in ("cache", "data"):
        folder = tmp_path / place / "epinions"
        folder.mkdir(parents=True)
        for part in ("train", "valid"):
            (folder / f"{part}.txt").touch()
        with pytest.raises(DataError, match="not found"):
            find_dataset("epinions", {"RANKFORMER_CACHE": str(tmp_path / place)})
        (folder / "test.txt").touch()
        assert find_dataset("epinions", environ) == folder


def test_not_found_says_where_and_how(tmp_path):
    environ = {"RANKFORMER_DATA": str(tmp_path / "data"), "RANKFORMER_CACHE": str(tmp_path / "cache")}
    with pytest.raises(DataError, match="rankformer data download yelp2018`") as caught:
        find_dataset("yelp2018", environ)
    assert str(tmp_path / "data" / "yelp2018") in str(caught.value)
    assert str(tmp_path / "cache" / "yelp2018") in str(caught.value)
    with pytest.raises(DataError, match="no published file has its valid part"):
        find_dataset("yelp2018-lightgcn", environ)


def test_unknown_name():
    with pytest.raises(ConfigError, match="'x' is not a known dataset; expected one of demo"):
        dataset_named("x")
