"""Requests that nobody should send, made by hand and at random."""

import random
from urllib.parse import quote

JSON = {"Content-Type": "application/json"}
POSTS = ("/v1/recommend:batch", "/v1/recommend:session", "/v1/explain:session", "/v1/events")
GETS = ("/v1/recommend/{}", "/v1/items/{}/similar", "/v1/explain/{}/{}", "/v1/users/{}/history")
IDS = (
    *("nobody", "u1", "", " ", ".", "..", "../../etc/passwd", "..\\..\\windows", "/etc/passwd", "%00", "\0", "a\0b"),
    *("%", "%25", "%2F", "%zz", "\n", "\r\nX-Injected: yes", "'; DROP TABLE users;--", "<script>", "${jndi:ldap://x}"),
    *(
        "☃" * 50,
        "\u202e",
        "\ufeff",
        "x" * 5000,
        "-1",
        "1e999",
        "NaN",
        "null",
        "true",
        "[]",
        "{}",
        "u1/../u2",
        "//",
        "?",
        "#",
    ),
)
NUMBERS = (
    "-1",
    "0",
    "1000000000",
    "10**9",
    "1e9",
    "NaN",
    "Infinity",
    "-Infinity",
    "true",
    "null",
    "",
    " 7",
    "0x10",
    "٣",
    "9" * 400,
)
VALUES = (
    *("-1", "1000000000", "1e400", "NaN", "-Infinity", "true", "null", '"10"', "[]", "{}", "1.5", "9" * 5000, "-0"),
    *(
        '"\\u0000"',
        '"\\ud800"',
        '["u1"]',
        '[["u1"]]',
        "[null]",
        "[{}]",
        "[NaN]",
        "[1e999]",
        '["\\ud83d"]',
        '["' + "x" * 9000 + '"]',
    ),
    *(
        "[" + ",".join(['"u1"'] * 2000) + "]",
        "[" * 50 + "]" * 50,
        '{"a":' * 50 + "1" + "}" * 50,
        "'u1'",
        "undefined",
        "01",
        "+1",
    ),
)
FIELDS = (
    "users",
    "history",
    "item",
    "k",
    "events",
    "include_seen",
    "allow",
    "block",
    "extra",
    "__proto__",
    "",
    "\\u0000",
)
BODIES = (
    *(
        b"",
        b" ",
        b"{",
        b"}",
        b"[]",
        b"null",
        b"true",
        b"0",
        b'""',
        b"NaN",
        b"{]",
        b'{"users"',
        b'{"users":}',
        b"\xff\xfe",
        b"\0",
    ),
    *(b"[" * 100_000, b'{"users":' * 20_000, b"[" * 7 + b"]" * 7, b'{"users": ["u1"]} trailing', b"\xef\xbb\xbf{}"),
    *(
        b'{"users": ["u1"], "users": 7}',
        b'{"history": ["\xff"]}',
        b"<xml/>",
        b"users=u1",
        b"x" * (2**20 + 1),
        b"[" + b"1," * 400_000 + b"1]",
    ),
    *(b'"' + b'\\"' * 100_000, b"9" * 100_000, b"-" * 1000, b'{"k": ' + b"9" * 50_000 + b"}"),
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW")
PATHS = (
    *(
        "/",
        "//",
        "/v1",
        "/v1/",
        "/v2/recommend/u1",
        "/v1/recommend",
        "/v1/recommend:nothing",
        "/v1/admin/reload",
        "/docs",
    ),
    *("/v1/../v1/model", "/v1/%2e%2e/%2e%2e/etc/passwd", "/v1/recommend/u1/", "/v1/recommend/u1/extra", "/.git/config"),
    *(
        "/static/../../etc/passwd",
        "/v1/explain/u1",
        "/v1/explain/u1/i1/x",
        "/openapi.json?x=1",
        "/metrics/..",
        "/%00",
        "/v1/%ff%fe",
    ),
)


def by_hand():
    """Yield (method, path, headers, body) of every kind of wrong request, each once."""
    for path in PATHS:
        for method in METHODS:
            yield method, path, {}, b""
    for template in GETS:
        for raw_id in IDS:
            yield "GET", template.format(quote(raw_id, safe=""), quote(raw_id, safe="")), {}, b""
        for number in NUMBERS:
            yield "GET", f"{template.format('u1', 'i1')}?k={quote(number)}", {}, b""
            yield "GET", f"{template.format('u1', 'i1')}?limit={quote(number)}", {}, b""
    for raw_id in IDS:
        for name in ("query", "allow", "block", "include_seen", "limit", raw_id):
            for path in ("/v1/recommend/u1", "/v1/users", "/v1/items"):
                yield "GET", f"{path}?{quote(name)}={quote(raw_id)}", {}, b""
    for path in POSTS:
        for body in BODIES:
            for headers in (JSON, {}, {"Content-Type": "text/plain"}, {**JSON, "Content-Encoding": "gzip"}):
                yield "POST", path, headers, body
        for field in FIELDS:
            for value in VALUES:
                yield "POST", path, JSON, f'{{"users": ["u1"], "history": ["i1"], "{field}": {value}}}'.encode()
                yield "POST", path, JSON, f'{{"{field}": {value}}}'.encode()


def at_random(count, seed=0):
    """Yield requests that were right until some of their bytes were changed, doubled or dropped."""
    chooser = random.Random(seed)
    whole = [
        b'{"users": ["u1", "u2"], "k": 5, "include_seen": true, "allow": ["i1"], "block": null}',
        b'{"history": ["i1", "i2"], "k": 5, "allow": ["i1", 7, 1.5, true]}',
        b'{"history": ["i1", "i2"], "item": "i3"}',
        b'{"events": [{"user": "u1", "item": "i1", "weight": 2, "time": "2026-01-01T12:00:00Z"}, {"user": 1}]}',
    ]
    for _ in range(count):
        place = chooser.randrange(len(whole))
        if chooser.random() < 0.7:
            yield "POST", POSTS[place], JSON, _mangled(chooser, whole[place])
        else:
            path = chooser.choice(GETS).format("u1", "i1") + chooser.choice(("", "?k=5", "?limit=5", "?k=5&allow=i1"))
            mangled = _mangled(chooser, path.encode()[1:])
            yield "GET", "/" + quote(mangled, safe="/?&=:%"), {}, b""


def _mangled(chooser, text):
    text = bytearray(text)
    for _ in range(chooser.randint(1, 4)):
        place = chooser.randrange(len(text)) if text else 0
        how = chooser.random()
        if how < 0.4:
            text[place : place + 1] = bytes([chooser.randrange(256)])
        elif how < 0.6:
            del text[place : place + chooser.randint(1, 5)]
        elif how < 0.8:
            text[place:place] = text[place : place + 8] * chooser.randint(1, 3)
        else:
            text[place:place] = chooser.choice(
                (b"[", b"]", b"{", b'"', b"\\", b"NaN", b"-", b"\0", b"%", b"\xc3", b"1e999")
            )
    return bytes(text)
