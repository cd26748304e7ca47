import hashlib
import os
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rankformer.data.download import DownloadLimits, download_dataset, download_file
from rankformer.data.registry import DATASETS, DataFile, git_blob_sha1
from rankformer.errors import ConfigError, DownloadError

BODY = bytes(range(256)) * 1000
QUICK = DownloadLimits(attempts=2, wait=0.01, timeout=2.0)


def blob_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


FILE = DataFile("train.txt", blob_sha1(BODY), 1)


class Handler(BaseHTTPRequestHandler):
    """Serves `server.body`, sending at most `server.send` bytes per answer although it promises all."""

    protocol_version = "HTTP/1.0"

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.redirect:
            self.send_response(302)
            self.send_header("Location", server.redirect)
            self.end_headers()
            return
        if server.status != 200:
            self.send_error(server.status)
            return
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        if begin >= len(server.body):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin + server.shift}-{len(server.body) - 1}/{len(server.body)}")
        if server.length:
            self.send_header("Content-Length", str(len(server.body) - begin))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client hung up
            self.send_body(server.body[begin:])
        if server.sends_left:
            server.sends_left -= 1
            if not server.sends_left:
                server.send = len(server.body)

    def send_body(self, data):
        server = self.server
        for block in range(0, min(len(data), server.send), 50_000):
            self.wfile.write(data[block : min(block + 50_000, server.send)])
            time.sleep(server.pause)

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.body, running.status, running.ranges, running.length = BODY, 200, True, True
        running.send, running.sends_left, running.pause, running.shift, running.asked = len(BODY), 0, 0.0, 0, []
        running.redirect = None
        running.url = f"http://127.0.0.1:{running.server_address[1]}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def fetch(server, folder, file=FILE, **arguments):
    target = folder / "train.txt"
    download_file(f"{server.url}/train.txt", target, file, limits=arguments.pop("limits", QUICK), **arguments)
    return target


def test_blob_sha1_is_gits(tmp_path):
    (tmp_path / "a").write_bytes(b"hello\n")
    assert git_blob_sha1(tmp_path / "a") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_whole_file_with_progress(server, tmp_path):
    seen = []
    assert (
        fetch(server, tmp_path, progress=lambda name, done, total: seen.append((name, done, total))).read_bytes()
        == BODY
    )
    assert seen[-1] == ("train.txt", len(BODY), len(BODY))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]


def test_slow_server(server, tmp_path):
    server.pause = 0.03
    assert fetch(server, tmp_path).read_bytes() == BODY
    assert len(server.asked) == 1


def test_without_length_the_total_is_unknown(server, tmp_path):
    server.length = False
    totals = set()
    fetch(server, tmp_path, progress=lambda _name, _done, total: totals.add(total))
    assert totals == {None}


def test_cut_off_is_resumed_where_it_stopped(server, tmp_path):
    server.send, server.sends_left = 100_000, 2
    assert fetch(server, tmp_path).read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-", "bytes=200000-"]


def test_server_without_range_starts_afresh(server, tmp_path):
    server.send, server.sends_left, server.ranges = 100_000, 1, False
    assert fetch(server, tmp_path).read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-"]


def test_answer_to_another_range_is_not_appended(server, tmp_path):
    server.send, server.sends_left, server.shift = 100_000, 1, 5
    assert fetch(server, tmp_path).read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-", None]


def test_part_left_from_before_is_continued(server, tmp_path):
    (tmp_path / "train.txt.part").write_bytes(BODY[:1234])
    assert fetch(server, tmp_path).read_bytes() == BODY
    assert server.asked == ["bytes=1234-"]


@pytest.mark.parametrize("left", [b"x" * 1234, BODY, BODY + b"more"])
def test_part_left_from_another_file_or_already_whole(server, tmp_path, left):
    (tmp_path / "train.txt.part").write_bytes(left)
    assert fetch(server, tmp_path).read_bytes() == BODY


def test_wrong_bytes_are_not_kept(server, tmp_path):
    server.body = BODY[::-1]
    with pytest.raises(DownloadError, match="expected git blob SHA-1") as caught:
        fetch(server, tmp_path)
    assert FILE.blob_sha1 in str(caught.value)
    assert blob_sha1(server.body) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_wrong_bytes_leave_the_old_file_alone(server, tmp_path):
    (tmp_path / "train.txt").write_bytes(b"old")
    server.body = b"bad"
    with pytest.raises(DownloadError, match="SHA-1"):
        fetch(server, tmp_path)
    assert (tmp_path / "train.txt").read_bytes() == b"old"


def test_not_found_is_not_retried(server, tmp_path):
    server.status = 404
    with pytest.raises(DownloadError, match="answered 404"):
        fetch(server, tmp_path)
    assert len(server.asked) == 1


def test_busy_server_is_asked_again_then_given_up(server, tmp_path):
    server.status = 503
    with pytest.raises(DownloadError, match=r"gave up .* 0 bytes \(the server answered 503\)"):
        fetch(server, tmp_path)
    assert len(server.asked) == 2


def test_cut_offs_without_end_are_given_up_and_the_part_stays(server, tmp_path):
    server.send = 0
    (tmp_path / "train.txt.part").write_bytes(BODY[:100])
    with pytest.raises(
        DownloadError, match=r"gave up after several attempts with 100 bytes .* run the same command again"
    ):
        fetch(server, tmp_path)
    assert len(server.asked) == 2
    assert (tmp_path / "train.txt.part").read_bytes() == BODY[:100]


def test_a_few_bytes_each_time_end_at_some_point(server, tmp_path):
    server.send = 10
    with pytest.raises(DownloadError, match="gave up"):
        fetch(server, tmp_path, limits=DownloadLimits(attempts=2, wait=0.001, max_attempts=5))
    assert len(server.asked) == 5


def test_silence_counts_as_cut_off(server, tmp_path):
    server.pause = 0.6
    with pytest.raises(DownloadError, match="timed out"):
        fetch(server, tmp_path, limits=DownloadLimits(attempts=1, wait=0.01, timeout=0.2, max_attempts=1))


@pytest.mark.parametrize("length", [True, False])
def test_files_beyond_the_limit_are_refused(server, tmp_path, length):
    server.length = length
    with pytest.raises(DownloadError, match="limit of 1,000"):
        fetch(server, tmp_path, limits=DownloadLimits(attempts=1, max_bytes=1000))
    assert not (tmp_path / "train.txt").exists()


def test_no_server_at_all(tmp_path):
    with pytest.raises(DownloadError, match="gave up"):
        download_file("http://127.0.0.1:9/x", tmp_path / "x", FILE, limits=QUICK)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://a/b", "train.txt"])
def test_other_schemes_are_refused(tmp_path, url):
    with pytest.raises(DownloadError, match="only http and https"):
        download_file(url, tmp_path / "x", FILE)


def test_dataset_goes_into_the_cache_once(server, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKFORMER_CACHE", str(tmp_path))
    server.body = b"0 1\n"
    files = tuple(DataFile(f"{part}.txt", blob_sha1(server.body), 1) for part in ("train", "valid", "test"))
    monkeypatch.setitem(
        DATASETS, "epinions", type(DATASETS["epinions"])("epinions", "x.", 1, 2, files, "http://nowhere")
    )
    names = []
    folder = download_dataset(
        "epinions", url_base=server.url, progress=lambda name, _d, _t: names.append(name), limits=QUICK
    )
    assert folder == tmp_path / "epinions"
    assert names == ["train.txt", "valid.txt", "test.txt"]
    (folder / "valid.txt").write_text("damaged")
    download_dataset("epinions", url_base=server.url, limits=QUICK)
    assert len(server.asked) == 4
    assert (folder / "valid.txt").read_bytes() == server.body


def test_datasets_that_cannot_be_downloaded(tmp_path):
    with pytest.raises(DownloadError, match="generated by the package"):
        download_dataset("demo", tmp_path)
    with pytest.raises(DownloadError, match="no published file has its valid part"):
        download_dataset("yelp2018-lightgcn", tmp_path)
    with pytest.raises(ConfigError, match="'nope' is not a known dataset"):
        download_dataset("nope", tmp_path)


@pytest.mark.parametrize(
    "target",
    [
        "ftp://127.0.0.1/f",
        "file:///etc/passwd",
        "data:text/plain,x",
        "http://[::1",
        "http://a:b:c/",
        "gopher://x",
        "/f",
    ],
)
def test_a_redirect_to_what_is_not_http_is_refused(server, tmp_path, target):
    server.redirect = target
    with pytest.raises(DownloadError, match=r"\A.*(redirect|302|nonnumeric port).*\Z"):  # one line
        fetch(server, tmp_path)
    assert os.listdir(tmp_path) == []
